"""Read and write states: trees of plain values and arrays, stored as safetensors.

A *tree* is None, a bool, a number, a string, a NumPy array, or a list, tuple, NamedTuple or
string-keyed dict of trees. The state of a policy must be a tree. Reading a tree never executes code
from the file: nothing is pickled.

NamedTuples are stored by field name. The names of each type are stored once per file, however many
values of the type there are. `restore_types` converts the values back: a field that is missing in
the file gets its default, and an unknown field is an error.

An array may also be stored outside the tree, which then contains only its name: the writer chooses
these arrays (`ExternalName`), the reader looks them up (`FetchArray`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from thalweg.core.errors import BadMessage, RunError
from thalweg.core.files import Digest, write_file

FORMAT = 2  # increase it whenever files of the previous version can no longer be read correctly

Tree = Any  # see the first paragraph of the module; a recursive alias would be harder to read
Array = npt.NDArray[Any]
# Returns the name of an array that is stored outside the tree; None: store it in the tree.
ExternalName = Callable[[Array], str | None]
# Returns the array that is stored outside the tree under this name.
FetchArray = Callable[[str], Array]
# Errors that damaged or foreign bytes can cause.
READ_ERRORS = (SafetensorError, KeyError, TypeError, ValueError, OverflowError, RecursionError)


def tree_to_bytes(tree: Tree, external_name: ExternalName | None = None) -> bytes:
    """Convert a tree to the bytes of a safetensors file; `tree_from_bytes` is the inverse."""
    packer = _TreePacker(external_name)
    outline = packer.outline(tree)
    tensors = {dtype: np.concatenate(parts) for dtype, parts in packer.chunks.items()}
    header = {"format": FORMAT, "types": list(packer.types), "tree": outline}
    # One entry: safetensors writes several in random order, and the bytes would differ.
    return save(tensors, metadata={"outline": json.dumps(header, separators=(",", ":"))})


def tree_from_bytes(payload: bytes, longest_outline: int | None = None) -> Tree:
    """Read what `tree_to_bytes` wrote.

    Tuples come back as lists, and NamedTuples as dicts of their fields: see `restore_types`.

    The bytes may come from an untrusted sender. Arrays never take more memory than the bytes that
    hold them, whatever shape they claim. `longest_outline` limits the bytes of everything else,
    which needs about fifty times its length in memory.

    >>> tree_from_bytes(tree_to_bytes({"rounds": 3, "model": np.zeros(2)}))
    {'rounds': 3, 'model': array([0., 0.])}
    """
    try:
        metadata = _read_metadata(payload, longest_outline)
        return _TreeReader(metadata, load(payload), _reject_external).read()
    except READ_ERRORS as error:
        raise BadMessage(
            f"{len(payload)} bytes are not a tree of Thalweg, or are damaged: {error}."
        ) from error


def write_tree(path: Path, tree: Tree, external_name: ExternalName | None = None) -> Digest:
    """Replace a file by a tree; readers never see a part of it."""
    payload = tree_to_bytes(tree, external_name)
    try:
        return write_file(path, payload)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}.") from error


def read_tree(path: Path, fetch: FetchArray | None = None) -> Tree:
    """Read what `write_tree` wrote; types are those of `tree_from_bytes`."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {dtype: file.get_tensor(dtype) for dtype in file.keys()}  # noqa: SIM118
        return _TreeReader(metadata, tensors, fetch or _reject_external).read()
    except (OSError, *READ_ERRORS) as error:
        raise RunError(f"{path} is not a checkpoint of Thalweg, or is damaged: {error}.") from error


def restore_types(example: Tree, tree: Tree) -> Tree:
    """Convert the lists and dicts of a tree that was read to the tuple types of an example.

    Fields of NamedTuples are matched by name. A field that is missing in the file gets the default
    of its class; without a default, or if the file has a field that the class lacks, the tree was
    written by an incompatible version and `RunError` is raised.

    >>> from typing import NamedTuple
    >>> class Seen(NamedTuple):
    ...     count: int
    ...     label: str = "none"
    >>> restore_types(Seen(0), {"count": 12})
    Seen(count=12, label='none')
    """
    if hasattr(example, "_fields") and isinstance(tree, (dict, list)):
        return _restore_named_tuple(example, tree)
    if isinstance(example, tuple) and isinstance(tree, list):
        has_same_length = len(example) == len(tree)
        return tuple(map(restore_types, example, tree)) if has_same_length else tuple(tree)
    if isinstance(example, list) and isinstance(tree, list) and len(example) == len(tree):
        return list(map(restore_types, example, tree))
    if isinstance(example, dict) and isinstance(tree, dict):
        return {key: restore_types(example.get(key), value) for key, value in tree.items()}
    return tree


def _restore_named_tuple(example: Any, tree: Any) -> Any:
    kind = type(example)
    if not isinstance(tree, dict):
        raise RunError(
            f"a checkpoint should contain the fields of {kind.__name__}, but contains a list; it "
            "was written by another version or for another recipe. Start a new run."
        )
    unknown = [name for name in tree if name not in kind._fields]
    missing = [name for name in kind._fields if name not in (tree.keys() | kind._field_defaults)]
    if unknown or missing:
        found = [f"has the unknown field {name!r}" for name in unknown]
        found += [f"lacks the field {name!r}" for name in missing]
        raise RunError(
            f"the state of {kind.__name__} in a checkpoint {', '.join(found)}; it was written by "
            "another version or for another recipe. Resume with that version, or start a new run."
        )
    return kind(**{name: restore_types(getattr(example, name), tree[name]) for name in tree})


