"""Plans from other machines: they name only what is registered, and open or import nothing."""

from __future__ import annotations

import dataclasses
import re
import tomllib
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest
import tomli_w

from thalweg.baselines import Baseline, Majority
from thalweg.core.config import choice, from_dict, to_dict
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.core.registry import (
    NAME,
    NotRegistered,
    Registry,
    TooLarge,
    holds_text,
    local_object,
    local_path,
    make_name,
    plain_options,
    plain_text,
    registered_name,
)
from thalweg.engine.plan import Plan
from thalweg.recipes import RECIPES, Recipe, get_recipe
from thalweg.scenarios import SCENARIOS, Scenario, find_scenario


@dataclass(frozen=True)
class Inner:
    path: str = local_path(default="")
    size: int = 3


@dataclass(frozen=True)
class Outer:
    name: str = plain_text(default="a")
    word: str = registered_name(lambda: ["one", "two"], default="one")
    function: str = local_object(default="")
    options: dict[str, Any] = plain_options(default_factory=dict)
    pairs: str = plain_options(default="")
    undeclared: str = "x"
    shape: Literal["linear", "square"] = "linear"
    hidden: Any = field(default=None, metadata={"in_plan": False})
    seed: int = field(default=0, metadata={"any_number": True})
    sizes: tuple[int, ...] = (1, 2)
    inner: Inner = Inner()
    part: Any = choice({"inner": Inner}, default=Inner())


@pytest.mark.parametrize(
    "plain",
    [
        {"name": "any label: a/b"},
        {"word": "two"},
        {"options": {"a": 1, "b": [0.5, True], "c": "none"}},
        {"pairs": "a=1,b=0.5;c=true"},
        {"undeclared": "x"},
        {"function": ""},
        {"shape": "square"},
        {"seed": 2**60},
        {"inner": {"path": "", "size": 9}},
        {"part": {"kind": "inner", "size": 1_000_000}},
    ],
)
def test_registered_values_are_read_as_in_a_plan_of_this_machine(plain: dict[str, Any]) -> None:
    assert from_dict(Outer, plain, registry=Registry()) == from_dict(Outer, plain)


@pytest.mark.parametrize(
    "plain",
    [
        {"name": "two\nlines"},
        {"name": "\x1b[2J"},
        {"name": "a" * 201},
        {"word": "three"},
        {"word": "os:system"},
        {"function": "os:system"},
        {"function": "file"},
        {"options": {"a": "text"}},
        {"options": {"a": {"b": 1}}},
        {"pairs": "a=/etc/passwd"},
        {"undeclared": "y"},
        {"hidden": "x"},
        {"inner": {"path": "/etc/passwd"}},
        {"part": {"kind": "inner", "path": "/etc/passwd"}},
        {"part": {"kind": "this:a b"}},
        {"part": "this:a b"},
    ],
)
def test_text_that_names_something_is_rejected(plain: dict[str, Any]) -> None:
    with pytest.raises(NotRegistered):
        from_dict(Outer, plain, registry=Registry())


@pytest.mark.parametrize(
    "plain", [{"sizes": [1, 1_000_001]}, {"inner": {"size": -(10**12)}}, {"options": {"a": 10**9}}]
)
def test_large_numbers_are_rejected(plain: dict[str, Any]) -> None:
    with pytest.raises(TooLarge, match="at most 1000000"):
        from_dict(Outer, plain, registry=Registry())


def test_unknown_kind_is_rejected_by_name() -> None:
    with pytest.raises(UnknownName, match="iner"):
        from_dict(Outer, {"part": {"kind": "iner"}}, registry=Registry())


def test_no_file_that_the_plan_names_is_imported(tmp_path: Path) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text("raise SystemExit('it was run')")
    for kind in (f"{evil}:a b", f"{evil}:Mine", f"{evil}", f"{evil}:"):
        with pytest.raises(ConfigError):
            from_dict(Outer, {"part": {"kind": kind}}, registry=Registry())


def test_objects_of_the_owner_are_found_by_their_name(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "import dataclasses\n\n\n@dataclasses.dataclass(frozen=True)\nclass Mine:\n    n: int = 2\n"
    )
    registry = Registry.from_paths([f"{own}:Mine"])
    outer = from_dict(
        Outer,
        {"part": {"kind": "/no/such/file.py:Mine", "n": 5}, "function": "elsewhere:Mine"},
        registry=registry,
    )
    assert (type(outer.part).__name__, outer.part.n) == ("Mine", 5)
    assert outer.function == f"{own}:Mine"


def test_registry_rejects_wrong_paths_and_equal_names() -> None:
    for path in ("file.py", "file.py:a b"):
        with pytest.raises(ConfigError, match=r"expected file\.py:NAME"):
            Registry.from_paths([path])
    with pytest.raises(ConfigError, match="two objects have the name Mine"):
        Registry.from_paths(["a.py:Mine", "b.py:Mine"])


