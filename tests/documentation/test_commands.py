"""Every command on the pages can be planned. The tests stop each command before it runs."""

from __future__ import annotations

import doctest
import importlib
import itertools
import re
import shlex
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from documentation.pages import PAGES, ROOT, blocks, commands, spans
from thalweg.baselines import BASELINES
from thalweg.cli.catalogue import PARTS
from thalweg.cli.init import write_example
from thalweg.cli.main import app
from thalweg.core.errors import ThalwegError
from thalweg.engine.plan import AnyPlan, make_any_plan, make_plan, plan_to_toml
from thalweg.engine.trackers import TRACKERS
from thalweg.recipes import RECIPES
from thalweg.scenarios import SCENARIOS, Scenario
from thalweg.streams import Replay

KNOWN = {command.name or command.callback.__name__ for command in app.registered_commands}  # type: ignore[union-attr]
# The functions that start a run, a comparison or a study.
STARTS = (
    "thalweg.cli.doctor.describe_machine",  # before run, from which it imports functions
    "thalweg.cli.run.load_data",
    "thalweg.cli.compare.load_data",
    "thalweg.report.comparison.run_cells",
    "thalweg.cli.reproduce.connect_cluster",
    "thalweg.cli.reproduce.run_study",
    "thalweg.cli.explain.explain_command",
    "thalweg.cli.gap.gap_command",
    "thalweg.cli.variability.variability_command",
    "thalweg.cli.states.latent_states",
    "thalweg.cli.serve.check_safe",
    "thalweg.cli.join.check_safe",
    "thalweg.cli.certs.make_certs",
    "thalweg.cli.flower_app.write_project",
    "thalweg.cli.init.write_example",
    "thalweg.cli.export.load_run",
    "thalweg.cli.predict.load_run",
)
PLACEHOLDERS = {
    "NAME": "dds",
    "FOLDER": "runs/some",
    "STUDY": "dpcs-table-1",
    "runs/pumps": "runs/some",
    "RUN_FOLDER": "runs/some",
    "plan.toml": "runs/some/plan.toml",
}
SOURCES = {
    **{str(page.relative_to(ROOT)): commands(page) for page in PAGES},
    "thalweg --help": re.findall(
        r"^    (thalweg \w.*)$", (ROOT / "src/thalweg/cli/main.py").read_text(), re.M
    ),
    "examples": [
        line.strip()
        for file in sorted((ROOT / "examples").glob("*.py"))
        for line in file.read_text().replace("\\\n", " ").splitlines()
        if line.strip().startswith("thalweg ")
    ],
}
# Each command once, with the first page that shows it.
COMMANDS = {line: where for where, lines in reversed(SOURCES.items()) for line in lines}


def overrides_in(text: str) -> tuple[str, ...]:
    """Return the ``name=value`` parts of --set options, without placeholders and own classes."""
    found = re.findall(r"--set (\S+=\S*)", text)
    found = [each for each in found if not re.search(r"=([A-Z]+|\.\.\.|<.*>)$", each)]
    return tuple(each for each in found if ".py:" not in each and "{" not in each)


# Docstrings contain --set, too; `thalweg show` prints them.
SETTINGS = {
    overrides_in(span): str(file.relative_to(ROOT))
    for file in [*PAGES, *sorted((ROOT / "src").rglob("*.py"))]
    for span in (
        spans(file)
        if file.suffix == ".md"
        else re.findall(r"``([^`]*--set [^`]*)``", file.read_text())
    )
    if "--set " in span
}


class Planned(Exception):
    """Raised where a command would start to run."""


def stop(*_: Any, **__: Any) -> NoReturn:
    raise Planned


# The modules that make plans. Many commands make the same plans.
PLANNERS = ("thalweg.cli.run", "thalweg.report.comparison", "thalweg.report.study_cells")


@cache
def make_plan_once(recipe: str, scenario: str, *options: tuple[str, Any]) -> AnyPlan:
    return make_any_plan(recipe, scenario, **dict(options))


def make_cached_plan(recipe: str, scenario: str, **options: Any) -> AnyPlan:
    options["overrides"] = tuple(options.get("overrides", ()))
    return make_plan_once(recipe, scenario, *sorted(options.items()))


