"""Find and load the library of the native kernel that suits this processor."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.errors import require
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.core.vectors import use_sum
from thalweg.theory.tracking import Bools, SharedWeights, use_share_weights

FOLDER = Path(__file__).parent / "libraries"
LANES = 16  # samples per block, as in c/kernel.h
INTERFACE = 6  # increased with every change of a function or record, as in c/kernel.h
# From the fastest to the one that every processor of the family has.
INSTRUCTION_SETS = {
    "x86_64": ("avx512", "avx2", "sse2"),
    "aarch64": ("neon",),
    "arm64": ("neon",),
}
VARIABLE = "THALWEG_INSTRUCTION_SET"


class LayerRecord(ctypes.Structure):
    """`Layer` of c/kernel.h."""

    _fields_ = [
        ("kind", c_int32),
        ("inputs", c_int32),
        ("outputs", c_int32),
        ("height", c_int32),
        ("width", c_int32),
        ("kernel", c_int32),
        ("padding", c_int32),
        ("relu", c_int32),
        ("codes", c_int32),
        ("weight", c_int64),
        ("bias", c_int64),
    ]


class SamplesRecord(ctypes.Structure):
    """`Samples` of c/kernel.h."""

    _fields_ = [
        ("x", c_void_p),
        ("kind", c_int32),
        ("channels", c_int32),
        ("height", c_int32),
        ("width", c_int32),
        ("scale", c_void_p),
        ("shift", c_void_p),
    ]


class BatchesRecord(ctypes.Structure):
    """`Batches` of c/kernel.c."""

    _fields_ = [
        ("rows", c_void_p),
        ("targets", c_void_p),
        ("weights", c_void_p),
        ("sizes", c_void_p),
        ("steps", c_int32),
        ("clients", c_int32),
        ("width", c_int32),
        ("loss", c_int32),
    ]


class PenaltyRecord(ctypes.Structure):
    """`Penalty` of c/kernel.h."""

    _fields_ = [
        ("curvature", c_void_p),
        ("centre", c_void_p),
        ("slope", c_void_p),
        ("scale", c_float),
    ]


class Kernel(NamedTuple):
    """The functions of a loaded library. ctypes releases the interpreter lock during a call."""

    name: str  # such as "native-avx2"
    workspace: Callable[..., int]
    steps: Callable[..., float]
    train: Callable[..., None]
    predict: Callable[..., None]
    forward: Callable[..., None]
    backward: Callable[..., None]
    combine: Callable[..., None]
    share_weights: Callable[..., None]


def find_kernel() -> Kernel | str:
    """Return the kernel for this processor, or a sentence that says why there is none.

    The environment variable THALWEG_INSTRUCTION_SET names another set, for tests.
    """
    machine = platform.machine()
    known = INSTRUCTION_SETS.get(machine)
    if known is None:
        return f"there is no native kernel for the processor {machine!r}"
    built = list_built()
    if not built:
        return (
            "the native kernel is not built: there was no C compiler at installation. Install gcc "
            "or clang and reinstall thalweg"
        )
    wanted = os.environ.get(VARIABLE)
    usable = [name for name in built if _is_supported(name, built)]
    if wanted is not None:
        require(
            wanted in usable,
            f"{VARIABLE}={wanted}: expected one of {', '.join(usable)}.",
        )
        return _load(wanted)
    return _load(usable[0]) if usable else "this processor has none of the built instruction sets"


def use_native_loops() -> None:
    """Let the server sum updates, and `fixed_shares` compute weights, in C with the same bits."""
    kernel = find_kernel()
    if isinstance(kernel, str):
        return

    def sum_range(
        factors: Floats32, deltas: Floats32, first: int, last: int, total: Floats32
    ) -> None:
        kernel.combine(
            factors.ctypes.data, deltas.ctypes.data, *deltas.shape, first, last, total.ctypes.data
        )

    def share_weights(
        starts: Floats, factors: Floats, is_missing: Bools, sizes: Ints, alpha: float
    ) -> SharedWeights:
        weights, before = np.array(starts), np.empty(factors.shape)
        ratios, factors = np.empty(len(factors)), np.ascontiguousarray(factors)
        is_missing = np.ascontiguousarray(is_missing)
        kernel.share_weights(
            *weights.shape,
            sizes.ctypes.data,
            factors.ctypes.data,
            is_missing.ctypes.data,
            alpha,
            weights.ctypes.data,
            before.ctypes.data,
            ratios.ctypes.data,
        )
        return SharedWeights(before, weights, ratios)

    use_sum(sum_range)
    use_share_weights(share_weights)


def list_built() -> list[str]:
    """Return the instruction sets whose libraries are installed, fastest first."""
    known = INSTRUCTION_SETS.get(platform.machine(), ())
    return [name for name in known if _find_library(name) is not None]


def get_kernel_name() -> str:
    """Return the kernel of this machine: such as "native-avx2", or "torch"."""
    kernel = find_kernel()
    return "torch" if isinstance(kernel, str) else kernel.name


def _find_library(name: str) -> Path | None:
    return path if (path := FOLDER / f"kernel_{name}.so").is_file() else None


def _is_supported(name: str, built: list[str]) -> bool:
    if name in ("sse2", "neon"):
        return True
    if "sse2" not in built:  # the check must run on every processor
        return False
    check = _open("sse2").thalweg_supports
    check.argtypes, check.restype = [c_char_p], c_int32
    return bool(check(name.encode()))


@cache
def _open(name: str) -> Any:
    path = _find_library(name)
    assert path is not None
    return ctypes.CDLL(str(path))


@cache
def _load(name: str) -> Kernel:
    library = _open(name)
    found = library.thalweg_interface() if hasattr(library, "thalweg_interface") else 0
    require(
        found == INTERFACE,
        f"the native kernel {name} was built from other sources: expected interface {INTERFACE}, "
        f"got {found}. Reinstall thalweg, or run: python setup.py build_ext --inplace",
    )
    number, real, address = c_int32, c_float, c_void_p
    net = [POINTER(LayerRecord), number]
    samples, batches = POINTER(SamplesRecord), POINTER(BatchesRecord)
    penalty = POINTER(PenaltyRecord)
    task, reals = [*net, samples, batches], [real, real]
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "workspace": (c_int64, [*net, number, number]),
        "steps": (c_double, [*task, number, address, address, real, *reals, penalty, address]),
        "train": (
            None,
            [
                *(*task, number, number, address, c_int64, address, address),
                *(*reals, penalty, *[address] * 4),
            ],
        ),
        "predict": (
            None,
            [
                *(*net, samples, c_int64, address, number),
                *(address, c_int64, c_int64, address, c_int64, address),
            ],
        ),
        "forward": (None, [*net, samples, number, address, address, number, *[address] * 3]),
        "backward": (None, [*net, number, *[address] * 5]),
        "combine": (None, [address, address, *[c_int64] * 4, address]),
        "share_weights": (
            None,
            [c_int64, c_int64, *[address] * 3, c_double, *[address] * 3],
        ),
    }
    functions: dict[str, Any] = {}
    for short, (result, arguments) in signatures.items():
        function = getattr(library, f"thalweg_{short}")
        function.restype, function.argtypes = result, arguments
        functions[short] = function
    return Kernel(f"native-{name}", **functions)
