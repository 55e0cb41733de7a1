from pathlib import Path

from typer.testing import CliRunner

from thalweg.cli.main import app


def said(*words: str) -> str:
    return CliRunner().invoke(app, ["certs", *words], catch_exceptions=False).output


def test_it_says_what_goes_where(tmp_path: Path) -> None:
    output = said(str(tmp_path / "keys"), "--host", "fl.example.org", "--nodes", "2")
    assert f"{tmp_path}/keys/server/   to the server" in output
    assert f"{tmp_path}/keys/nodes/0/ ... {tmp_path}/keys/nodes/1/   to one device each" in output
    assert "keep it here, give it to nobody" in output


def test_a_second_time_it_says_what_is_new(tmp_path: Path) -> None:
    said(str(tmp_path), "--nodes", "1")
    assert "nothing to do" in said(str(tmp_path), "--nodes", "1")
    output = said(str(tmp_path), "--nodes", "2")
    assert "nodes/1/   to one device each" in output
    assert "to the server:" not in output
    assert "the new public keys: copy them to the server" in output
