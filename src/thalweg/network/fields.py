"""The fields of a message that came from outside, taken out one by one and checked."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import BadMessage, Diverged, ShapeMismatch

MAX_INT = 1 << 62  # of whole numbers; they become int64
MAX_NAMES = 64
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

W = TypeVar("W", bound=str)


class FieldReader:
    """What is left of a message. Every method takes a field away; `end` says that none is left over."""

    def __init__(self, where: str, plain: Any) -> None:
        self.where = where
        if not isinstance(plain, dict) or len(plain) > MAX_NAMES:
            raise self._make_error("this", f"at most {MAX_NAMES} values by name", plain)
        for name in plain:
            if not NAME.fullmatch(name):
                raise self._make_error("a name", "at most 64 letters, digits and _.-", name)
        self._left: dict[str, Any] = dict(plain)

    def read_int(self, name: str, maximum: int = MAX_INT) -> int:
        """A number that counts something."""
        value = self._take(name)
        if type(value) is not int or not 0 <= value <= maximum:
            raise self._make_error(name, f"a whole number from 0 to {maximum}", value)
        return value

    def read_float(self, name: str, minimum: float = -math.inf, allow_nan: bool = False) -> float:
        """A finite number of at least `minimum`, or nan if that may be."""
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
        value = self._take(name)
        if type(value) is not bool:
            raise self._make_error(name, "true or false", value)
        return value

    def read_choice(self, name: str, known: Collection[W]) -> W:
        value = self._take(name)
        for word in known if type(value) is str else ():
            if word == value:
                return word
        raise self._make_error(name, f"one of {', '.join(known) or 'nothing'}", value)

    def read_text(self, name: str, maximum: int) -> str:
        """Words of any kind, at most so many characters."""
        value = self._take(name)
        if type(value) is not str or len(value) > maximum:
            raise self._make_error(name, f"a text of at most {maximum} characters", value)
        return value

    def pop_if_none(self, name: str) -> bool:
        """Is there nothing in this field? Then it is taken away."""
        if self._left.get(name, name) is not None:
            return False
        del self._left[name]
        return True

    def require_none(self, name: str, or_else: str) -> None:
        """A field in which there must be nothing; else why."""
        if self._take(name) is not None:
            raise BadMessage(f"{self.where}: {or_else}")

    def read_array(
        self,
        name: str,
        dtype: type[np.floating[Any]],
        shape: tuple[int | None, ...],
        allow_nan: bool | npt.NDArray[np.bool_] = False,
        minimum: float = -math.inf,
    ) -> npt.NDArray[Any]:
        """Finite numbers, or nan where that may be, of a certain shape; None: any number of them."""
        value = self._take_array(name, dtype, shape)
        if not (np.isfinite(value) | (np.isnan(value) & allow_nan)).all():
            raise self._make_diverged(name)
        if (value < minimum).any():
            raise self._make_error(name, f"numbers of at least {minimum}", float(np.nanmin(value)))
        return value

    def read_raw_array(
        self, name: str, dtype: type[np.unsignedinteger[Any]], shape: tuple[int | None, ...]
    ) -> npt.NDArray[Any]:
        """Bits without a meaning, of a certain shape; None: any number of them."""
        return self._take_array(name, dtype, shape)

    def read_counts(
        self, name: str, length: int | None = None, maximum: int | npt.NDArray[np.int64] = MAX_INT
    ) -> npt.NDArray[np.int64]:
        """Numbers that count something, at least one of them, or so many."""
        value = self._take(name)
        is_right = isinstance(value, np.ndarray) and value.dtype == np.int64 and value.ndim == 1
        if not is_right or len(value) != (length or max(len(value), 1)):
            expected = "one or more" if length is None else length
            raise self._make_error(name, f"a list of {expected} whole numbers", value)
        counts: npt.NDArray[np.int64] = value
        if (counts < 0).any() or (counts > maximum).any():
            raise self._make_error(
                name, "whole numbers from 0 to what is possible", counts.tolist()
            )
        return counts

    def read_group(
        self, name: str, known: Callable[[str], bool] = lambda name: True
    ) -> FieldReader:
        """Fields inside a field, all of them under names that are known."""
        inside = FieldReader(f"{self.where}.{name}", self._take(name))
        for each in inside.remaining_names():
            if not known(each):
                raise BadMessage(f"{inside.where}: nobody knows {each!r} in this recipe.")
        return inside

    def remaining_names(self) -> list[str]:
        """Of the fields that are left."""
        return list(self._left)

    def check_empty(self) -> None:
        if self._left:
            raise BadMessage(f"{self.where}: nobody knows the field {min(self._left)!r}.")

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

    def _make_error(self, name: str, expected: str, came: Any) -> BadMessage:
        what = f"an array of {came.dtype}" if isinstance(came, np.ndarray) else repr(came)[:80]
        return BadMessage(f"{self.where}: {name} must be {expected}, got {what}.")
