"""What every state promises: a checkpoint restores it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from thalweg.core.trees import Tree, read_tree, restore_types, write_tree


def round_trip(state: Tree, fresh: Tree) -> Tree:
    """The state after a trip to the disk; a fresh one shows which types it had."""
    with TemporaryDirectory() as folder:
        write_tree(Path(folder) / "state", state)
        return restore_types(fresh, read_tree(Path(folder) / "state"))


def to_comparable(value: Any) -> Any:
    """The value with types spelled out and lists for arrays, so that ``==`` compares all of it."""
    if isinstance(value, np.ndarray):
        return (value.dtype.name, value.shape, value.tobytes())
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, [to_comparable(part) for part in value])
    if isinstance(value, dict):
        return {key: to_comparable(part) for key, part in value.items()}
    return value
