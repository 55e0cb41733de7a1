"""Fixtures with small comparisons."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from thalweg.report import Cell


def make_cell(recipe: str = "sfedpo", seed: int = 0, accuracy: float = 0.5, **changes: Any) -> Cell:
    """Return a run of four rounds with half of `accuracy` in round 2 and `accuracy` in round 4."""
    rows: list[Mapping[str, Any]] = [
        {"round": 1, "prequential_accuracy": 0.25, "bytes_up": 10**6, "bytes_down": 2 * 10**6},
        {"round": 2, "accuracy": accuracy / 2, "worst_state_accuracy": accuracy / 4},
        {"round": 3, "prequential_accuracy": 0.75, "bytes_up": 10**6, "bytes_down": 10**6},
        {
            "round": 4,
            "accuracy": accuracy,
            "state_accuracy": accuracy,
            "worst_state_accuracy": accuracy / 2,
        },
    ]
    fields: dict[str, Any] = {
        "recipe": recipe,
        "scenario": "digits-full",
        "seed": seed,
        "status": "done",
        "reason": "",
        "rows": rows,
        "command": f"thalweg run {recipe} --on digits-full --seed {seed}",
        "seconds": 2.0,
    }
    return Cell(**(fields | changes))


@pytest.fixture
def cell() -> Callable[..., Cell]:
    return make_cell


@pytest.fixture
def comparison() -> list[Cell]:
    """Two recipes, three seeds; fedavg is 1, 2 and 3 points behind."""
    best = [make_cell("sfedpo", seed, 0.80 + 0.02 * seed) for seed in range(3)]
    other = [make_cell("fedavg", seed, 0.79 + 0.01 * seed) for seed in range(3)]
    return best + other


@pytest.fixture
def unfinished_cells() -> list[Cell]:
    """A finished run of one recipe, and a failed, an interrupted and a missing run of another."""
    rows = make_cell().rows[:2]
    return [
        make_cell("sfedpo", 0, 0.8),
        make_cell("fedogd", 0, status="failed", reason="the loss is nan\nin round 3", rows=rows),
        make_cell("fedogd", 1, status="interrupted", reason="", rows=rows),
        make_cell("fedogd", 2, status="missing", rows=[], seconds=0.0),
    ]
