"""Shell completion: names by prefix, without importing the registries."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import thalweg
from thalweg.cli.completion import (
    complete_name,
    complete_recipe,
    complete_scenario,
    complete_setting,
    complete_study,
    join_words,
)


def test_recipes_combinations_and_variants() -> None:
    assert complete_recipe("fedado") == []
    assert complete_recipe("fedada") == ["fedadam", "fedadagrad"]
    assert complete_recipe("fedprox+sfed") == ["fedprox+sfedpo"]
    assert complete_recipe("sfedpo,weights=eq") == ["sfedpo,weights=equal"]
    assert "river-tree" in complete_recipe("river")


def test_scenarios_and_data_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("digits-own.csv", "digits.txt", "deep/a.parquet"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    assert complete_scenario("digits-f") == ["digits-full"]
    assert complete_scenario("digits-o") == ["digits-own.csv"]
    assert complete_scenario("deep/") == ["deep/a.parquet"]
    assert complete_scenario(f"{tmp_path}/d") == [f"{tmp_path}/digits-own.csv"]
    assert complete_scenario("missing/x") == []


def test_settings_first_parts_then_choices_and_fields() -> None:
    parts = complete_setting("")
    assert "memory=" in parts
    assert "rounds=" in parts
    assert all(part.endswith("=") and "." not in part for part in parts)
    assert complete_setting("memory=f") == ["memory=fifo"]
    assert complete_setting("memory.budg") == ["memory.budget=0.5"]
    assert complete_setting("world.num_") == ["world.num_clients="]  # several defaults
    assert complete_setting("memory.kind=f") == ["memory.kind=fifo"]
    assert complete_setting("local.optimizer.kind=s") == ["local.optimizer.kind=sgd"]
    one = complete_setting("memor")  # one part: all its choices and fields
    assert {"memory=fifo", "memory.budget=0.5"} <= set(one)


def test_studies_and_names() -> None:
    assert "sfedpo-table-1" in complete_study("sfedpo-t")
    assert complete_name("reserv") == ["reservoir"]


def test_shell_completion_imports_no_large_package() -> None:
    code = (
        "import sys\n"
        "from thalweg.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'scipy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(thalweg.__file__).parents[1]),
        "_THALWEG_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": "thalweg run sfedpo --on digits-par",
    }
    start = "import sys; sys.argv = ['thalweg']\n"
    done = subprocess.run(
        [sys.executable, "-c", start + code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "digits-partial" in done.stdout


def test_words_that_bash_splits_at_equals_are_joined() -> None:
    assert join_words(["--set=", "memory"]) == ["--set=memory"]
    assert join_words(["a", "=", "1", "--set", "b", "="]) == ["a=1", "--set", "b="]
    assert join_words(["a", "=", ""]) == ["a=", ""]  # a space follows


def type_in_bash(folder: Path, line: str, expected: str) -> str:
    """Type a line and the tab key in an interactive bash; return the terminal's output."""
    program = folder / "thalweg"
    program.write_text(f"#!{sys.executable}\nfrom thalweg.cli.main import main\nmain()\n")
    program.chmod(0o755)
    script = folder / "rc"
    script.write_text('PS1="ready "\neval "$(env _THALWEG_COMPLETE=source_bash thalweg)"\n')
    source = str(Path(thalweg.__file__).parents[1])
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": source,
        "TERM": "dumb",
    }
    terminal, other_end = pty.openpty()
    with subprocess.Popen(
        ["bash", "--noprofile", "--rcfile", str(script), "-i"],
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        env=environment,
        start_new_session=True,
    ) as bash:
        output, is_typed, end = "", False, time.monotonic() + 60
        while time.monotonic() < end and not (is_typed and expected in output):
            if select.select([terminal], [], [], 0.1)[0]:
                output += os.read(terminal, 4096).decode()
            if "ready " in output and not is_typed:
                os.write(terminal, f"{line}\t".encode())
                is_typed = True
        bash.kill()
    os.close(terminal)
    os.close(other_end)
    return output


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    "line, expected",
    [
        ("thalweg run sfedpo --set memory.kind=fi", "memory.kind=fifo "),
        pytest.param(
            "thalweg compare fedavg,memory=fi", "fedavg,memory=fifo ", marks=pytest.mark.slow
        ),
        pytest.param(
            "thalweg run sfedpo --set=memory=fi", "--set=memory=fifo ", marks=pytest.mark.slow
        ),
    ],
)
def test_bash_completes_after_an_equals_sign(tmp_path: Path, line: str, expected: str) -> None:
    assert expected in type_in_bash(tmp_path, line, expected)