# --- all components of a plan ---


def walk_fields(cls: type[Any], seen: set[type[Any]]) -> Iterator[tuple[type[Any], Any, Any]]:
    """Yield all fields that a plan can set, at any depth, with their classes and types."""
    if cls in seen:
        return
    seen.add(cls)
    hints = typing.get_type_hints(cls)
    for each in dataclasses.fields(cls):
        hint, table = hints[each.name], each.metadata.get("table")
        if not each.metadata.get("in_plan", True):
            continue
        inner = [part for part in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(part)]
        if table is not None:
            for component in table.values():
                yield from walk_fields(component, seen)
        elif inner:
            yield from walk_fields(typing.cast("type[Any]", inner[0]), seen)
        else:
            yield cls, each, hint


def is_unreachable(cls: type[Any]) -> bool:
    """Return whether a plan from another machine can never contain the component."""
    return any(
        each.metadata.get("meaning") == "path"
        and each.default is dataclasses.MISSING
        and each.default_factory is dataclasses.MISSING
        for each in dataclasses.fields(cls)
    )


def test_all_text_in_plans_is_declared() -> None:
    """A new field with text needs a declaration of `thalweg.core.registry`, or a Literal."""
    seen: set[type[Any]] = set()
    undeclared = [
        f"{cls.__name__}.{each.name}"
        for cls, each, hint in walk_fields(Plan, seen)
        if holds_text(hint) and "meaning" not in each.metadata and not is_unreachable(cls)
    ]
    assert undeclared == []
    assert len(seen) > 150, "the walk has seen all components"


def test_no_text_of_a_component_opens_or_imports_a_file(tmp_path: Path) -> None:
    """Each text field of each component gets the path of a file that must not be run."""
    evil = tmp_path / "evil.py"
    evil.write_text("raise SystemExit('it was run')")
    tried = 0
    for cls, each, hint in walk_fields(Plan, set()):
        if not holds_text(hint) or each.metadata.get("meaning") == "text":
            continue
        for value in (f"{evil}:a", f"{evil}:a b", str(evil), [f"{evil}:a"], {"a": f"{evil}:a"}):
            tried += 1
            with pytest.raises(ConfigError):
                from_dict(cls, {each.name: value}, registry=Registry())
    assert tried > 100


def test_text_that_is_opened_or_imported_is_declared_as_local() -> None:
    expected = {
        "Module.path": "object",
        "LossFunction.path": "object",
        "Scenario.metrics": "object",
        "Scenario.start_from": "path",
        "Trace.path": "path",
        "DriftTable.path": "path",
        "Arrays.path": "path",
        "ArrayFolder.path": "path",
        "Table.path": "path",
        "HuggingFace.name": "path",
    }
    found = {
        f"{cls.__name__}.{each.name}": each.metadata.get("meaning")
        for cls, each, _ in walk_fields(Plan, set())
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_published_recipes_can_be_received(name: str) -> None:
    recipe = get_recipe(name)
    assert from_dict(Recipe, as_received(recipe), registry=Registry()) == recipe


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_built_in_scenarios_can_be_received(name: str) -> None:
    scenario = SCENARIOS[name]()
    assert from_dict(Scenario, as_received(scenario), registry=Registry()) == scenario


def test_components_with_their_defaults_can_be_received() -> None:
    seen: set[type[Any]] = set()
    list(walk_fields(Plan, seen))
    received = 0
    for cls in seen:
        try:
            part = cls()
        except (TypeError, ConfigError):  # it needs values
            continue
        assert from_dict(cls, as_received(part), registry=Registry()) == part
        received += 1
    assert received > 120


def as_received(part: Any) -> dict[str, Any]:
    """Return a component as a device reads it from the text of a plan."""
    return tomllib.loads(tomli_w.dumps(to_dict(part)))


@pytest.mark.parametrize(
    "name", ["../../esc/x", "a/b", "a\\b", ".hidden", "", " a", 'a"b', "a\nb", "a" * 101]
)
def test_names_that_are_not_safe_in_folders_are_rejected(name: str) -> None:
    """The default run folder and the files of a Flower project contain these names."""
    scenario = find_scenario("digits-partial")
    for part in (get_recipe("fedavg"), Baseline("majority", Majority()), scenario):
        with pytest.raises(ConfigError, match="name: expected 1 to 100 characters"):
            replace(part, name=name)
    assert re.fullmatch(NAME, make_name(name))


def test_scenario_of_a_file_has_a_name_that_is_safe_in_folders() -> None:
    assert find_scenario('my "sales" (1), Müller.csv').name == "my -sales- (1), Müller"
    assert find_scenario("..csv.csv").name == "csv"
