from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from thalweg.core.errors import BadMessage, RunError
from thalweg.core.trees import (
    Tree,
    read_tree,
    restore_types,
    tree_from_bytes,
    tree_to_bytes,
    write_tree,
)


class Inner(NamedTuple):
    visits: int
    mean: Any


class Outer(NamedTuple):
    name: str
    inner: Inner
    pair: tuple[int, Inner]
    models: list[Inner]
    nothing: None


def there_and_back(tree: Tree, folder: Path) -> Tree:
    write_tree(folder / "tree.safetensors", tree)
    return read_tree(folder / "tree.safetensors")


def same(a: Tree, b: Tree) -> bool:
    """Equal in type, shape, dtype and every bit; nan equals nan."""
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    return type(a) is type(b) and bool(a == b)


arrays = hnp.arrays(
    dtype=st.sampled_from([np.bool_, np.uint8, np.int32, np.int64, np.float32, np.float64]),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | arrays
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(tree=trees)
def test_every_tree_comes_back_bit_by_bit(
    tree: Tree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert same(there_and_back(tree, tmp_path_factory.getbasetemp()), tree)
    assert same(tree_from_bytes(tree_to_bytes(tree)), tree)


@pytest.mark.parametrize(
    "tree",
    [{}, [], {"$": ["float64", 0, 3]}, {"{": {"a": 1}}, {"a": {"$": 1}}, np.float64(0.1), 2**80],
    ids=repr,
)
def test_awkward_trees_come_back_too(tree: Tree, tmp_path: Path) -> None:
    assert there_and_back(tree, tmp_path) == tree


def test_an_array_that_was_read_is_ours_to_change(tmp_path: Path) -> None:
    first, second = there_and_back([np.zeros(2), np.zeros(2)], tmp_path)
    first += 1
    assert second.tolist() == [0.0, 0.0]


def test_arrays_in_any_memory_order_keep_their_values(tmp_path: Path) -> None:
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    views = [table.T, table[:, ::2], table.astype(">f4")]
    back = there_and_back(views, tmp_path)
    assert [array.tolist() for array in back] == [view.tolist() for view in views]


def test_an_example_restores_the_types_of_tuples(tmp_path: Path) -> None:
    state = Outer(
        name="a",
        inner=Inner(3, np.arange(2.0)),
        pair=(1, Inner(4, 0.5)),
        models=[Inner(5, 0.25)],
        nothing=None,
    )
    fresh = Outer("", Inner(0, np.zeros(2)), (0, Inner(0, 0.0)), [Inner(0, 0.0)], None)
    assert same(restore_types(fresh, there_and_back(state, tmp_path)), state)


def test_an_example_need_not_know_every_key() -> None:
    assert restore_types({"a": (0, 0)}, {"a": [1, 2], "b": [3]}) == {"a": (1, 2), "b": [3]}


def test_a_tuple_may_have_grown_since_the_example() -> None:
    assert restore_types((), [1, 2]) == (1, 2)


def test_a_write_replaces_the_old_tree_and_leaves_nothing_else(tmp_path: Path) -> None:
    there_and_back([1], tmp_path)
    assert there_and_back([2], tmp_path) == [2]
    assert [file.name for file in tmp_path.iterdir()] == ["tree.safetensors"]


def test_a_write_that_fails_leaves_the_old_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path / "tree", ["old"])

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(RunError, match="tree: No space left on device"):
        write_tree(tmp_path / "tree", ["new"])
    assert read_tree(tmp_path / "tree") == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["tree"]


def test_a_folder_that_does_not_exist_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("nowhere", "file"):
        with pytest.raises(RunError, match="cannot write"):
            write_tree(tmp_path / folder / "tree", [1])


def test_a_damaged_checkpoint_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    with pytest.raises(RunError, match="not a checkpoint of ours, or is damaged"):
        read_tree(path)
    write_tree(path, [np.arange(100)])
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(RunError, match="not a checkpoint of ours, or is damaged"):
        read_tree(path)


def test_a_safetensors_file_of_somebody_else_is_one_message(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"weights": np.zeros(3)}, tmp_path / "tree")
    with pytest.raises(RunError, match="not a checkpoint of ours"):
        read_tree(tmp_path / "tree")


