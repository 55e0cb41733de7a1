"""`thalweg join`."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from thalweg.cli.join import DELIVERY_S, ClientProgress, _run_client, parse_address
from thalweg.cli.main import app
from thalweg.core.errors import ConfigError, RunError
from thalweg.network.edge.__main__ import _parser
from thalweg.network.flower.certs import make_certs
from thalweg.network.flower.liveness import lock_file


def run_command(*words: str) -> str:
    return CliRunner().invoke(app, list(words), catch_exceptions=False).output


def test_join_without_tls_is_rejected_beyond_loopback(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="TLS and node keys are required"):
        run_command(
            "join", "fl.example.org", "--data", "replay", "--state", str(tmp_path / "client")
        )
    assert not (tmp_path / "client").exists()


def test_unusable_options_of_secure_aggregation_are_rejected(tmp_path: Path) -> None:
    words = ("join", "127.0.0.1", "--data", "replay", "--state", str(tmp_path / "client"))
    for number in ("2", "16385"):
        with pytest.raises(ConfigError, match=f"--min-participants must be from 3 to .* {number}"):
            run_command(*words, "--min-participants", number)
    with pytest.raises(ConfigError, match="must be a folder with public keys of nodes"):
        run_command(*words, "--peers", str(tmp_path))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--privacy-account", "a.db"], "--privacy-account needs a budget: add --max-epsilon"),
        (["--max-epsilon", "0"], "max_epsilon must"),
        (["--max-epsilon", "1", "--delta", "1"], "delta must"),
        (["--min-noise", "-1"], "min_noise must"),
    ],
)
def test_invalid_limits_of_privacy_are_rejected(
    options: list[str], match: str, tmp_path: Path
) -> None:
    state = tmp_path / "client"
    with pytest.raises(ConfigError, match=match):
        run_command("join", "127.0.0.1", "--data", "replay", "--state", str(state), *options)
    assert not state.exists()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--client", "-1"], "--client must be from 0 to 999,999, got -1"),
        (["--client", "1000000"], "--client must be from 0"),
        (["--capacity", "0"], "--capacity must be from 1 to 10,000,000, got 0"),
        (["--capacity", "1000000000000"], "--capacity must be from 1 to 10,000,000"),
        (["--queue", "1"], "--queue must be from 2 to 10,000,000, got 1"),
        (["--component", "mine.py"], "expected file.py:NAME"),
        (["--recipes", ","], "--recipes: expected names"),
        (["--recipes", "fedavg,,dpcs"], "--recipes: expected names"),
    ],
)
def test_unusable_options_are_rejected_before_the_server_is_contacted(
    options: list[str], match: str, tmp_path: Path
) -> None:
    state = tmp_path / "client"
    with pytest.raises(ConfigError, match=match):
        run_command("join", "127.0.0.1", "--data", "replay", "--state", str(state), *options)
    assert not state.exists()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--component", "{folder}/absent.py:Recent"], "there is no file"),
        (["--model", "{folder}/net.py:Net"], "there is no Net. It defines Other."),
        (["--max-epsilon", "8", "--privacy-account", "{folder}/net.py"], "cannot be used"),
    ],
)
def test_unusable_files_are_rejected_before_the_server_is_contacted(
    options: list[str], match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contacted = list[str]()
    monkeypatch.setattr(
        "thalweg.cli.join.check_server", lambda host, port, trust: contacted.append(host)
    )
    (tmp_path / "net.py").write_text("class Other: ...\n")
    words = [each.format(folder=tmp_path) for each in options]
    state = str(tmp_path / "client")
    output = run_command("join", "127.0.0.1:9", "--data", "replay", "--state", state, *words)
    assert match in output
    assert "waiting" not in output
    assert not contacted


def test_limits_of_privacy_reach_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[list[str]]()

    def start(address: str, state: Path, trust: object, options: list[str]) -> None:
        seen.append(options)
        raise RunError("enough")

    monkeypatch.setattr("thalweg.cli.join.ClientProcesses", start)
    words = ["--min-noise", "20", "--max-epsilon", "8", "--privacy-account", str(tmp_path / "a.db")]
    with pytest.raises(RunError, match="enough"):
        run_command("join", "127.0.0.1", "--data", "replay", "--state", str(tmp_path), *words)
    args = _parser().parse_args(["--state", "s", "--socket", "k", *seen[0]])
    assert (args.min_noise, args.max_epsilon, args.delta) == (20.0, 8.0, 1e-5)
    assert args.privacy_account == tmp_path / "a.db"


def test_join_with_the_keys_of_all_nodes_is_rejected(tmp_path: Path) -> None:
    make_certs(tmp_path, [], 2)
    with pytest.raises(ConfigError, match="use the folder of one node"):
        run_command("join", "fl.example.org", "--data", "replay", "--certs", str(tmp_path))


@pytest.mark.parametrize("server", ["", ":8470", "host:", "host:0", "host:99999", "http://host:80"])
def test_invalid_server_address_is_rejected(server: str) -> None:
    with pytest.raises(ConfigError, match="expected SERVER"):
        parse_address(server)


def test_ipv6_address_without_port_has_the_default_port() -> None:
    assert parse_address("fe80::1") == ("fe80::1", 8470)


def test_progress_line_of_a_client_counts_its_rounds() -> None:
    progress = ClientProgress()
    assert progress.line({}) == "not joined yet"
    progress.update({"event": "joined", "client": 4})
    progress.update({"event": "round", "round": 3, "loss": 0.25})
    progress.update({"event": "round", "round": 9, "loss": None})
    progress.update({"event": "round", "round": 9, "loss": None})  # the server was restarted
    assert progress.line({"lost": 1}) == "client 4   round 9   took part in 2   lost 1"


def test_second_client_in_a_state_folder_is_rejected(tmp_path: Path) -> None:
    with (
        lock_file(tmp_path / ".join", "never shown"),
        pytest.raises(RunError, match="every client needs its own folder"),
    ):
        run_command("join", "127.0.0.1:9", "--data", "replay", "--state", str(tmp_path))


class RejectedProcesses:
    """Processes of a client that is ready at once, and rejected after it has connected."""

    rejection_reason: str | None = None

    def start_daemon(self) -> None:
        self._events = [{"event": "ready"}]

    def start_node(self) -> None:
        self.rejection_reason = "the data differ"

    def events(self) -> list[dict[str, str]]:
        events, self._events = self._events, []
        return events

    def supervise(self, with_node: bool) -> list[str]:
        return []


def test_server_has_time_to_read_the_response_of_a_rejected_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("thalweg.cli.join.time.sleep", pauses.append)
    monkeypatch.setattr("thalweg.cli.join.check_server", lambda *others: True)
    processes: Any = RejectedProcesses()
    _run_client(processes, "127.0.0.1", 8470, None, tmp_path, lambda event, line: None)
    assert pauses[-1] == DELIVERY_S
    assert DELIVERY_S not in pauses[:-1]