class _TreePacker:
    """Converts a tree to JSON. Arrays become references to one flat tensor per dtype, or names."""

    def __init__(self, external_name: ExternalName | None) -> None:
        self.chunks: dict[str, list[Array]] = {}
        self.types: dict[tuple[str, ...], int] = {}  # field names of NamedTuples -> their number
        self._filled: dict[str, int] = {}
        self._external_name = external_name

    def outline(self, tree: Tree) -> Any:
        if isinstance(tree, np.generic):
            tree = tree.item()
        if isinstance(tree, np.ndarray) and tree.dtype.kind in "biuf":
            return self._store_array(tree)
        if isinstance(tree, tuple) and hasattr(tree, "_fields"):
            number = self.types.setdefault(tree._fields, len(self.types))
            return {"#": [number, *map(self.outline, tree)]}
        if isinstance(tree, (list, tuple)):
            return [self.outline(part) for part in tree]
        if isinstance(tree, dict) and all(isinstance(key, str) for key in tree):
            return {"{": {key: self.outline(part) for key, part in tree.items()}}
        if tree is None or isinstance(tree, (bool, int, float, str)):
            return tree
        what = f"{tree.dtype} array" if isinstance(tree, np.ndarray) else type(tree).__name__
        raise RunError(
            f"a state contains a {what}, which a checkpoint cannot store; states consist of "
            "numbers, strings, NumPy arrays of numbers, tuples, lists and dicts with strings as "
            "keys."
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


class _TreeReader:
    """Rebuilds a tree.

    Every number of the tensors is used exactly once, in the order of writing.
    """

    def __init__(
        self, metadata: Mapping[str, str], tensors: dict[str, Array], fetch: FetchArray
    ) -> None:
        header = json.loads(metadata["outline"])
        number = header.get("format", 1) if isinstance(header, dict) else 1
        if number != FORMAT:
            raise ValueError(
                f"its format is {number}, but this version of Thalweg reads format {FORMAT}"
            )
        self._outline, self._types = header["tree"], header["types"]
        self._tensors, self._fetch = tensors, fetch
        self._used: dict[str, int] = {}

    def read(self) -> Tree:
        tree = self._rebuild(self._outline)
        if self._used != {dtype: tensor.size for dtype, tensor in self._tensors.items()}:
            raise ValueError("some numbers belong to no array")
        return tree

    def _rebuild(self, outline: Any) -> Tree:
        if isinstance(outline, list):
            return [self._rebuild(part) for part in outline]
        if isinstance(outline, dict):
            ((tag, inner),) = outline.items()
            if tag == "$":
                return self._read_array(inner)
            if tag == "#":
                return self._read_fields(*inner)
            if tag == "@":
                return self._fetch_array(*inner)
            if tag == "{" and isinstance(inner, dict):
                return {key: self._rebuild(part) for key, part in inner.items()}
            raise ValueError("an entry is neither an array nor a dict nor a NamedTuple")
        return outline

    def _read_fields(self, number: Any, *values: Any) -> dict[str, Tree]:
        is_known = type(number) is int and 0 <= number < len(self._types)
        names = self._types[number] if is_known else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("the field names of a NamedTuple are missing")
        return {name: self._rebuild(value) for name, value in zip(names, values, strict=True)}

    def _read_array(self, position: Any) -> Array:
        dtype, *numbers = position
        if not all(type(number) is int and number >= 0 for number in numbers) or len(numbers) > 33:
            raise ValueError("the position and shape of an array are not whole numbers")
        start, *shape = numbers
        flat, size = self._tensors[dtype], math.prod(shape)
        if (flat.ndim, flat.dtype.name, self._used.get(dtype, 0)) != (1, dtype, start):
            raise ValueError(f"a {dtype} array is not at the expected position")
        if size > len(flat) - start:
            raise ValueError(f"an array of shape {shape} has only {len(flat) - start} numbers")
        self._used[dtype] = start + size
        return flat[start : start + size].reshape(shape).copy()

    def _fetch_array(self, name: Any, dtype: Any, *shape: Any) -> Array:
        if not isinstance(name, str):
            raise ValueError("the name of an array is not a string")
        array = self._fetch(name)
        if (array.dtype.name, array.shape) != (dtype, shape):
            raise ValueError(
                f"the array {name} should be {dtype} of shape {list(shape)}, but is "
                f"{array.dtype.name} of shape {list(array.shape)}"
            )
        return array


def _read_metadata(payload: bytes, longest: int | None) -> Mapping[str, str]:
    """Read the metadata only, after a check of their length."""
    length = int.from_bytes(payload[:8], "little")
    if length > len(payload) - 8:
        raise ValueError(f"cut off: the outline should have {length} bytes")
    if longest is not None and length > longest:
        raise ValueError(f"the outline has {length} bytes, at most {longest} are allowed")
    metadata: Mapping[str, str] = json.loads(payload[8 : 8 + length])["__metadata__"]
    return metadata


def _reject_external(name: str) -> Array:
    raise ValueError("an array is stored outside the tree, but no reader of such arrays was given")