@pytest.mark.parametrize(
    ("tree", "named"),
    [
        ({1, 2}, "set"),
        (object(), "object"),
        (1j, "complex"),
        (np.complex128(1j), "complex"),
        (np.array(["a"]), "<U1 array"),
        (np.array([None]), "object array"),
        ({1: "a"}, "dict"),
        (b"bytes", "bytes"),
    ],
)
def test_what_a_checkpoint_cannot_hold_is_refused_by_name(
    tree: object, named: str, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=f"wants to remember a {named}, which"):
        write_tree(tmp_path / "tree", ["fine", {"deep": tree}])
    assert list(tmp_path.iterdir()) == []


def test_a_file_and_a_message_are_the_same_bytes(tmp_path: Path) -> None:
    tree = {"model": np.arange(3.0), "rounds": [1, 2]}
    write_tree(tmp_path / "tree", tree)
    assert (tmp_path / "tree").read_bytes() == tree_to_bytes(tree)


@given(payload=st.binary(max_size=100), share=st.floats(0, 1, exclude_max=True))
def test_other_bytes_are_one_message(payload: bytes, share: float) -> None:
    ours = tree_to_bytes({"model": np.arange(3.0)})
    for damaged in (payload, ours[: int(share * len(ours))]):
        with pytest.raises(BadMessage, match="bytes are not a tree of ours, or are damaged"):
            tree_from_bytes(damaged)


def test_an_outline_may_be_too_long() -> None:
    payload = tree_to_bytes({"words": ["long"] * 100})
    assert tree_from_bytes(payload, longest_outline=2000)["words"][99] == "long"
    with pytest.raises(BadMessage, match=r"the outline has \d+ bytes, at most 200 are allowed"):
        tree_from_bytes(payload, longest_outline=200)


def test_a_file_whose_arrays_are_elsewhere_is_damaged(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    outline = '{"$": ["float64", 0, 4]}'
    save_file({"float64": np.zeros(3)}, tmp_path / "tree", metadata={"outline": outline})
    with pytest.raises(RunError, match=r"shape \[4\] has only 3 numbers"):
        read_tree(tmp_path / "tree")


def test_an_array_may_be_kept_elsewhere(tmp_path: Path) -> None:
    kept: dict[str, Any] = {}

    def elsewhere(array: Any) -> str | None:
        if array.size < 3:
            return None
        kept["long"] = array
        return "long"

    tree = {"short": np.arange(2), "long": np.arange(3.0), "@": 1}
    write_tree(tmp_path / "tree", tree, elsewhere)
    assert same(read_tree(tmp_path / "tree", kept.__getitem__), tree)
    with pytest.raises(RunError, match="there is nowhere else"):
        read_tree(tmp_path / "tree")
    with pytest.raises(RunError, match="not a checkpoint of ours, or is damaged"):
        read_tree(tmp_path / "tree", {}.__getitem__)
    with pytest.raises(RunError, match=r"should be float64 of shape \[3\], but is int64"):
        read_tree(tmp_path / "tree", lambda name: np.arange(3))


def test_a_message_cannot_refer_to_what_is_not_in_it() -> None:
    payload = tree_to_bytes([np.arange(3)], lambda array: "secret")
    with pytest.raises(BadMessage, match="there is nowhere else"):
        tree_from_bytes(payload)


@pytest.mark.parametrize("outline", ['{"@": [1, "float64", 3]}', '{"@": []}', '{"@": "name"}'])
def test_a_reference_that_is_none_is_damage(tmp_path: Path, outline: str) -> None:
    from safetensors.numpy import save_file

    save_file({}, tmp_path / "tree", metadata={"outline": outline})
    with pytest.raises(RunError, match="not a checkpoint of ours"):
        read_tree(tmp_path / "tree", lambda name: np.zeros(3))
