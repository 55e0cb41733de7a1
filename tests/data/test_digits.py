from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from thalweg.data import Digits, digits


def test_every_digit_is_in_exactly_one_part() -> None:
    data = Digits().load(None, seed=0)
    ours = np.concatenate([data.x, data.x_test]).reshape(-1, 64)  # (1797, 64)
    theirs = np.rint(load_digits().data * 255 / 16).astype(np.uint8)
    assert sorted(map(bytes, ours)) == sorted(map(bytes, theirs))
    assert ours.max() == 255


def test_digits_test_part_is_a_fifth_of_every_class() -> None:
    data = Digits().load(None, seed=0)
    train, test = np.bincount(data.y), np.bincount(data.y_test)  # (10,)
    assert (abs(test - 0.2 * (train + test)) <= 0.5).all()


def test_digits_split_does_not_depend_on_the_seed() -> None:
    one, two = Digits().load(None, seed=1), Digits().load(None, seed=2)
    np.testing.assert_array_equal(one.x_test, two.x_test)
    np.testing.assert_array_equal(one.y_test, two.y_test)


def test_digits_mean_and_std_are_those_of_the_training_pixels() -> None:
    data = Digits().load(None, seed=0)
    pixels = data.x / 255
    assert data.mean == pytest.approx((pixels.mean(),), abs=5e-5)
    assert data.std == pytest.approx((pixels.std(),), abs=5e-5)


def test_digits_file_matches_scikit_learn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick = Digits().load(None, seed=0)
    monkeypatch.setattr(digits, "_find_file", lambda: None)
    asked = Digits().load(None, seed=0)
    for part in ("x", "y", "x_test", "y_test"):
        ours, theirs = getattr(quick, part), getattr(asked, part)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_digits_file_of_scikit_learn_is_found() -> None:
    assert digits._find_file() is not None
