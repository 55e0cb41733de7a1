from pathlib import Path

import pytest
from typer.testing import CliRunner

from thalweg.cli.join import ClientProgress, parse_address
from thalweg.cli.main import app
from thalweg.core.errors import ConfigError, RunError
from thalweg.network.flower.certs import make_certs
from thalweg.network.flower.liveness import lock_file


def said(*words: str) -> str:
    return CliRunner().invoke(app, list(words), catch_exceptions=False).output


def test_beyond_loopback_it_refuses_to_join_in_the_clear(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing is sent without TLS"):
        said("join", "fl.example.org", "--data", "replay", "--state", str(tmp_path / "client"))
    assert not (tmp_path / "client").exists()


def test_the_keys_of_everybody_are_not_those_of_one_node(tmp_path: Path) -> None:
    make_certs(tmp_path, [], 2)
    with pytest.raises(ConfigError, match="which one is this"):
        said("join", "fl.example.org", "--data", "replay", "--certs", str(tmp_path))


@pytest.mark.parametrize("server", ["", ":8470", "host:", "host:0", "host:99999", "http://host:80"])
def test_what_is_no_address_is_refused(server: str) -> None:
    with pytest.raises(ConfigError, match="expected SERVER"):
        parse_address(server)


def test_a_bare_address_of_version_6_has_the_usual_port() -> None:
    assert parse_address("fe80::1") == ("fe80::1", 8470)


def test_a_client_s_standing_is_what_it_has_done() -> None:
    progress = ClientProgress()
    assert progress.line({}) == "not joined yet"
    progress.update({"event": "joined", "client": 4})
    progress.update({"event": "round", "round": 3, "loss": 0.25})
    progress.update({"event": "round", "round": 9, "loss": None})
    progress.update({"event": "round", "round": 9, "loss": None})  # the server was restarted
    assert progress.line({"lost": 1}) == "client 4   round 9   took part in 2   lost 1"


def test_two_clients_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    with (
        lock_file(tmp_path / ".join", "never said"),
        pytest.raises(RunError, match="every client needs a folder of its own"),
    ):
        said("join", "127.0.0.1:9", "--data", "replay", "--state", str(tmp_path))
