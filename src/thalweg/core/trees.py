"""States as bytes: trees of plain values and arrays, to and from safetensors.

A *tree* is None, a bool, a number, a string, a NumPy array, or a list, tuple, NamedTuple or
string-keyed dict of trees. That is all a policy may remember, so a checkpoint is one tree, and
reading one back never runs foreign code: there is no pickle anywhere.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from thalweg.core.errors import RunError

Tree = Any  # see the module's first paragraph; recursive aliases only obscure it
Array = npt.NDArray[Any]


def write_tree(path: Path, tree: Tree) -> None:
    """Write a tree under a temporary name and rename it: a reader sees all of it or none of it."""
    chunks: dict[str, list[Array]] = {}
    outline = _outline(tree, chunks, {})
    tensors = {dtype: np.concatenate(parts) for dtype, parts in chunks.items()}
    payload = save(tensors, metadata={"outline": json.dumps(outline, separators=(",", ":"))})
    unfinished = path.with_name(path.name + ".part")
    try:
        unfinished.write_bytes(payload)
        os.replace(unfinished, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise RunError(f"cannot write {path}: {error.strerror}.") from error


def read_tree(path: Path) -> Tree:
    """Read what `write_tree` wrote. Tuples come back as lists; see `like` to restore types."""
    try:
        with safe_open(path, framework="numpy") as file:
            outline = json.loads((file.metadata() or {})["outline"])
            tensors = {dtype: file.get_tensor(dtype) for dtype in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise RunError(f"{path} is not a checkpoint of ours, or is damaged: {error}.") from error
    return _rebuild(outline, tensors)


def like(example: Tree, tree: Tree) -> Tree:
    """Give a tree that was read back the tuple types of an example.

    >>> from typing import NamedTuple
    >>> class Seen(NamedTuple):
    ...     count: int
    >>> like(Seen(0), [12])
    Seen(count=12)
    """
    if isinstance(example, tuple) and isinstance(tree, list):
        if hasattr(example, "_fields"):
            return type(example)(*map(like, example, tree))
        return tuple(map(like, example, tree)) if len(example) == len(tree) else tuple(tree)
    if isinstance(example, list) and isinstance(tree, list) and len(example) == len(tree):
        return list(map(like, example, tree))
    if isinstance(example, dict) and isinstance(tree, dict):
        return {key: like(example.get(key), value) for key, value in tree.items()}
    return tree


def _outline(tree: Tree, chunks: dict[str, list[Array]], filled: dict[str, int]) -> Any:
    """The tree as JSON, with each array replaced by its place in one flat tensor per dtype."""
    if isinstance(tree, np.generic):
        tree = tree.item()
    if isinstance(tree, np.ndarray) and tree.dtype.kind in "biuf":
        dtype = tree.dtype.name
        start = filled.get(dtype, 0)
        chunks.setdefault(dtype, []).append(np.ascontiguousarray(tree).reshape(-1))
        filled[dtype] = start + tree.size
        return {"$": [dtype, start, *tree.shape]}
    if isinstance(tree, (list, tuple)):
        return [_outline(part, chunks, filled) for part in tree]
    if isinstance(tree, dict) and all(isinstance(key, str) for key in tree):
        return {"{": {key: _outline(part, chunks, filled) for key, part in tree.items()}}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    what = f"{tree.dtype} array" if isinstance(tree, np.ndarray) else type(tree).__name__
    raise RunError(
        f"a policy wants to remember a {what}, which a checkpoint cannot hold; states are made of "
        "numbers, strings, NumPy arrays of numbers, tuples, lists and dicts with strings as keys."
    )


def _rebuild(outline: Any, tensors: dict[str, Array]) -> Tree:
    if isinstance(outline, list):
        return [_rebuild(part, tensors) for part in outline]
    if isinstance(outline, dict):
        if "$" in outline:
            dtype, start, *shape = outline["$"]
            flat = tensors[dtype][start : start + int(np.prod(shape, dtype=np.int64))]
            return flat.reshape(shape).copy()
        return {key: _rebuild(part, tensors) for key, part in outline["{"].items()}
    return outline
