"""Reads and validates the fields of a received message, one at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import BadMessage, Diverged, ShapeMismatch

MAX_INT = 1 << 62  # largest integer that is accepted; integers are stored as int64
MAX_NAMES = 64
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Choice = TypeVar("Choice", bound=str)


class FieldReader:
    """The fields of a message that are not read yet.

    Each `read_` method removes a field and returns its validated value. `check_empty` rejects a
    message with fields that were not read. `where` is the name of the message in errors.
    """

    def __init__(self, where: str, plain: Any) -> None:
        self.where = where
        if not isinstance(plain, dict) or len(plain) > MAX_NAMES:
            raise self._make_error("the content", f"a dict of at most {MAX_NAMES} fields", plain)
        for name in plain:
            if not NAME.fullmatch(name):
                raise self._make_error("a name", "at most 64 letters, digits or _.-", name)
        self._left: dict[str, Any] = dict(plain)

    def read_int(self, name: str, maximum: int = MAX_INT) -> int:
        """Read an integer from 0 to `maximum`."""
        value = self._take(name)
        if type(value) is not int or not 0 <= value <= maximum:
            raise self._make_error(name, f"an integer from 0 to {maximum}", value)
        return value

    def read_float(self, name: str, minimum: float = -math.inf, allow_nan: bool = False) -> float:
        """Read a finite number of at least `minimum`, or nan if `allow_nan`."""
        value = self._take(name)
        if type(value) not in (int, float):
            raise self._make_error(name, "a number", value)
        if math.isnan(value) and allow_nan:
            return math.nan
        if not math.isfinite(value):
            raise self._make_diverged(name)
        if value < minimum:
            raise self._make_error(name, f"a number of at least {minimum}", value)
        return float(value)

    def read_bool(self, name: str) -> bool:
        """Read true or false."""
        value = self._take(name)
        if type(value) is not bool:
            raise self._make_error(name, "true or false", value)
        return value

    def read_choice(self, name: str, choices: Collection[Choice]) -> Choice:
        """Read a string that is one of `choices`."""
        value = self._take(name)
        for choice in choices if type(value) is str else ():
            if choice == value:
                return choice
        raise self._make_error(name, f"one of {', '.join(choices) or 'nothing'}", value)

    def read_text(self, name: str, maximum: int) -> str:
        """Read a string of at most `maximum` characters."""
        value = self._take(name)
        if type(value) is not str or len(value) > maximum:
            raise self._make_error(name, f"a text of at most {maximum} characters", value)
        return value

    def pop_if_none(self, name: str) -> bool:
        """Remove the field if its value is None; return whether it was."""
        if self._left.get(name, name) is not None:
            return False
        del self._left[name]
        return True

    def require_none(self, name: str, reason: str) -> None:
        """Remove the field and reject the message with `reason` if its value is not None."""
        if self._take(name) is not None:
            raise BadMessage(f"{self.where}: {name} must be empty: {reason}")

    def read_array(
        self,
        name: str,
        dtype: type[np.floating[Any]],
        shape: tuple[int | None, ...],
        allow_nan: bool | npt.NDArray[np.bool_] = False,
        minimum: float = -math.inf,
    ) -> npt.NDArray[Any]:
        """Read an array of finite numbers, or nan where `allow_nan`; None in `shape`: any size."""
        value = self._take_array(name, dtype, shape)
        if not (np.isfinite(value) | (np.isnan(value) & allow_nan)).all():
            raise self._make_diverged(name)
        if (value < minimum).any():
            raise self._make_error(name, f"numbers of at least {minimum}", float(np.nanmin(value)))
        return value

    def read_raw_array(
        self, name: str, dtype: type[np.unsignedinteger[Any]], shape: tuple[int | None, ...]
    ) -> npt.NDArray[Any]:
        """Read an array of unsigned integers with any values; None in `shape`: any size."""
        return self._take_array(name, dtype, shape)

    def read_counts(
        self, name: str, length: int | None = None, maximum: int | npt.NDArray[np.int64] = MAX_INT
    ) -> npt.NDArray[np.int64]:
        """Read `length` integers from 0 to `maximum`; without a length, one or more."""
        value = self._take(name)
        is_vector = isinstance(value, np.ndarray) and value.dtype == np.int64 and value.ndim == 1
        if not is_vector or len(value) != (length or max(len(value), 1)):
            expected = "one or more" if length is None else length
            raise self._make_error(name, f"a list of {expected} integers", value)
        counts: npt.NDArray[np.int64] = value
        if (counts < 0).any() or (counts > maximum).any():
            limit = maximum.tolist() if isinstance(maximum, np.ndarray) else maximum
            raise self._make_error(name, f"integers from 0 to {limit}", counts.tolist())
        return counts

    def read_group(
        self, name: str, is_known: Callable[[str], bool] = lambda name: True
    ) -> FieldReader:
        """Read a field that holds fields itself; reject names that are not known."""
        group = FieldReader(f"{self.where}.{name}", self._take(name))
        for inner in group.remaining_names():
            if not is_known(inner):
                raise BadMessage(f"{group.where}: this recipe has no field {inner!r}.")
        return group

    def remaining_names(self) -> list[str]:
        """Names of the fields that are not read yet."""
        return list(self._left)

    def check_empty(self) -> None:
        """Reject the message if it has fields that were not read."""
        if self._left:
            raise BadMessage(f"{self.where}: the field {min(self._left)!r} is not known.")

    def _take_array(
        self, name: str, dtype: type[np.generic], shape: tuple[int | None, ...]
    ) -> npt.NDArray[Any]:
        value = self._take(name)
        if not isinstance(value, np.ndarray) or value.dtype != dtype:
            raise self._make_error(name, f"an array of {np.dtype(dtype).name}", value)
        fits = (want in (None, size) for want, size in zip(shape, value.shape, strict=False))
        if len(shape) != value.ndim or not all(fits):
            expected = tuple("any" if size is None else size for size in shape)
            raise ShapeMismatch(
                f"{self.where}: {name} has shape {value.shape}, expected {expected}. Do both sides "
                "run the same recipe and net?"
            )
        return value

    def _take(self, name: str) -> Any:
        if name not in self._left:
            raise BadMessage(f"{self.where}: the field {name!r} is missing.")
        return self._left.pop(name)

    def _make_diverged(self, name: str) -> Diverged:
        return Diverged(
            f"{self.where}: {name} is not finite. Try a smaller learning rate, or less momentum."
        )

    def _make_error(self, name: str, expected: str, value: Any) -> BadMessage:
        got = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else repr(value)[:80]
        return BadMessage(f"{self.where}: {name} must be {expected}, got {got}.")
