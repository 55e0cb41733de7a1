"""`thalweg serve`: checks before the server starts."""

import io
import json
import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from thalweg.aggregation import Median, NormClip
from thalweg.cli.main import app
from thalweg.cli.serve import (
    ServeArguments,
    _EventPrinter,
    _merge_previous,
    describe_data_options,
    format_event,
)
from thalweg.core.errors import ConfigError, RunError
from thalweg.data import Table
from thalweg.data.huggingface import HuggingFace
from thalweg.engine.builders import add_default_clipping, add_default_size_limit
from thalweg.engine.plan import Plan, make_plan, plan_from_toml
from thalweg.network.flower.certs import make_certs
from thalweg.network.flower.serve_options import ServeOptions
from thalweg.streams import LiveWorld


@pytest.fixture(autouse=True)
def forbid_server_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail at once if a command starts the server instead of rejecting its options."""
    monkeypatch.setattr("thalweg.cli.serve.ServerProcesses", None)


WORDS = ["serve", "fedavg", "--on", "digits-partial", "--clients", "3"]


def run_command(*words: str) -> str:
    return CliRunner().invoke(app, list(words), catch_exceptions=False).output


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_serve_without_tls_is_rejected_beyond_loopback(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"TLS and node keys are required(.|\n)*thalweg certs"):
        run_command(*WORDS, "--host", "0.0.0.0", "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_port_in_use_is_rejected_before_the_folder_is_created(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        words = ["--port", str(other.getsockname()[1]), "--out", str(tmp_path / "run")]
        with pytest.raises(ConfigError, match="choose another port with --port"):
            run_command(*WORDS, *words)
    assert not (tmp_path / "run").exists()


def test_certificate_for_another_host_is_rejected(tmp_path: Path) -> None:
    make_certs(tmp_path / "keys", ["10.0.0.1"], 1)
    with pytest.raises(ConfigError, match=r"not for 10\.0\.0\.2"):
        run_command(*WORDS, "--host", "10.0.0.2", "--certs", str(tmp_path / "keys"))


def test_baseline_cannot_be_served() -> None:
    with pytest.raises(ConfigError, match="baseline, which has no clients"):
        run_command("serve", "majority", "--on", "elec2")


def test_folder_of_another_run_is_rejected(tmp_path: Path) -> None:
    run_command(
        "run", "fedavg", "--on", "digits-partial", "--rounds", "1", "--out", str(tmp_path / "run")
    )
    with pytest.raises(RunError, match="already contains a run"):
        run_command(*WORDS, "--port", str(free_port()), "--out", str(tmp_path / "run"))


def test_resuming_a_finished_run_prints_its_results(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    run_command("run", "fedavg", "--on", "digits-partial", "--rounds", "1", "--out", folder)
    output = run_command("serve", folder, "--resume", "--port", str(free_port()))
    assert f"results         {folder}/" in "".join(output.split("\n"))
    assert re.search(r"task +classification, 10 classes\n", output), "in the header"
    line = run_command(
        "serve", folder, "--resume", "--port", str(free_port()), "--json"
    ).splitlines()[-1]
    assert json.loads(line)["final"]["round"] == 1


def test_serve_options_are_converted_to_arguments() -> None:
    assert ServeArguments().to_args() == []
    serve_options = ServeArguments(
        host="10.0.0.1", certs=Path("keys"), min_clients=3, insecure=True
    )
    assert serve_options.to_args() == [
        *("--host", "10.0.0.1", "--certs", "keys", "--min-clients", "3", "--insecure")
    ]


def test_app_config_has_absolute_paths() -> None:
    assert ServeArguments(data_dir=Path("data")).to_app_config(False)["data_dir"] == str(
        Path("data").absolute()
    )


def test_resumed_run_keeps_previous_options_unless_overridden(
    tmp_path: Path,
) -> None:
    before = ServeArguments(min_clients=3, deadline_s=20.0, limits=("max_norm=5",)).to_app_config(
        False
    )
    (tmp_path / "serve.json").write_text(json.dumps(before))
    now = _merge_previous(
        tmp_path, ServeArguments(deadline_s=30.0, limits=("max_steps=9",)).to_app_config(False)
    )
    assert (now["min_clients"], now["deadline_s"]) == (3, 30.0)
    assert now["limits"] == {"max_norm": 5.0, "max_steps": 9}


def test_limits_are_passed_to_the_app_config_and_arguments() -> None:
    serve_options = ServeArguments(limits=("norm_factor=5", "max_steps=100"))
    assert serve_options.to_app_config(False)["limits"] == {"norm_factor": 5.0, "max_steps": 100}
    assert serve_options.to_args() == ["--limit", "norm_factor=5", "--limit", "max_steps=100"]
    unlimited = ServeArguments(limits=("report_factor=none",)).to_app_config(False)
    assert unlimited["limits"] == {"report_factor": None}
    plan = make_plan("fedavg", "digits-partial", overrides=["world=live"])
    world = LiveWorld(3, None, None)  # type: ignore[arg-type]
    limits = ServeOptions(limits=unlimited["limits"]).limits_for(plan, world, 10)
    assert (limits.report_factor, limits.count_factor, limits.num_classes) == (None, 10.0, 10)


def test_number_of_clients_can_be_overridden() -> None:
    plan = make_plan("fedavg", "digits-partial", overrides=["world.num_clients=3"])
    assert plan.scenario.world.num_clients == 3  # the override of --clients 3


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"event": "rejected", "node": "7", "reason": "too old"}, "node 7 was rejected: too old"),
        (
            {"event": "waiting", "present": 1, "wanted": 3},
            "waiting for clients: 1 of 3 are present",
        ),
        (
            {"event": "waiting", "present": 0, "wanted": 3, "rejected": {"full": 2}, "failing": 1},
            "waiting for clients: 0 of 3 are present; rejected so far: 2 (full: 2); connected, but "
            "not joined: 1",
        ),
        ({"event": "of a newer version"}, ""),
    ],
)
def test_format_event_gives_one_line(event: dict[str, object], line: str) -> None:
    assert format_event(event) == line


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--min-clients", "4"], "--min-clients is 4, but the run has 3 clients"),
        (["--min-clients", "0"], "min_clients must be at least 1"),
        (["--deadline", "0"], "deadline must be positive"),
        (
            ["--deadline", "inf"],
            "deadline must be positive and at most 10,000,000 seconds, got inf",
        ),
        (["--deadline", "1e300"], "at most 10,000,000 seconds"),
        (
            ["--grace", "inf"],
            "grace time must be at least 0 and at most 10,000,000 seconds, got inf",
        ),
        (["--wait", "nan"], "wait must be at least 0 and at most 10,000,000 seconds, got nan"),
        (["--limit", "max_normal=1"], "max_normal"),
        (["--limit", "norm_factor=0.5"], "norm_factor"),
        (["--limit", "norm_factor"], "--limit 'norm_factor': expected NAME=VALUE"),
        (["--port", "70000"], "--port must lie in 1 to 65535"),
    ],
)
def test_invalid_options_are_rejected_before_the_folder_is_created(
    tmp_path: Path, words: list[str], reason: str
) -> None:
    port = [] if "--port" in words else ["--port", str(free_port())]
    with pytest.raises(ConfigError, match=reason):
        run_command(*WORDS, *words, *port, "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("sets", "is_complete", "robust", "note"),
    [
        ([], False, NormClip(), "clipped to the median norm.*--set robust=none"),
        (["robust=none"], False, None, "robust=none: a single client can change the model at will"),
        (["robust=median"], False, Median(), "^$"),
        (["secure_aggregation=masked"], False, None, "not clipped at the server"),
        ([], True, None, "robust=none: a single client can change the model at will"),
    ],
)
def test_updates_are_clipped_by_default(
    sets: list[str], is_complete: bool, robust: object, note: str
) -> None:
    plan = make_plan("fedavg", "digits-partial", overrides=sets)
    served, words = add_default_clipping(plan, sets, is_complete)
    assert served.recipe.robust == robust
    assert re.search(note, words)
    assert replace(served, recipe=plan.recipe) == plan


@pytest.mark.parametrize(
    ("sets", "is_complete", "max_size"),
    [
        (["world=live"], False, 1.0),
        (["world=live", "selection.max_size=none"], False, None),
        (["world=live"], True, None),
        ([], False, None),
    ],
)
def test_reported_numbers_of_samples_have_a_limit_in_live_runs(
    sets: list[str], is_complete: bool, max_size: float | None
) -> None:
    plan = make_plan("powd", "digits-partial", overrides=sets)
    assert add_default_size_limit(plan, sets, is_complete).recipe.selection == replace(
        plan.recipe.selection, max_size=max_size
    )


@pytest.mark.parametrize(("sets", "robust"), [([], NormClip()), (["--set", "robust=none"], None)])
def test_served_plan_has_the_default_clipping(
    sets: list[str], robust: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Plan] = []
    monkeypatch.setattr("thalweg.cli.serve._run_server", lambda plan, *others: served.append(plan))
    folder = tmp_path / "run"
    output = run_command(*WORDS, *sets, "--port", str(free_port()), "--out", str(folder))
    stored = plan_from_toml((folder / "plan.toml").read_text(), "plan.toml")
    assert [plan.recipe.robust for plan in (*served, stored)] == [robust, robust]
    assert "--out" not in (folder / "command.txt").read_text(), "a repeated run has its own folder"
    assert "robust=none" in output, "the remedy, or the warning"


def test_wait_for_rejected_clients_is_printed_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("thalweg.cli.serve.time.monotonic", lambda: now)
    console = Console(file=io.StringIO(), width=100)
    printer = _EventPrinter(console, as_json=False)
    calm = {"event": "waiting", "present": 0, "wanted": 2, "rejected": {}, "failing": 0}
    counts = []
    for event in (calm, calm | {"rejected": {"version": 2}}):
        for _ in range(21):  # five minutes, each 15 seconds
            printer.print_event(event)
            now += 15.0
        counts.append(len(console.file.getvalue().splitlines()))  # type: ignore[attr-defined]
    assert counts == [1, 1 + 7]


def test_listening_server_names_the_columns_of_its_table() -> None:
    where = {"event": "listening", "host": "127.0.0.1", "port": 8470, "has_file": True}
    options = describe_data_options(
        Table("a.csv", label="kind", client="my site", test_fraction=0.5)
    )
    assert "--data 'replay:FILE?test_fraction=0.5&label=kind&client=my%20site' --state" in (
        format_event({**where, "data_options": options})
    )
    assert "--data replay:FILE --state" in format_event({**where, "data_options": ""})
    hub = HuggingFace("owner/name", label="kind")
    assert describe_data_options(hub) == "label=kind", "FILE stands for the name"