def choose_sizes(scenario: Scenario, *_: Any) -> Scenario:
    """Choose sizes that follow from the data, which the reader has and this test does not."""
    is_replay = isinstance(scenario.world, Replay)
    world = replace(scenario.world, arrivals=1) if is_replay else scenario.world
    return replace(scenario, rounds=scenario.rounds or 1, world=world)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages tell the reader to write."""
    tmp_path = tmp_path_factory.mktemp("reader")
    write_example(tmp_path)
    (tmp_path / "clean.csv").write_text((tmp_path / "pumps.csv").read_text())
    (tmp_path / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    balanced = next(body for body in blocks(ROOT / "CONTRIBUTING.md", "python"))
    (tmp_path / "src/thalweg/memory").mkdir(parents=True)
    (tmp_path / "src/thalweg/memory/newest_per_class.py").write_text(balanced)
    study = doctest.DocTestParser().get_examples(blocks(ROOT / "docs/reproduce.md", "python")[0])
    own = "".join(example.source for example in study)
    (tmp_path / "mine.py").write_text(f"{balanced}\n\nMyMemory = NewestPerClass\n\n{own}")
    (tmp_path / "runs/some").mkdir(parents=True)
    plan = make_plan("sfedpo", "digits-partial")
    (tmp_path / "runs/some/plan.toml").write_text(plan_to_toml(plan))
    return tmp_path


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Change to the reader's folder; stop all runs and cache all plans."""
    monkeypatch.chdir(folder)
    for function in STARTS:  # all before the first is replaced: modules import them by name
        importlib.import_module(function.rpartition(".")[0])
    for function in STARTS:
        monkeypatch.setattr(function, stop)
    for library in TRACKERS:
        monkeypatch.setitem(sys.modules, library, ModuleType(library))
    monkeypatch.setattr("thalweg.engine.plan.resolve_sizes", choose_sizes)
    for module in PLANNERS:
        monkeypatch.setattr(f"{module}.make_any_plan", make_cached_plan)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_command_can_be_planned(command: str) -> None:
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(command, comments=True)[1:]]
    if len(words) == 1 and words != ["list"]:  # the page only mentions it
        assert words[0] in KNOWN or words[0].startswith("--")
        return
    is_plan = any(word.endswith("plan.toml") for word in words)
    if (
        words[0] == "run" and not is_plan and not {"--on", "--resume"} & set(words)
    ):  # any scenario will do
        words += ["--on", "digits-partial"]
    try:
        done = CliRunner().invoke(app, words, catch_exceptions=False)
    except Planned:
        assert words[0] not in ("list", "show")
    else:
        assert words[0] in ("list", "show") or {"--show", "--status"} & set(words)
        assert done.exit_code == 0, done.output


@cache
def is_accepted(overrides: tuple[str, ...], table: str) -> bool:
    """Does some recipe on some scenario or on a user's table accept all of these settings?"""
    parts = {each.partition("=")[0].partition(".")[0] for each in overrides}
    kinds = [f"{part}={kind}" for part in sorted(parts & PARTS.keys()) for kind in PARTS[part]]
    tries = [("sfedpo", "digits-partial", overrides)]  # the usual case first
    tries += [("sfedpo", "digits-partial", (kind, *overrides)) for kind in kinds]
    columns = ("data.label=state", "data.client=pump", "data.time=time", "data.drop=cost")
    tries += [("fedavg", table, (*columns, *overrides)), ("fedavg", table, overrides)]
    tries += [("fedavg", "river:SEA", overrides)]
    tries += [(recipe, "digits-partial", overrides) for recipe in RECIPES]
    tries += [("sfedpo", scenario, overrides) for scenario in SCENARIOS]
    tries += [(name, "digits-partial", overrides) for name in BASELINES]
    tries += [("majority", "digits-partial", (kind, *overrides)) for kind in kinds]
    tries += [(*names, overrides) for names in itertools.product(RECIPES, SCENARIOS)]
    tries += [(name, scenario, overrides) for name in BASELINES for scenario in SCENARIOS]
    for recipe, scenario, changes in tries:
        try:
            make_any_plan(recipe, scenario, overrides=changes)
        except ThalwegError:
            continue
        return True
    return False


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("overrides", sorted(SETTINGS), ids=" ".join)
def test_settings_on_a_page_are_accepted(overrides: tuple[str, ...], folder: Path) -> None:
    assert is_accepted(overrides, str(folder / "pumps.csv")), SETTINGS[overrides]


def test_wrong_commands_and_settings_are_rejected(place: None, folder: Path) -> None:
    for command in (
        "thalweg run sfedop --on digits-partial",
        "thalweg run sfedpo --on digits-partial --set memory.budgets=1",
        "thalweg run sfedpo --on digits-partial --sed 7",
        "thalweg compare sfedpo sfedpo,weights=equals --on digits-partial",
        "thalweg reproduce sfedpo-table-0",
        "thalweg run sfedpo --on digits-partial --track tensorbord",
        "thalweg tune sfedpo --on digits-partial --over local.lr=fast,slow",
    ):
        with pytest.raises((ThalwegError, AssertionError)):
            test_command_can_be_planned(command)
    assert not is_accepted(("memory.budgets=1",), str(folder / "pumps.csv"))
    assert any("dpcs" in line for line in COMMANDS), "the pages contain commands"
