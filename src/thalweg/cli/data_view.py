"""User data in the plan: features, target, split, passes over the rows, memory and warnings."""

from __future__ import annotations

import numpy as np

from thalweg.core.remedies import format_setting
from thalweg.core.types import Ints
from thalweg.data import Dataset, Table
from thalweg.data.checks import find_problems
from thalweg.scenarios import Scenario
from thalweg.streams import Replay
from thalweg.streams.replay import DEFAULT_CLIENTS

MAX_NAMES = 8  # names of features, classes or clients that are shown


def describe_data(scenario: Scenario, data: Dataset) -> list[tuple[str, str]]:
    """Return what a user must know about the data of a run, as pairs of a name and a text."""
    lines = [
        ("features", _describe_features(scenario, data)),
        ("target", _describe_target(data)),
        ("split", _describe_split(data)),
    ]
    if isinstance(scenario.world, Replay):
        sizes = _count_rows(scenario.world, data)
        lines += [
            ("clients", _describe_clients(scenario.world, data, sizes)),
            ("passes", _describe_passes(scenario, scenario.world, sizes)),
            ("stored", _describe_memory(scenario, sizes)),
        ]
    return [*lines, *(("warning", problem) for problem in find_problems(data))]


def _describe_features(scenario: Scenario, data: Dataset) -> str:
    if data.is_image:
        size = " x ".join(map(str, data.x.shape[1:]))
        images = f"images of {size} (height, width, channels)"
        if data.index is None:
            return images
        return f"{images}; memory-mapped, {data.x.nbytes / 1e9:.1f} GB; repeats are not checked"
    shape = " x ".join(map(str, data.x.shape[1:]))
    if not data.encoding:
        names = f" ({_shorten(data.columns)})" if data.columns else ""
        return f"{shape} numbers per sample{names}"
    numbers = [column.name for column in data.encoding if not column.categories]
    texts = [
        f"{column.name} ({len(column.categories)} categories)"
        for column in data.encoding
        if column.categories
    ]
    parts = [f"{len(numbers)} numeric ({_shorten(numbers)})"] if numbers else []
    converted = [column.name for column in data.encoding if column.from_text]
    parts += [f"converted from text {_shorten(converted)}"] if converted else []
    parts += [f"text {_shorten(texts)}"] if texts else []
    dropped = scenario.data.drop if isinstance(scenario.data, Table) else ()
    parts += [f"dropped {_shorten(dropped)}"] if dropped else []
    return "; ".join(parts)


def _describe_target(data: Dataset) -> str:
    name = f"{', '.join(data.target_names)}: " if data.target_names else ""
    if data.task == "regression":
        low, high = data.y.min(), data.y.max()
        outputs = f"{data.num_outputs} numbers" if data.num_outputs > 1 else "a number"
        return f"{name}{outputs} from {low:.4g} to {high:.4g} (regression)"
    classes = f" ({_shorten(data.class_names)})" if data.class_names else ""
    share = np.bincount(data.y, minlength=data.num_classes).max() / len(data.y)
    return f"{name}{data.num_classes} classes{classes}; the largest has {share:.0%} of the rows"


def _describe_split(data: Dataset) -> str:
    train, test = len(data.y), len(data.y_test)
    how = {"": "", "given": " (given)"}.get(data.split, f" ({data.split})")
    return f"{train:,} training rows, {test:,} test rows{how}"


def _count_rows(world: Replay, data: Dataset) -> Ints:
    """(N,) training rows of each client."""
    if data.client is not None:
        return np.bincount(data.client)
    parts = np.array_split(np.arange(len(data.y)), world.num_clients or DEFAULT_CLIENTS)
    return np.array([len(part) for part in parts])


def _describe_clients(world: Replay, data: Dataset, sizes: Ints) -> str:
    names = f" ({_shorten(data.client_names)})" if data.client_names else ""
    low, high = int(sizes.min()), int(sizes.max())
    rows = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    unit = "row" if high == 1 else "rows"
    return f"{len(sizes)}{names} with {rows} {unit}{_describe_division(world, data)}"


def _describe_division(world: Replay, data: Dataset) -> str:
    """How rows without a client column became those of clients, and how to change it."""
    if data.client is not None:
        return ""
    how = (
        "rows in turn, so that all clients are at the same time"
        if world.division == "interleaved"
        else "one period each, all at the same time, so that later rows train before earlier rows "
        "are predicted"
    )
    return (
        f" (no client column: {how}; change it with {format_setting('data.client')} or "
        f"{format_setting('world.num_clients', 1)})"
    )


def _describe_passes(scenario: Scenario, world: Replay, sizes: Ints) -> str:
    if world.every is not None:
        return f"rows of {world.every:g} time units arrive per tick; {_ending(world)}"
    present = world.availability if world.absent == "frozen" else 1.0
    arrivals = scenario.rounds * scenario.ticks * world.arrivals * present
    passes = arrivals / max(float(sizes.mean()), 1.0)
    if world.at_end == "stop":
        share = float(np.minimum(sizes, arrivals).sum() / max(sizes.sum(), 1))
        return f"each row arrives at most once; {share:.0%} arrive in {scenario.rounds} rounds"
    return f"each row arrives {passes:.1f} times on average ({_ending(world)})"


def _ending(world: Replay) -> str:
    return "rows are not repeated" if world.at_end == "stop" else "rows repeat: at_end=restart"


def _describe_memory(scenario: Scenario, sizes: Ints) -> str:
    largest = int(sizes.max())
    if scenario.capacity >= largest:
        return f"all rows: a client stores up to {scenario.capacity:,} (capacity)"
    return f"up to {scenario.capacity:,} of a client's {largest:,} rows (capacity)"


def _shorten(names: tuple[str, ...] | list[str]) -> str:
    """The first names, and the number of the others."""
    shown = ", ".join(names[:MAX_NAMES])
    return f"{shown}, ... {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else shown
