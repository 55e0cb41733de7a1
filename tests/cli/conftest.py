"""Run commands in this process, which is faster than to start a new interpreter."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from thalweg.cli.main import main

Command = Callable[..., CompletedProcess[str]]


@pytest.fixture
def thalweg(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """Run a command in an empty folder, as `python -m thalweg` does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words: str) -> CompletedProcess[str]:
        monkeypatch.setattr("sys.argv", ["thalweg", *words])
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        printed = capsys.readouterr()
        return CompletedProcess(list(words), int(str(code)), printed.out, printed.err)

    return run
