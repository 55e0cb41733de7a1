"""Reads the pickles of CIFAR-10 and CIFAR-100 without executing them.

A pickle is a program: it may call any function of any module. The official batches use three names
of NumPy to build one array of bytes. Here these names are replaced by small classes that only
record their arguments, every other name is rejected, and the array is built from the bytes
afterwards. No code outside this file is called.
"""

from __future__ import annotations

import io
import pickle
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError


class PickledArray:
    """Replacement of ``numpy.core.multiarray._reconstruct`` that records the array's state."""

    def __init__(self, *empty: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def to_bytes(self) -> npt.NDArray[np.uint8]:
        """The array if it has unsigned bytes in C order; else a ValueError."""
        if not (isinstance(self.state, tuple) and len(self.state) == 5):
            raise ValueError("an array without content")
        _, shape, dtype, is_fortran, content = self.state
        if not isinstance(dtype, PickledType) or dtype.code not in ("u1", b"u1") or is_fortran:
            raise ValueError("an array of something else than bytes in C order")
        if not (isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)):
            raise ValueError("an array without a shape")
        if not isinstance(content, bytes) or len(content) != prod(shape):
            raise ValueError("an array with too few or too many bytes")
        return np.frombuffer(content, dtype=np.uint8).reshape(shape)


class PickledType:
    """Replacement of ``numpy.dtype``."""

    def __init__(self, code: Any = None, *rest: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        pass  # the byte order, which single bytes do not have


class ArrayClass:
    """Replacement of ``numpy.ndarray``."""

    def __setstate__(self, state: Any) -> None:
        pass


class Latin1(bytes):
    """Replacement of ``_codecs.encode``: bytes in pickles that Python 2 can read."""

    def __new__(cls, text: Any, encoding: Any) -> Latin1:
        if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
            raise ValueError("text in another encoding than latin1")
        return super().__new__(cls, text.encode("latin1"))

    def __setstate__(self, state: Any) -> None:
        raise ValueError("bytes with attributes")


ALLOWED: dict[tuple[str, str], type[Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
    ("numpy", "ndarray"): ArrayClass,
    ("numpy", "dtype"): PickledType,
    ("_codecs", "encode"): Latin1,
}


class _ForbiddenName(Exception):
    """The pickle uses a name that no official batch uses."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[Any]:
        if (module, name) not in ALLOWED:
            raise _ForbiddenName(f"{module}.{name}")
        return ALLOWED[module, name]


def read_pickle(content: bytes, where: str) -> dict[str, Any]:
    """The dictionary of an official file; arrays are `PickledArray`, text is bytes."""
    try:
        value = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except _ForbiddenName as error:
        raise DataError(
            f"{where}: this is not an official batch of CIFAR: it uses {error}. "
            "A pickle can run programs; nothing was executed. Download the official files."
        ) from error
    except Exception as error:  # damaged bytes may raise any exception
        raise DataError(
            f"{where}: expected a pickled batch of CIFAR, got a file that cannot be read "
            f"({type(error).__name__}: {error}). Nothing was loaded."
        ) from error
    if not isinstance(value, dict):
        raise DataError(
            f"{where}: expected a pickled dictionary, got a {type(value).__name__}. "
            "This is not an official file of CIFAR."
        )
    return {as_text(key): item for key, item in value.items()}


def as_text(value: Any) -> str:
    """Text from Python 2 (bytes) or Python 3."""
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
