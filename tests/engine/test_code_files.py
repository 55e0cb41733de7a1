"""Code files that a plan names: found without an import, rejected if others can change them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from thalweg.core.errors import ConfigError
from thalweg.engine.code_files import TRUST_CODE, list_code_files
from thalweg.engine.plan import make_plan, plan_to_toml, read_any_plan, read_plain_plan, read_plan
from thalweg.engine.run_folder import RunFolder

CODE = """
from dataclasses import dataclass
from pathlib import Path
from thalweg.memory import Replace

(Path(__file__).parent / "imported").touch()

@dataclass(frozen=True)
class Recent(Replace):
    pass
"""


class Run:
    """A run folder whose plan names a class of a file outside of the folder."""

    def __init__(self, path: Path) -> None:
        self.folder, self.code = path / "run", path / "code/mine.py"
        for folder in (self.folder, self.code.parent):
            folder.mkdir(0o700)
        self.code.write_text(CODE)
        self.code.chmod(0o644)
        self.write_plan(self.code)

    @property
    def plan(self) -> Path:
        return self.folder / "plan.toml"

    @property
    def is_imported(self) -> bool:
        return (self.code.parent / "imported").exists()

    def write_plan(self, code: Path) -> None:
        self.plan.write_text(plan_to_toml(make_plan("fedavg", "digits-partial", rounds=1)))
        plain, _ = read_plain_plan(self.folder)
        plain["recipe"]["memory"] = {"kind": f"{code}:Recent"}
        self.plan.write_text(tomli_w.dumps(plain))
        self.plan.chmod(0o644)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv(TRUST_CODE, raising=False)
    return Run(tmp_path)


def test_files_are_found_in_all_texts_of_a_plan(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(run.code)
    for text in (f"{path}:Net", f"gain={path}:f:higher", f"a=1,b={path}:f", f"x {path}:f"):
        assert list_code_files({"a": [{"b": text}]}) == [run.code], text
    monkeypatch.chdir(run.code.parent)
    assert list_code_files("mine.py:Net") == [run.code]
    for text in ("torch.nn:Linear", "other.py:Net", "mine.py", "mqtt://host/a.py:b", "a\0.py:b"):
        assert list_code_files({"a": text, "b": 3, "c": None}) == [], text


def test_own_code_is_imported(run: Run) -> None:
    assert type(read_plan(run.folder).recipe.memory).__name__ == "Recent"
    assert run.is_imported


def test_group_may_write_because_many_users_have_a_group_of_their_own(run: Run) -> None:
    run.code.chmod(0o664)
    run.folder.chmod(0o775)
    read_any_plan(run.plan)
    assert run.is_imported


@pytest.mark.parametrize("read", [read_plan, read_any_plan])
@pytest.mark.parametrize("changed", ["code", "folder of the code", "plan", "run folder"])
@pytest.mark.parametrize("change", ["mode", "owner"])
def test_code_is_not_imported_if_others_can_change_it_or_its_plan(
    read: Callable[[Path], Any],
    changed: str,
    change: str,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = {"code": run.code, "folder of the code": run.code.parent}
    paths |= {"plan": run.plan, "run folder": run.folder}
    path = paths[changed]
    if change == "mode":
        path.chmod(0o777)
        reason = f"every user can write to {path}"
    else:
        reason = f"{path} belongs to another user"
        pretend_owner(path, monkeypatch)
    with pytest.raises(ConfigError) as caught:
        read(run.folder)
    assert f"names code that would be imported, {run.code}, but {reason}" in str(caught.value)
    assert f"set {TRUST_CODE}=1" in str(caught.value)
    assert not run.is_imported
    monkeypatch.setenv(TRUST_CODE, "1")
    read(run.folder)
    assert run.is_imported


def pretend_owner(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file or folder belong to another user."""
    original, fake = Path.stat, os.getuid() + 1

    def get_status(self: Path, **options: Any) -> os.stat_result:
        status = original(self, **options)
        values = list(status)
        return os.stat_result([*values[:4], fake, *values[5:]]) if self == path else status

    monkeypatch.setattr(Path, "stat", get_status)


def test_code_in_the_run_folder_is_not_imported(run: Run) -> None:
    """Such as that of an archive, whose files belong to the user who unpacks it."""
    inside = run.folder / "net.py"
    inside.write_text(CODE)
    run.write_plan(inside)
    with pytest.raises(ConfigError, match="this file is in the run folder, to which thalweg"):
        read_plan(run.folder)
    assert not (run.folder / "imported").exists()


def test_resuming_a_folder_with_another_plan_does_not_import_its_code(run: Run) -> None:
    run.folder.chmod(0o777)
    own = make_plan("fedavg", "digits-partial", rounds=1)
    with pytest.raises(ConfigError, match="every user can write to"):
        RunFolder(run.folder).open(own, command="", resume=True)
    assert not run.is_imported


def test_plan_without_code_may_belong_to_others(run: Run) -> None:
    run.plan.write_text(plan_to_toml(make_plan("fedavg", "digits-partial", rounds=1)))
    run.folder.chmod(0o777)
    assert read_plan(run.folder).recipe.name == "fedavg"
