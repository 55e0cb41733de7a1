"""Tests that the reader of CIFAR pickles never executes code."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import DataError
from thalweg.data.cifar_pickle import read_pickle


class Command:
    """Unpickling this runs a command."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call[0], self.call[1:]


def read_error(content: bytes) -> str | None:
    """Return the error message for these bytes, or None if they are read."""
    try:
        read_pickle(content, "here")
    except DataError as error:
        return str(error)
    return None


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("inside", ["alone", "beside the data"])
def test_pickle_that_runs_a_command_is_rejected(tmp_path: Path, protocol: int, inside: str) -> None:
    trace = tmp_path / "trace"
    command: Any = Command(os.system, f"touch {trace}")
    if inside == "beside the data":
        command = {"data": np.zeros((1, 3072), np.uint8), "labels": [0], "more": command}
    with pytest.raises(DataError, match=r"not an official batch.*nothing was executed"):
        read_pickle(pickle.dumps(command, protocol), "here")
    assert not trace.exists()


@pytest.mark.parametrize(
    "call",
    [
        (eval, "1 + 1"),
        (getattr, "", "join"),
        (np.load, "somewhere"),
        (np.frombuffer, b"1234"),
        (__import__, "os"),
    ],
    ids=lambda call: call[0].__name__,
)
def test_pickle_with_other_globals_is_rejected(call: tuple[Any, ...]) -> None:
    with pytest.raises(DataError, match="not an official batch"):
        read_pickle(pickle.dumps({"data": Command(*call)}, 2), "here")


def test_allowed_globals_reject_other_arguments() -> None:
    import _codecs

    bomb = Command(_codecs.encode, "text", "zlib_codec")
    with pytest.raises(DataError, match="another encoding than latin1"):
        read_pickle(pickle.dumps({"data": bomb}, 2), "here")
    # Attributes of the stand-ins cannot be set: (numpy.dtype class) BUILD {...}
    program = b"\x80\x02cnumpy\ndtype\n}U\x01xK\x01sb."
    with pytest.raises(DataError, match="cannot be read"):
        read_pickle(program, "here")


@pytest.mark.parametrize("protocol", [2, 3])
def test_arrays_of_current_python_are_read(protocol: int) -> None:
    data = np.arange(12, dtype=np.uint8).reshape(3, 4)
    got = read_pickle(pickle.dumps({"data": data, "labels": [1, 2]}, protocol), "here")
    np.testing.assert_array_equal(got["data"].to_bytes(), data)
    assert got["labels"] == [1, 2]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 2), dtype=np.int64),
        np.zeros((2, 2), dtype=object),
        np.asfortranarray(np.ones((2, 3), dtype=np.uint8)),
    ],
    ids=["numbers", "objects", "another order"],
)
def test_arrays_of_other_types_than_bytes_are_rejected(array: np.ndarray) -> None:
    got = read_pickle(pickle.dumps({"data": array}, 2), "here")
    with pytest.raises(ValueError, match="something else than bytes"):
        got["data"].to_bytes()


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=60))
def test_arbitrary_bytes_give_a_named_error(content: bytes) -> None:
    message = read_error(content)
    assert message is None or message.startswith("here: ")


@settings(max_examples=100, deadline=None)
@given(cut=st.floats(0, 1), at=st.floats(0, 1), byte=st.integers(0, 255))
def test_damaged_batches_are_read_or_rejected_without_crashing(
    cut: float, at: float, byte: int
) -> None:
    batch = {"data": np.zeros((2, 8), np.uint8), "labels": [1, 2], "batch_label": "one"}
    content = bytearray(pickle.dumps(batch, 2))
    content[int(at * (len(content) - 1))] = byte
    message = read_error(bytes(content[: int(cut * len(content))]))
    assert message is None or message.startswith("here: ")


def test_pickle_of_another_type_than_a_dictionary_is_rejected() -> None:
    with pytest.raises(DataError, match="expected a pickled dictionary, got a list"):
        read_pickle(pickle.dumps([1, 2]), "here")
