from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.core.transforms import Inverted, Mirrored, Rotated, Shifted, Swapped
from thalweg.core.views import View
from thalweg.data import Dataset
from thalweg.data.views import check_views

RNG = np.random.default_rng(3)
IMAGES = RNG.integers(0, 256, (7, 5, 5, 2), dtype=np.uint8)
LABELS = np.array([0, 1, 2, 2, 1, 0, 2])
PLAIN = Dataset("toy", IMAGES, LABELS, IMAGES[:3], LABELS[:3], 3, (0.5, 0.5), (0.2, 0.2))
VIEWS = (View(), View(Rotated(90), 1), View(Rotated(90)), View(Inverted(), (1, 1, 0)))
SEEN = replace(PLAIN, views=VIEWS)
rows = st.lists(st.integers(0, SEEN.num_rows("train") - 1), max_size=30)


def test_rows_without_views_are_samples() -> None:
    mine = np.array([[6, 0], [3, 3]])
    assert np.array_equal(PLAIN.samples("train", mine), IMAGES[mine])
    assert np.array_equal(PLAIN.labels("train", mine), LABELS[mine])
    assert PLAIN.all_labels("train") is PLAIN.y
    assert PLAIN.all_labels("test") is PLAIN.y_test
    assert PLAIN.num_rows("train") == PLAIN.num_samples("train") == 7


def test_rows_of_a_view_are_transformed_samples() -> None:
    assert (SEEN.num_rows("train"), SEEN.num_rows("test")) == (28, 12)
    assert (SEEN.num_samples("train"), SEEN.num_samples("test")) == (7, 3)
    turned = SEEN.samples("train", np.array([7 + 4, 14 + 4]))
    assert np.array_equal(turned, np.rot90(IMAGES[[4, 4]], axes=(1, 2)))
    assert SEEN.labels("train", np.array([4, 7 + 4, 14 + 3, 21 + 3])).tolist() == [1, 1, 2, 0]
    assert np.array_equal(SEEN.samples("test", np.array([9 + 2])), 255 - IMAGES[[2]])
    assert SEEN.labels("test", np.array([3 + 2])).tolist() == [0]


@given(rows=rows)
def test_batch_of_several_views_equals_single_rows(rows: list[int]) -> None:
    mine = np.array(rows, dtype=np.int32)
    together = SEEN.samples("train", mine)
    assert (together.shape, together.dtype) == ((len(rows), 5, 5, 2), np.uint8)
    for row, sample in zip(rows, together, strict=True):
        view, base = divmod(row, 7)
        alone = VIEWS[view].transform.apply(IMAGES[base : base + 1])[0]
        assert np.array_equal(sample, alone)
        assert SEEN.labels("train", np.array(row)) == VIEWS[view].label_map(3)[LABELS[base]]


@given(rows=rows)
def test_identity_views_return_the_samples(rows: list[int]) -> None:
    mine = np.array(rows, dtype=np.int64)
    same = replace(PLAIN, views=(View(), View(Rotated(360)), View(labels=0), View()))
    assert np.array_equal(same.samples("train", mine), IMAGES[mine % 7])
    assert np.array_equal(same.labels("train", mine), LABELS[mine % 7])


def test_rows_may_have_any_shape_and_samples_are_copies() -> None:
    mine = np.arange(28).reshape(2, 14)
    taken = SEEN.samples("train", mine)
    assert taken.shape == (2, 14, 5, 5, 2)
    assert np.array_equal(taken[1, 3], SEEN.samples("train", np.array([17]))[0])
    before = IMAGES.copy()
    taken[:] = 0
    assert np.array_equal(IMAGES, before)


def test_row_beyond_the_last_view_raises_index_error() -> None:
    with pytest.raises(IndexError, match="4"):
        SEEN.samples("train", np.array([28]))
    with pytest.raises(IndexError, match="28"):
        SEEN.labels("train", np.array([28]))


def test_empty_test_part_has_no_rows() -> None:
    data = replace(SEEN, x_test=IMAGES[:0], y_test=LABELS[:0])
    assert data.num_rows("test") == 0
    assert data.samples("test", np.empty(0, dtype=np.int64)).shape == (0, 5, 5, 2)


FEATURES = Dataset(
    "rows",
    np.ones((4, 2), np.float32),
    np.zeros(4, int),
    np.ones((1, 2), np.float32),
    np.zeros(1, int),
    2,
)
CODES = replace(
    FEATURES, x=np.zeros((4, 2), np.uint8), x_test=np.zeros((1, 2), np.uint8), num_codes=3
)


@dataclass(frozen=True)
class Cropped:
    """A transform that returns a smaller image."""

    def check(self, kind: Any, shape: Any) -> None:
        return None

    def apply(self, samples: Any) -> Any:
        return samples[:, 1:]


@pytest.mark.parametrize(
    "data, view, message",
    [
        (FEATURES, View(Rotated(90)), "Rotated changes images, but these samples are features"),
        (PLAIN, View(Shifted(1.0)), "Shifted changes features, but these samples are images"),
        (CODES, View(Mirrored()), "sequences"),
        (FEATURES, View(Swapped(0, 2)), "have 2 of them"),
        (FEATURES, View(labels=3), "with 2 classes there are concepts 0 to 2"),
        (PLAIN, View(labels=(0, 1)), "do not fit 3 classes"),
        (PLAIN, View(Cropped()), "Cropped.apply must keep the shape"),
    ],
)
def test_views_that_do_not_fit_the_data_are_rejected(
    data: Dataset, view: View, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(data, views=(View(), view))


def test_first_view_must_be_the_identity() -> None:
    with pytest.raises(ConfigError, match="first view must be the identity"):
        replace(PLAIN, views=(View(labels=1), View()))


def test_too_many_rows_are_rejected() -> None:
    with pytest.raises(ConfigError, match="use fewer views"):
        check_views((View(), View()), FEATURES.x, "features", 2, num_samples=2**30)


def test_sequences_may_have_views_with_other_labels() -> None:
    data = replace(CODES, y=np.array([0, 1, 1, 0]), views=(View(), View(labels=1)))
    assert data.labels("train", np.array([1, 5])).tolist() == [1, 0]
    assert data.samples("train", np.array([5])).dtype == np.uint8
