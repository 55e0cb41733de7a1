import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from thalweg.cli.main import app
from thalweg.cli.serve import ServeOptions, _merge_previous, format_event
from thalweg.core.errors import ConfigError, RunError
from thalweg.engine.plan import make_plan
from thalweg.network.flower.certs import make_certs


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that is not noticed fails here, and serves nobody for ever."""
    monkeypatch.setattr("thalweg.cli.serve.ServerProcesses", None)


WORDS = ["serve", "fedavg", "--on", "digits-partial", "--clients", "3"]


def said(*words: str) -> str:
    return CliRunner().invoke(app, list(words), catch_exceptions=False).output


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
        return port


def test_beyond_loopback_it_refuses_to_start_in_the_clear_and_leaves_no_folder(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match=r"nothing is sent without TLS(.|\n)*thalweg certs"):
        said(*WORDS, "--host", "0.0.0.0", "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_port_in_use_is_one_message_and_leaves_no_folder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        words = ["--port", str(somebody.getsockname()[1]), "--out", str(tmp_path / "run")]
        with pytest.raises(ConfigError, match="choose another with --port"):
            said(*WORDS, *words)
    assert not (tmp_path / "run").exists()


def test_a_certificate_for_another_host_is_noticed_before_anything_starts(tmp_path: Path) -> None:
    make_certs(tmp_path / "keys", ["10.0.0.1"], 1)
    with pytest.raises(ConfigError, match=r"and not for 10\.0\.0\.2"):
        said(*WORDS, "--host", "10.0.0.2", "--certs", str(tmp_path / "keys"))


def test_a_baseline_has_no_clients_to_serve() -> None:
    with pytest.raises(ConfigError, match="baseline, which has no clients"):
        said("serve", "majority", "--on", "elec2")


def test_the_folder_of_another_run_is_not_touched(tmp_path: Path) -> None:
    said("run", "fedavg", "--on", "digits-partial", "--rounds", "1", "--out", str(tmp_path / "run"))
    with pytest.raises(RunError, match="already contains a run"):
        said(*WORDS, "--port", str(free_port()), "--out", str(tmp_path / "run"))


def test_a_run_that_is_over_is_shown_and_nothing_is_started(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    said("run", "fedavg", "--on", "digits-partial", "--rounds", "1", "--out", folder)
    output = said("serve", folder, "--resume", "--port", str(free_port()))
    assert f"results         {folder}/" in "".join(output.split("\n"))
    line = said("serve", folder, "--resume", "--port", str(free_port()), "--json").splitlines()[-1]
    assert json.loads(line)["final"]["round"] == 1


def test_the_words_of_a_command_make_the_same_command_again() -> None:
    assert ServeOptions().to_args() == []
    serve_options = ServeOptions(host="10.0.0.1", certs=Path("keys"), min_clients=3, insecure=True)
    assert serve_options.to_args() == [
        *("--host", "10.0.0.1", "--certs", "keys", "--min-clients", "3", "--insecure")
    ]


def test_what_the_app_reads_has_absolute_paths() -> None:
    assert ServeOptions(data_dir=Path("data")).to_app_config(False)["data_dir"] == str(
        Path("data").absolute()
    )


def test_a_run_that_goes_on_is_served_as_before_unless_something_else_is_said(
    tmp_path: Path,
) -> None:
    before = ServeOptions(min_clients=3, deadline_s=20.0, limits=("max_norm=5",)).to_app_config(
        False
    )
    (tmp_path / "serve.json").write_text(json.dumps(before))
    now = _merge_previous(
        tmp_path, ServeOptions(deadline_s=30.0, limits=("max_steps=9",)).to_app_config(False)
    )
    assert (now["min_clients"], now["deadline_s"]) == (3, 30.0)
    assert now["limits"] == {"max_norm": 5.0, "max_steps": 9}


def test_limits_are_passed_on_as_they_were_said() -> None:
    serve_options = ServeOptions(limits=("norm_factor=5", "max_steps=100"))
    assert serve_options.to_app_config(False)["limits"] == {"norm_factor": 5.0, "max_steps": 100}
    assert serve_options.to_args() == ["--limit", "norm_factor=5", "--limit", "max_steps=100"]


def test_more_clients_than_the_scenario_has_can_be_asked_for() -> None:
    plan = make_plan("fedavg", "digits-partial", overrides=["world.num_clients=3"])
    assert plan.scenario.world.num_clients == 3  # what --clients 3 says


@pytest.mark.parametrize(
    ("event", "line"),
    [
        ({"event": "rejected", "node": "7", "reason": "too old"}, "node 7 was rejected: too old"),
        (
            {"event": "waiting", "present": 1, "wanted": 3},
            "waiting for clients: 1 of 3 are present",
        ),
        ({"event": "of a newer version"}, ""),
    ],
)
def test_events_are_said_in_lines(event: dict[str, object], line: str) -> None:
    assert format_event(event) == line


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--min-clients", "4"], "--min-clients is 4, but the run has 3 clients"),
        (["--min-clients", "0"], "min_clients must be at least 1"),
        (["--deadline", "0"], "deadline must be positive"),
        (["--limit", "max_normal=1"], "max_normal"),
        (["--limit", "norm_factor=0.5"], "norm_factor"),
        (["--port", "70000"], "--port must lie in 1 to 65535"),
    ],
)
def test_what_cannot_be_served_is_refused_before_there_is_a_folder(
    tmp_path: Path, words: list[str], reason: str
) -> None:
    port = [] if "--port" in words else ["--port", str(free_port())]
    with pytest.raises(ConfigError, match=reason):
        said(*WORDS, *words, *port, "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
