"""Contract of states: a checkpoint restores them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from thalweg.core.trees import Tree, read_tree, restore_types, write_tree


def round_trip(state: Tree, fresh: Tree) -> Tree:
    """Write a state, read it back, and restore its types from a new state."""
    with TemporaryDirectory() as folder:
        write_tree(Path(folder) / "state", state)
        return restore_types(fresh, read_tree(Path(folder) / "state"))


def to_comparable(value: Any) -> Any:
    """Convert a value so that ``==`` compares types, shapes and all bits."""
    if isinstance(value, np.ndarray):
        return (value.dtype.name, value.shape, value.tobytes())
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, [to_comparable(part) for part in value])
    if isinstance(value, dict):
        return {key: to_comparable(part) for key, part in value.items()}
    return value
