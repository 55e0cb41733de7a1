"""Input validation for all public functions of this package.

A check costs a few microseconds, so that the formulas can be called once per client and tick.
"""

from __future__ import annotations

import math
import numbers
import operator
import reprlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.core.types import Floats

Bools = npt.NDArray[np.bool_]

SUM_TOLERANCE = 1e-6  # tolerance for sums rounded to 32 bits


def as_array(values: npt.ArrayLike, name: str) -> Floats:
    """Real numbers of any shape as float64; values are not checked."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must hold numbers, got {reprlib.repr(values)}.") from error


def vector(values: npt.ArrayLike, name: str, size: int | None = None) -> Floats:
    """(size,) finite numbers of either sign; without `size` any length but zero.

    >>> vector([1, -2], "scores").tolist()
    [1.0, -2.0]
    """
    array = _row(values, name, size)
    if not (array.min() > -math.inf and array.max() < math.inf):  # nan fails both comparisons
        raise ConfigError(f"{name} must be finite, got {_format(array)}.")
    return array


def nonnegative(values: npt.ArrayLike, name: str, size: int | None = None) -> Floats:
    """(size,) finite numbers of at least zero."""
    array = _row(values, name, size)
    if not (array.min() >= 0 and array.max() < math.inf):
        raise ConfigError(f"{name} must be non-negative and finite, got {_format(array)}.")
    return array


def fractions(values: npt.ArrayLike, name: str, size: int | None = None) -> Floats:
    """(size,) numbers from 0 to 1, both included."""
    array = _row(values, name, size)
    if not (array.min() >= 0 and array.max() <= 1):
        raise ConfigError(f"{name} must lie in [0, 1], got {_format(array)}.")
    return array


def distribution(values: npt.ArrayLike, name: str, size: int | None = None) -> Floats:
    """(size,) probabilities: non-negative and finite; divided by their sum, always a new array.

    >>> distribution([1, 1, 2], "probs").tolist()
    [0.25, 0.25, 0.5]
    """
    array = _row(values, name, size)
    top = float(array.max())
    # Python floats overflow to inf without a warning: this catches inf, nan and an infinite sum.
    if not (array.min() >= 0 and top * array.size < math.inf):
        raise ConfigError(f"{name} must be non-negative and finite, got {_format(array)}.")
    if top == 0:
        raise ConfigError(f"{name} must have a positive entry, got {array.size} zeros.")
    normalised: Floats = array / array.sum()
    return normalised


def probabilities(values: npt.ArrayLike, name: str, size: int | None = None) -> Floats:
    """As `distribution`, but the values must sum to one, up to rounding; counts are rejected.

    >>> probabilities([1, 1], "goal")
    Traceback (most recent call last):
    thalweg.core.errors.ConfigError: goal must sum to one, got [1.0, 1.0], whose sum is 2.
    """
    array = nonnegative(values, name, size)
    total = float(array.sum())
    if not abs(total - 1) <= SUM_TOLERANCE:
        raise ConfigError(f"{name} must sum to one, got {_format(array)}, whose sum is {total:g}.")
    normalised: Floats = array / total
    return normalised


def mask(values: npt.ArrayLike, name: str, size: int) -> Bools:
    """(size,) booleans; numbers are rejected because they might be ids."""
    array = np.asarray(values)
    if array.dtype != np.bool_ or array.shape != (size,):
        raise ConfigError(
            f"{name} must be {size} booleans, got {array.dtype} of shape {array.shape}."
        )
    return array


def number(value: float, name: str) -> float:
    """One finite number of either sign."""
    real = _real(value, name)
    if not math.isfinite(real):
        raise ConfigError(f"{name} must be finite, got {value}.")
    return real


def at_least_zero(value: float, name: str) -> float:
    """One finite number of at least zero."""
    real = _real(value, name)
    if not 0 <= real < math.inf:
        raise ConfigError(f"{name} must be non-negative and finite, got {value}.")
    return real


def positive(value: float, name: str) -> float:
    """One finite number above zero."""
    real = _real(value, name)
    if not 0 < real < math.inf:
        raise ConfigError(f"{name} must be positive and finite, got {value}.")
    return real


def share(value: float, name: str) -> float:
    """One number in (0, 1].

    >>> share(0.5, "budget")
    0.5
    >>> share(0, "budget")
    Traceback (most recent call last):
    thalweg.core.errors.ConfigError: budget must lie in (0, 1], got 0.
    """
    real = _real(value, name)
    if not 0 < real <= 1:
        raise ConfigError(f"{name} must lie in (0, 1], got {value}.")
    return real


def shares(values: npt.ArrayLike, name: str, size: int) -> Floats:
    """(size,) numbers in (0, 1]; a single number is repeated."""
    array = as_array(values, name)
    array = np.full(size, float(array)) if array.ndim == 0 else _row(array, name, size)
    if not (array.min() > 0 and array.max() <= 1):
        raise ConfigError(f"{name} must lie in (0, 1], got {_format(array)}.")
    return array


def count(value: int, name: str) -> int:
    """An integer of at least 1."""
    whole = _whole(value, name)
    if whole < 1:
        raise ConfigError(f"{name} must be at least 1, got {value}.")
    return whole


def position(value: int, name: str, size: int) -> int:
    """An integer in 0 .. size - 1; negative indices are not allowed."""
    whole = _whole(value, name)
    if not 0 <= whole < size:
        raise ConfigError(f"{name} must lie in 0 .. {size - 1}, got {value}.")
    return whole


def one_of(value: str, known: Iterable[str], what: str) -> str:
    """A name from a short list, with a suggestion for misspelled names."""
    known = tuple(known)
    if value not in known:
        raise UnknownName(what, str(value), known)
    return value


def _row(values: npt.ArrayLike, name: str, size: int | None) -> Floats:
    array = as_array(values, name)
    if array.ndim != 1 or array.size == 0:
        raise ConfigError(f"{name} must be one non-empty row of numbers, got shape {array.shape}.")
    if size is not None and array.size != size:
        raise ConfigError(f"{name} must have {size} entries, got {array.size}.")
    return array


def _real(value: object, name: str) -> float:
    if not isinstance(value, numbers.Real):  # float() would accept strings
        raise ConfigError(f"{name} must be a number, got {value!r}.")
    return float(value)


def _whole(value: int, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise ConfigError(f"{name} must be a whole number, got {value!r}.") from error


def _format(array: Floats) -> str:
    return reprlib.repr(array.tolist())
