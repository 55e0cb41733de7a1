"""Commands on a run folder that names code: `show` imports nothing, others name the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import tomli_w

from thalweg.engine.plan import make_plan, plan_to_toml, read_plain_plan

Command = Callable[..., CompletedProcess[str]]
CODE = """
from pathlib import Path
from torch import nn

Path(__file__).with_name("imported").touch()

def make_net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""
NAMES: dict[str, tuple[str, str, Any]] = {
    "net": ("scenario", "net", {"kind": "module", "path": "code/mine.py:make_net"}),
    "loss": ("scenario", "loss", {"kind": "function", "path": "code/mine.py:loss"}),
    "metric": ("scenario", "metrics", ["gain=code/mine.py:gain:higher"]),
    "memory": ("recipe", "memory", {"kind": "code/mine.py:Recent"}),
    "module": ("recipe", "memory", {"kind": "mine:Recent"}),
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir(0o700)
    (folder / "mine.py").write_text(CODE)
    return folder / "mine.py"


@pytest.mark.parametrize("name", NAMES)
def test_show_does_not_import_the_code_of_a_folder(
    name: str, code: Path, thalweg: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(code.parent))
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "plan.toml").write_text(plan_to_toml(make_plan("fedavg", "digits-partial", rounds=1)))
    plain, _ = read_plain_plan(folder)
    part, field, value = NAMES[name]
    plain[part][field] = value
    (folder / "plan.toml").write_text(tomli_w.dumps(plain))
    shown = thalweg("show", "foreign")
    assert shown.returncode == 0, shown.stderr
    assert "mine" in shown.stdout
    assert 'name = "digits-partial"' in shown.stdout
    assert not code.with_name("imported").exists()
    is_summary = name in ("net", "metric")
    assert ("without a summary" in shown.stdout) == (not is_summary)


def test_commands_name_the_code_that_they_import(
    code: Path, thalweg: Command, tmp_path: Path
) -> None:
    small = ["--set", "ticks=2", "--set", "world.num_clients=2", "--rounds", "1"]
    trained = thalweg(
        *("run", "fedavg", "--on", "digits-partial", "--model", "code/mine.py:make_net"),
        *("--out", "run", *small),
    )
    assert trained.returncode == 0, trained.stderr
    assert "imports" not in trained.stderr, "the user has named the file"
    note = f"note: run imports {code}"
    assert note in thalweg("export", "run", "--to", "model.safetensors").stderr
    assert note in thalweg("run", "run", "--resume").stderr
    code.chmod(0o666)
    for words in (("run", "run", "--resume"), ("export", "run", "--to", "again.safetensors")):
        refused = thalweg(*words)
        assert refused.returncode != 0
        assert f"every user can write to {code}" in " ".join(refused.stderr.split())
    assert not (tmp_path / "again.safetensors").exists()
