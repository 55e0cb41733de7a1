"""States as bytes: trees of plain values and arrays, to and from safetensors.

A *tree* is None, a bool, a number, a string, a NumPy array, or a list, tuple, NamedTuple or
string-keyed dict of trees. That is all a policy may remember, so a checkpoint is one tree, and
reading one back never runs foreign code: there is no pickle anywhere.

An array may also be kept elsewhere, so that the tree only has its name: whoever writes the tree says which
ones and where (`ExternalName`), and whoever reads it must know where that is (`FetchArray`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from thalweg.core.errors import BadMessage, RunError

Tree = Any  # see the module's first paragraph; recursive aliases only obscure it
Array = npt.NDArray[Any]
ExternalName = Callable[
    [Array], str | None
]  # the name of an array that is kept elsewhere; none: here
FetchArray = Callable[[str], Array]  # what is kept elsewhere under a name
# What can go wrong with bytes that somebody else wrote, or damaged.
READ_ERRORS = (SafetensorError, KeyError, TypeError, ValueError, OverflowError, RecursionError)


def tree_to_bytes(tree: Tree, external_name: ExternalName | None = None) -> bytes:
    """A tree as a safetensors file; `tree_from_bytes` is the inverse if nothing is kept elsewhere."""
    packing = _TreePacker(external_name)
    outline = packing.outline(tree)
    tensors = {dtype: np.concatenate(parts) for dtype, parts in packing.chunks.items()}
    return save(tensors, metadata={"outline": json.dumps(outline, separators=(",", ":"))})


def tree_from_bytes(payload: bytes, longest_outline: int | None = None) -> Tree:
    """Read what `tree_to_bytes` made. Tuples come back as lists; see `restore_types` to restore types.

    Bytes of others may be anything. Arrays never take more memory than the bytes they came in, whatever
    shape they claim; `longest_outline` limits the rest, which costs some fifty times its length.

    >>> tree_from_bytes(tree_to_bytes({"rounds": 3, "model": np.zeros(2)}))
    {'rounds': 3, 'model': array([0., 0.])}
    """
    try:
        outline = _outline_of(payload, longest_outline)
        return _rebuild_tree(outline, load(payload), _reject_external)
    except READ_ERRORS as error:
        raise BadMessage(
            f"{len(payload)} bytes are not a tree of ours, or are damaged: {error}."
        ) from error


def write_tree(path: Path, tree: Tree, external_name: ExternalName | None = None) -> None:
    """Write a tree under a temporary name and rename it: a reader sees all of it or none of it."""
    payload = tree_to_bytes(tree, external_name)
    unfinished = path.with_name(path.name + ".part")
    try:
        unfinished.write_bytes(payload)
        os.replace(unfinished, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise RunError(f"cannot write {path}: {error.strerror}.") from error


def read_tree(path: Path, fetch: FetchArray | None = None) -> Tree:
    """Read what `write_tree` wrote. Tuples come back as lists; see `restore_types` to restore types."""
    try:
        with safe_open(path, framework="numpy") as file:
            outline = json.loads((file.metadata() or {})["outline"])
            tensors = {dtype: file.get_tensor(dtype) for dtype in file.keys()}  # noqa: SIM118
        return _rebuild_tree(outline, tensors, fetch or _reject_external)
    except (OSError, *READ_ERRORS) as error:
        raise RunError(f"{path} is not a checkpoint of ours, or is damaged: {error}.") from error


def restore_types(example: Tree, tree: Tree) -> Tree:
    """Give a tree that was read back the tuple types of an example.

    >>> from typing import NamedTuple
    >>> class Seen(NamedTuple):
    ...     count: int
    >>> restore_types(Seen(0), [12])
    Seen(count=12)
    """
    if isinstance(example, tuple) and isinstance(tree, list):
        if hasattr(example, "_fields"):
            return type(example)(*map(restore_types, example, tree))
        return (
            tuple(map(restore_types, example, tree)) if len(example) == len(tree) else tuple(tree)
        )
    if isinstance(example, list) and isinstance(tree, list) and len(example) == len(tree):
        return list(map(restore_types, example, tree))
    if isinstance(example, dict) and isinstance(tree, dict):
        return {key: restore_types(example.get(key), value) for key, value in tree.items()}
    return tree


class _TreePacker:
    """Makes JSON of a tree, with each array replaced by its place in one flat tensor per dtype, or by its name."""

    def __init__(self, external_name: ExternalName | None) -> None:
        self.chunks: dict[str, list[Array]] = {}
        self._filled: dict[str, int] = {}
        self._external_name = external_name

    def outline(self, tree: Tree) -> Any:
        if isinstance(tree, np.generic):
            tree = tree.item()
        if isinstance(tree, np.ndarray) and tree.dtype.kind in "biuf":
            return self._store_array(tree)
        if isinstance(tree, (list, tuple)):
            return [self.outline(part) for part in tree]
        if isinstance(tree, dict) and all(isinstance(key, str) for key in tree):
            return {"{": {key: self.outline(part) for key, part in tree.items()}}
        if tree is None or isinstance(tree, (bool, int, float, str)):
            return tree
        what = f"{tree.dtype} array" if isinstance(tree, np.ndarray) else type(tree).__name__
        raise RunError(
            f"a policy wants to remember a {what}, which a checkpoint cannot hold; states are made of "
            "numbers, strings, NumPy arrays of numbers, tuples, lists and dicts with strings as keys."
        )

    def _store_array(self, array: Array) -> Any:
        dtype = array.dtype.name
        name = None if self._external_name is None else self._external_name(array)
        if name is not None:
            return {"@": [name, dtype, *array.shape]}
        start = self._filled.get(dtype, 0)
        self.chunks.setdefault(dtype, []).append(np.ascontiguousarray(array).reshape(-1))
        self._filled[dtype] = start + array.size
        return {"$": [dtype, start, *array.shape]}


def _outline_of(payload: bytes, longest: int | None) -> Any:
    """The outline alone; its length is looked at before anything is read."""
    length = int.from_bytes(payload[:8], "little")
    if length > len(payload) - 8:
        raise ValueError(f"cut off: the outline should have {length} bytes")
    if longest is not None and length > longest:
        raise ValueError(f"the outline has {length} bytes, at most {longest} are allowed")
    return json.loads(json.loads(payload[8 : 8 + length])["__metadata__"]["outline"])


def _rebuild_tree(outline: Any, tensors: dict[str, Array], fetch: FetchArray) -> Tree:
    """The tree; every number of the tensors is used exactly once, in order, as it was written."""
    used: dict[str, int] = {}
    tree = _rebuild(outline, tensors, used, fetch)
    if used != {dtype: tensor.size for dtype, tensor in tensors.items()}:
        raise ValueError("some numbers belong to no array")
    return tree


def _rebuild(
    outline: Any, tensors: dict[str, Array], used: dict[str, int], fetch: FetchArray
) -> Tree:
    if isinstance(outline, list):
        return [_rebuild(part, tensors, used, fetch) for part in outline]
    if isinstance(outline, dict):
        ((tag, inner),) = outline.items()
        if tag == "$":
            return _read_array(inner, tensors, used)
        if tag == "@":
            return _fetch_array(inner, fetch)
        if tag == "{" and isinstance(inner, dict):
            return {key: _rebuild(part, tensors, used, fetch) for key, part in inner.items()}
        raise ValueError("neither an array nor values by name")
    return outline


def _fetch_array(place: Any, fetch: FetchArray) -> Array:
    name, dtype, *shape = place
    if not isinstance(name, str):
        raise ValueError("the name of an array is not a word")
    array = fetch(name)
    if (array.dtype.name, list(array.shape)) != (dtype, shape):
        raise ValueError(
            f"the array {name} should be {dtype} of shape {shape}, but is {array.dtype.name} of shape "
            f"{list(array.shape)}"
        )
    return array


def _reject_external(name: str) -> Array:
    raise ValueError("an array is said to be kept elsewhere, but there is nowhere else")


def _read_array(place: Any, tensors: dict[str, Array], used: dict[str, int]) -> Array:
    dtype, *numbers = place
    if not all(type(number) is int and number >= 0 for number in numbers) or len(numbers) > 33:
        raise ValueError("an array's place and shape are not whole numbers")
    start, *shape = numbers
    flat, size = tensors[dtype], math.prod(shape)
    if (flat.ndim, flat.dtype.name, used.get(dtype, 0)) != (1, dtype, start):
        raise ValueError(f"a {dtype} array is not where it should be")
    if size > len(flat) - start:
        raise ValueError(f"an array of shape {shape} has only {len(flat) - start} numbers")
    used[dtype] = start + size
    return flat[start : start + size].reshape(shape).copy()
