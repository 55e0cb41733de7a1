"""Single fields; whole messages are tested in test_wire.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import BadMessage, Diverged, ShapeMismatch
from thalweg.network.fields import MAX_INT, FieldReader


def field(value: Any) -> FieldReader:
    return FieldReader("Message", {"x": value})


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1], -1, MAX_INT + 1, np.ones(1)])
def test_read_int_accepts_only_integers_in_range(value: Any) -> None:
    with pytest.raises(BadMessage, match="Message: x must be an integer from 0 to"):
        field(value).read_int("x")
    assert field(MAX_INT).read_int("x") == MAX_INT


@pytest.mark.parametrize("value", [True, "1", None, [1.0], np.ones(1)])
def test_read_float_accepts_only_numbers(value: Any) -> None:
    with pytest.raises(BadMessage, match="Message: x must be a number, got"):
        field(value).read_float("x")
    assert field(3).read_float("x") == 3.0


def test_read_float_rejects_values_that_are_not_finite() -> None:
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(Diverged, match="Message: x is not finite"):
            field(value).read_float("x")
    assert math.isnan(field(math.nan).read_float("x", allow_nan=True))
    with pytest.raises(Diverged, match="not finite"):
        field(math.inf).read_float("x", allow_nan=True)


def test_read_array_rejects_values_that_are_not_finite() -> None:
    for value in (np.nan, np.inf):
        with pytest.raises(Diverged, match="Message: x is not finite"):
            field(np.array([0, value])).read_array("x", np.float64, (2,))
    some = np.array([0, np.nan])
    assert field(some).read_array("x", np.float64, (None,), allow_nan=True) is some
    with pytest.raises(Diverged, match="not finite"):
        field(np.array([0, np.inf])).read_array("x", np.float64, (2,), allow_nan=True)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (2, 3, 1)])
def test_read_array_rejects_other_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeMismatch, match=r"x has shape .*, expected \('any', 3\)"):
        field(np.zeros(shape)).read_array("x", np.float64, (None, 3))
    assert field(np.zeros((5, 3))).read_array("x", np.float64, (None, 3)).shape == (5, 3)


def test_read_bool_accepts_only_booleans() -> None:
    assert field(False).read_bool("x") is False
    with pytest.raises(BadMessage, match="Message: x must be true or false, got 0"):
        field(0).read_bool("x")


@pytest.mark.parametrize("value", [[], None, 3, "text", np.ones(2)])
def test_read_group_accepts_only_dicts(value: Any) -> None:
    with pytest.raises(
        BadMessage, match=r"Message\.x: the content must be a dict of at most 64 fields"
    ):
        field(value).read_group("x")


def test_a_field_can_be_read_once() -> None:
    fields = field(1)
    assert fields.remaining_names() == ["x"]
    fields.read_int("x")
    fields.check_empty()
    with pytest.raises(BadMessage, match="Message: the field 'x' is missing"):
        fields.read_int("x")
