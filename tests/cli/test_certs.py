"""`thalweg certs`."""

from pathlib import Path

from typer.testing import CliRunner

from thalweg.cli.main import app


def run_certs(*words: str) -> str:
    return CliRunner().invoke(app, ["certs", *words], catch_exceptions=False).output


def test_certs_prints_where_each_folder_belongs(tmp_path: Path) -> None:
    output = run_certs(str(tmp_path / "keys"), "--host", "fl.example.org", "--nodes", "2")
    assert f"{tmp_path}/keys/server/   to the server" in output
    assert f"{tmp_path}/keys/nodes/0/ ... {tmp_path}/keys/nodes/1/   to one device each" in output
    assert "keep it here and do not share it" in output


def test_second_call_of_certs_prints_only_new_keys(tmp_path: Path) -> None:
    run_certs(str(tmp_path), "--nodes", "1")
    assert "nothing to do" in run_certs(str(tmp_path), "--nodes", "1")
    output = run_certs(str(tmp_path), "--nodes", "2")
    assert "nodes/1/   to one device each" in output
    assert "to the server:" not in output
    assert "the new public keys: copy them to the server" in output
