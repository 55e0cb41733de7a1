"""Whole numbers of a plan have upper bounds, so that no value makes a run hang."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from thalweg.core.config import UPPER_BOUNDS, check_ranges
from thalweg.core.errors import ConfigError, ThalwegError
from thalweg.data.base import Dataset
from thalweg.engine.plan import BaselinePlan, Plan, make_plan

HUGE = 2**63 - 1

# Fields whose value neither takes memory nor time: numbers of rounds that are only compared, seeds,
# checksums, and arrays that have been read.
FREE = {
    ("Sudden", "at"),
    ("Gradual", "start"),
    ("Gradual", "until"),
    ("Staggered", "at"),
    ("Staggered", "lag"),
    ("DriftTable", "lines"),
    ("View", "labels"),
    ("InMemory", "rows"),
    ("InMemory", "checksum"),
    ("Masked", "min_clients"),
    ("Plan", "seed"),
    ("BaselinePlan", "seed"),
}
# What else an instance needs.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Alternating": {"lengths": (1, 1)},
    "LocalTraining": {"steps": 1},
}


def iter_classes(cls: type, seen: set[type]) -> Iterator[type]:
    """Yield a dataclass and all registered classes of its fields."""
    if cls in seen or not dataclasses.is_dataclass(cls) or cls is Dataset:
        return
    seen.add(cls)
    yield cls
    for name, hint in typing.get_type_hints(cls).items():
        field = next((each for each in dataclasses.fields(cls) if each.name == name), None)
        if field is None:
            continue
        found = [*(field.metadata.get("table") or {}).values(), hint, *typing.get_args(hint)]
        for each in found:
            if isinstance(each, type):
                yield from iter_classes(each, seen)


def has_int(hint: Any) -> bool:
    return hint is int or any(has_int(each) for each in typing.get_args(hint))


def make_huge(hint: Any, value: Any) -> Any:
    """A huge number in the form of the field: a number, or a tuple with one huge number."""
    if hint is int or (int in typing.get_args(hint) and typing.get_origin(hint) is not tuple):
        return HUGE
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return (*value[:-1], (*value[-1][:-1], HUGE))
    return (*value[:-1], HUGE) if value else (HUGE,)


def list_fields() -> list[tuple[type, str, Any]]:
    seen: set[type] = set()
    classes = [*iter_classes(Plan, seen), *iter_classes(BaselinePlan, seen)]
    return [
        (cls, field.name, typing.get_type_hints(cls)[field.name])
        for cls in classes
        for field in dataclasses.fields(cls)
        if has_int(typing.get_type_hints(cls)[field.name])
        and (cls.__name__, field.name) not in FREE
    ]


def make_instance(cls: type) -> Any:
    required = {
        field.name: {"str": "x", "float": 0.5, "int": 1}.get(str(field.type), "x.npz")
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
        and field.init
    }
    if cls.__name__ == "Scenario":
        return make_plan("fedavg", "digits-partial").scenario
    return cls(**(required | ARGUMENTS.get(cls.__name__, {})))


def test_walk_finds_the_fields_of_all_parts_of_a_plan() -> None:
    found = {(cls.__name__, name) for cls, name, _ in list_fields()}
    assert {("Scenario", "capacity"), ("Replay", "arrivals"), ("LocalTraining", "steps")} <= found
    assert {("Mlp", "hidden"), ("Reset", "session"), ("FedDrift", "max_models")} <= found
    assert len(found) > 100


@pytest.mark.parametrize(
    ("cls", "name", "hint"),
    [pytest.param(*each, id=".".join((each[0].__name__, each[1]))) for each in list_fields()],
)
def test_huge_whole_number_is_rejected(cls: type, name: str, hint: Any) -> None:
    part = make_instance(cls)
    huge = make_huge(hint, getattr(part, name))
    with pytest.raises(ThalwegError, match=r"at most|exceed|below|lie|needs|not be"):
        dataclasses.replace(part, **{name: huge})


@pytest.mark.parametrize(
    "override",
    [
        "world.arrivals=9223372036854775807",
        "capacity=1000000000000",
        "world.num_clients=1000000000000",
        "rounds=1000000000000",
        "ticks=1000000000000",
        "local.passes=1e300",
        "net.hidden=1000000000000",
    ],
)
def test_values_that_hang_are_rejected_with_the_bound(override: str) -> None:
    with pytest.raises(ConfigError, match=r"at most [\d,]+.*got"):
        make_plan("fedavg", "digits-partial", overrides=["net=mlp", override])


@pytest.mark.parametrize("override", ["local.weight_decay=1e300", "local.lr=1e39"])
def test_numbers_that_overflow_in_float32_are_rejected(override: str) -> None:
    with pytest.raises(ConfigError, match=r"must be at most 1e\+30, got 1e"):
        make_plan("fedavg", "digits-partial", overrides=[override])


@dataclass(frozen=True)
class Example:
    clients: int = 1
    models: int | None = None
    ratio: float = 1.0

    def __post_init__(self) -> None:
        check_ranges(self, clients="[1, CLIENTS]", models="[2, inf) or none", ratio="(0, inf)")


def test_bounds_are_named_or_those_of_counts() -> None:
    assert Example(UPPER_BOUNDS["CLIENTS"], UPPER_BOUNDS["COUNT"], 1e30).ratio == 1e30
    with pytest.raises(ConfigError, match=r"^ratio must be at most 1e\+30, got 1e\+300\.$"):
        Example(ratio=1e300)
    with pytest.raises(ConfigError, match=r"^ratio must be positive and finite, got inf\.$"):
        Example(ratio=math.inf)
    with pytest.raises(ConfigError, match=r"^clients must be at most 1,000,000, got 1000001\.$"):
        Example(1_000_001)
    with pytest.raises(ConfigError, match=r"^clients must be at least 1, got 0\.$"):
        Example(0)
    with pytest.raises(ConfigError, match=r"^models must be at most 10,000,000, got 10000001\.$"):
        Example(models=10_000_001)
    with pytest.raises(ConfigError, match=r"^models must be at least 2, or none, got 1\.$"):
        Example(models=1)
    with pytest.raises(ConfigError, match=r"^clients must be at least 1, got nan\.$"):
        Example(float("nan"))  # type: ignore[arg-type]
