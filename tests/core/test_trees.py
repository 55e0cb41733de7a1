"""Trees of arrays are written to files and bytes and read back bit by bit."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from thalweg.core.errors import BadMessage, RunError
from thalweg.core.trees import (
    FORMAT,
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


def write_and_read(tree: Tree, folder: Path) -> Tree:
    write_tree(folder / "tree.safetensors", tree)
    return read_tree(folder / "tree.safetensors")


def is_same(a: Tree, b: Tree) -> bool:
    """Equal in type, shape, dtype and every bit; nan equals nan."""
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and a.tobytes() == b.tobytes()
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(is_same(a[k], b[k]) for k in a)
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    return type(a) is type(b) and bool(a == b)


def make_metadata(outline: str, types: str = "[]") -> dict[str, str]:
    return {"outline": f'{{"format":{FORMAT},"types":{types},"tree":{outline}}}'}


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


@given(tree=trees)
def test_every_tree_is_read_back_bit_by_bit(
    tree: Tree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert is_same(write_and_read(tree, tmp_path_factory.getbasetemp()), tree)
    assert is_same(tree_from_bytes(tree_to_bytes(tree)), tree)


@pytest.mark.parametrize(
    "tree",
    [{}, [], {"$": ["float64", 0, 3]}, {"{": {"a": 1}}, {"a": {"$": 1}}, np.float64(0.1), 2**80],
    ids=repr,
)
def test_trees_that_look_like_the_format_are_read_back(tree: Tree, tmp_path: Path) -> None:
    assert write_and_read(tree, tmp_path) == tree


def test_arrays_that_were_read_can_be_changed_separately(tmp_path: Path) -> None:
    first, second = write_and_read([np.zeros(2), np.zeros(2)], tmp_path)
    first += 1
    assert second.tolist() == [0.0, 0.0]


def test_arrays_in_any_memory_order_keep_their_values(tmp_path: Path) -> None:
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    views = [table.T, table[:, ::2], table.astype(">f4")]
    back = write_and_read(views, tmp_path)
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
    assert is_same(restore_types(fresh, write_and_read(state, tmp_path)), state)


def test_example_may_lack_keys_of_a_dict() -> None:
    assert restore_types({"a": (0, 0)}, {"a": [1, 2], "b": [3]}) == {"a": (1, 2), "b": [3]}


def test_a_tuple_may_have_grown_since_the_example() -> None:
    assert restore_types((), [1, 2]) == (1, 2)


def test_a_write_replaces_the_old_tree_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_and_read([1], tmp_path)
    assert write_and_read([2], tmp_path) == [2]
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


def test_writing_to_a_missing_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("nowhere", "file"):
        with pytest.raises(RunError, match="cannot write"):
            write_tree(tmp_path / folder / "tree", [1])


def test_a_damaged_checkpoint_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    with pytest.raises(RunError, match="not a checkpoint of Thalweg, or is damaged"):
        read_tree(path)
    write_tree(path, [np.arange(100)])
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(RunError, match="not a checkpoint of Thalweg, or is damaged"):
        read_tree(path)


def test_a_foreign_safetensors_file_is_reported(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"weights": np.zeros(3)}, tmp_path / "tree")
    with pytest.raises(RunError, match="not a checkpoint of Thalweg"):
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
def test_a_type_that_a_checkpoint_cannot_store_is_named(
    tree: object, named: str, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=f"a state contains a {named}, which"):
        write_tree(tmp_path / "tree", ["fine", {"deep": tree}])
    assert list(tmp_path.iterdir()) == []


def test_a_file_and_a_message_are_the_same_bytes(tmp_path: Path) -> None:
    tree = {"model": np.arange(3.0), "rounds": [1, 2]}
    write_tree(tmp_path / "tree", tree)
    assert (tmp_path / "tree").read_bytes() == tree_to_bytes(tree)


@given(payload=st.binary(max_size=100), share=st.floats(0, 1, exclude_max=True))
def test_foreign_or_truncated_bytes_are_reported(payload: bytes, share: float) -> None:
    ours = tree_to_bytes({"model": np.arange(3.0)})
    for damaged in (payload, ours[: int(share * len(ours))]):
        with pytest.raises(BadMessage, match="bytes are not a tree of Thalweg, or are damaged"):
            tree_from_bytes(damaged)


def test_the_length_of_the_outline_can_be_limited() -> None:
    payload = tree_to_bytes({"words": ["long"] * 100})
    assert tree_from_bytes(payload, longest_outline=2000)["words"][99] == "long"
    with pytest.raises(BadMessage, match=r"the outline has \d+ bytes, at most 200 are allowed"):
        tree_from_bytes(payload, longest_outline=200)


def test_an_array_that_exceeds_its_tensor_is_reported(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    outline = '{"$": ["float64", 0, 4]}'
    save_file({"float64": np.zeros(3)}, tmp_path / "tree", metadata=make_metadata(outline))
    with pytest.raises(RunError, match=r"shape \[4\] has only 3 numbers"):
        read_tree(tmp_path / "tree")


def test_arrays_can_be_stored_outside_the_tree(tmp_path: Path) -> None:
    kept: dict[str, Any] = {}

    def elsewhere(array: Any) -> str | None:
        if array.size < 3:
            return None
        kept["long"] = array
        return "long"

    tree = {"short": np.arange(2), "long": np.arange(3.0), "@": 1}
    write_tree(tmp_path / "tree", tree, elsewhere)
    assert is_same(read_tree(tmp_path / "tree", kept.__getitem__), tree)
    with pytest.raises(RunError, match="no reader of such arrays was given"):
        read_tree(tmp_path / "tree")
    with pytest.raises(RunError, match="not a checkpoint of Thalweg, or is damaged"):
        read_tree(tmp_path / "tree", {}.__getitem__)
    with pytest.raises(RunError, match=r"should be float64 of shape \[3\], but is int64"):
        read_tree(tmp_path / "tree", lambda name: np.arange(3))


def test_a_message_cannot_refer_to_external_arrays() -> None:
    payload = tree_to_bytes([np.arange(3)], lambda array: "secret")
    with pytest.raises(BadMessage, match="no reader of such arrays was given"):
        tree_from_bytes(payload)


@pytest.mark.parametrize("outline", ['{"@": [1, "float64", 3]}', '{"@": []}', '{"@": "name"}'])
def test_an_invalid_reference_to_an_external_array_is_reported(
    tmp_path: Path, outline: str
) -> None:
    from safetensors.numpy import save_file

    save_file({}, tmp_path / "tree", metadata=make_metadata(outline))
    with pytest.raises(RunError, match="not a checkpoint of Thalweg"):
        read_tree(tmp_path / "tree", lambda name: np.zeros(3))


class Written(NamedTuple):
    """A state as an older version of a program writes it."""

    count: int
    mean: float


def test_fields_are_read_by_name_if_a_field_is_inserted(tmp_path: Path) -> None:
    class Inserted(NamedTuple):
        count: int
        label: str = "new"
        mean: float = 0.0

    tree = write_and_read(Written(3, 0.5), tmp_path)
    assert restore_types(Inserted(0, "", 0.0), tree) == Inserted(count=3, label="new", mean=0.5)


def test_fields_are_read_by_name_if_they_are_reordered(tmp_path: Path) -> None:
    class Reordered(NamedTuple):
        mean: float
        count: int

    tree = write_and_read(Written(3, 0.5), tmp_path)
    assert restore_types(Reordered(0.0, 0), tree) == Reordered(mean=0.5, count=3)


def test_a_removed_field_is_an_error(tmp_path: Path) -> None:
    class Removed(NamedTuple):
        count: int

    tree = write_and_read(Written(3, 0.5), tmp_path)
    with pytest.raises(RunError, match="Removed in a checkpoint has the unknown field 'mean';"):
        restore_types(Removed(0), tree)


def test_a_missing_field_without_a_default_is_an_error(tmp_path: Path) -> None:
    class Longer(NamedTuple):
        count: int
        mean: float
        spread: float

    tree = write_and_read([Written(3, 0.5)], tmp_path)
    with pytest.raises(RunError, match="Longer in a checkpoint lacks the field 'spread';") as error:
        restore_types([Longer(0, 0.0, 0.0)], tree)
    assert "\n" not in str(error.value)


def test_a_list_in_place_of_a_namedtuple_is_an_error() -> None:
    with pytest.raises(RunError, match="the fields of Written, but contains a list"):
        restore_types(Written(0, 0.0), [3, 0.5])


def test_an_optional_state_may_be_none() -> None:
    assert restore_types(Written(0, 0.0), None) is None
    assert restore_types(None, {"count": 3}) == {"count": 3}


@pytest.mark.parametrize(
    ("outline", "found"),
    [
        ('{"format":1,"types":[],"tree":[1,2]}', "1"),
        ('{"format":3,"types":[],"tree":[1,2]}', "3"),
        ("[1,2]", "1"),
        ('{"{":{"format":2}}', "1"),
    ],
)
def test_another_format_is_rejected(tmp_path: Path, outline: str, found: str) -> None:
    from safetensors.numpy import save, save_file

    save_file({}, tmp_path / "tree", metadata={"outline": outline})
    expected = f"format is {found}, but this version of Thalweg reads format {FORMAT}"
    with pytest.raises(RunError, match=expected) as error:
        read_tree(tmp_path / "tree")
    assert "\n" not in str(error.value)
    with pytest.raises(BadMessage, match=expected):
        tree_from_bytes(save({}, metadata={"outline": outline}))


def test_the_same_tree_gives_the_same_bytes() -> None:
    assert len({tree_to_bytes([Written(3, 0.5), np.arange(3)]) for _ in range(20)}) == 1


def test_field_names_are_stored_once_per_type() -> None:
    one, many = (tree_to_bytes([Written(3, 0.5)] * count) for count in (1, 100))
    assert many.count(b"count") == one.count(b"count") == 1
    plain = tree_to_bytes([[3, 0.5]] * 100)
    assert len(many) - len(plain) <= 100 * len(r"{\"#\":[0,]}") + 100


@pytest.mark.parametrize(
    ("outline", "types"),
    [
        ('{"#":[0,1]}', "[]"),
        ('{"#":[0,1]}', "null"),
        ('{"#":[1,1]}', '[["a"]]'),
        ('{"#":[-1,1]}', '[["a"]]'),
        ('{"#":["a",1]}', '[["a"]]'),
        ('{"#":[0,1,2]}', '[["a"]]'),
        ('{"#":[0,1]}', "[[5]]"),
        ('{"#":[0,1]}', '["a"]'),
        ('{"#":5}', '[["a"]]'),
    ],
)
def test_damaged_field_names_are_reported(outline: str, types: str) -> None:
    from safetensors.numpy import save

    with pytest.raises(BadMessage, match="or are damaged"):
        tree_from_bytes(save({}, metadata=make_metadata(outline, types)))
