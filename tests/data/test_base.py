from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import DataError
from thalweg.core.transforms import Shifted
from thalweg.core.views import View
from thalweg.data import Dataset


def dataset(**changes: Any) -> Dataset:
    parts: dict[str, Any] = {
        "name": "toy",
        "x": np.zeros((3, 2), dtype=np.float32),
        "y": np.array([0, 1, 1]),
        "x_test": np.zeros((1, 2), dtype=np.float32),
        "y_test": np.array([0]),
        "num_classes": 2,
    }
    return Dataset(**(parts | changes))


def test_image_input_shape_has_channels_first() -> None:
    images = np.zeros((3, 4, 5, 1), dtype=np.uint8)
    data = dataset(x=images, x_test=images[:1])
    assert data.is_image
    assert data.input_shape == (1, 4, 5)


def test_feature_input_shape_is_unchanged() -> None:
    assert not dataset().is_image
    assert dataset().input_shape == (2,)


def test_sequence_input_shape_is_length_and_number_of_codes() -> None:
    codes = np.array([[0, 4], [1, 1], [2, 3]], dtype=np.uint8)
    data = dataset(x=codes, x_test=codes[:1], num_codes=5)
    assert data.is_sequence
    assert not data.is_image
    assert data.input_shape == (2, 5)
    assert not dataset().is_sequence


def test_sequence_codes_may_need_two_bytes() -> None:
    codes = np.array([[0, 40_000], [1, 1], [2, 3]], dtype=np.uint16)
    assert dataset(x=codes, x_test=codes[:1], num_codes=40_001).input_shape == (2, 40_001)
    with pytest.raises(DataError, match="up to 40000, expected 0 to 39999"):
        dataset(x=codes, x_test=codes[1:2], num_codes=40_000)


def test_dataset_supports_test_groups_and_coarse_labels() -> None:
    data = dataset(
        client=np.array([0, 1, 1]),
        client_test=np.array([2]),  # all of its rows are for testing
        coarse=np.array([0, 3, 3]),
        client_names=("a", "b", "c"),
    )
    assert data.client_test is not None
    assert data.coarse is not None


CODES = np.zeros((3, 2), dtype=np.uint8)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"x": np.zeros((0, 2), dtype=np.float32), "y": np.zeros(0, dtype=int)}, "no samples"),
        ({"y": np.array([0, 1])}, "3 samples but 2 labels in train"),
        ({"y_test": np.array([0, 1])}, "1 samples but 2 labels in test"),
        ({"y": np.array([0, 1, 2])}, "labels in train run from 0 to 2, expected 0 to 1"),
        ({"y_test": np.array([-1])}, "labels in test run from -1"),
        ({"client": np.array([0, 0])}, "3 training samples but 2 entries in client"),
        ({"time": np.zeros(4)}, "3 training samples but 4 entries in time"),
        ({"client": np.array([0, -1, 0])}, "clients must be at least 0, got -1"),
        ({"time": np.array([0.0, np.nan, 1.0])}, "time must contain finite"),
        ({"class_names": ("a", "b", "c")}, "3 class names for 2 classes"),
        ({"client_test": np.array([0])}, "no client for the training samples; expected both"),
        (
            {"client": np.zeros(3, dtype=int), "client_test": np.array([0, 0])},
            "1 test samples but 2 entries in client_test",
        ),
        (
            {"client": np.zeros(3, dtype=int), "client_test": np.array([-2])},
            "clients must be at least 0, got -2",
        ),
        (
            {"client": np.array([0, 1, 2]), "client_names": ("a", "b")},
            "2 names of clients, but a sample of client 2; expected clients 0 to 1",
        ),
        ({"coarse": np.array([0, 0])}, "3 training samples but 2 entries in coarse"),
        ({"coarse": np.array([0, -1, 0])}, "coarse labels must be at least 0, got -1"),
        (
            {"num_codes": 5},
            r"sequences of codes are uint8 or uint16 of shape \(n, L\), got float32",
        ),
        (
            {"x": CODES + 5, "x_test": CODES[:1], "num_codes": 5},
            "codes in train run up to 5, expected 0 to 4",
        ),
        (
            {"x": CODES, "x_test": CODES[:1] + 7, "num_codes": 5},
            "codes in test run up to 7, expected 0 to 4",
        ),
    ],
)
def test_inconsistent_dataset_parts_are_rejected(changes: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        dataset(**changes)


def regression(**changes: Any) -> Dataset:
    numbers = {"y": np.array([0.5, -1, 2], np.float32), "y_test": np.array([3], np.float32)}
    return dataset(**({**numbers, "num_classes": 0} | changes))


def test_dataset_without_classes_is_a_regression() -> None:
    data = regression()
    assert (data.task, data.num_outputs, data.num_stream_classes) == ("regression", 1, 1)
    assert data.all_classes("train").tolist() == [0, 0, 0]
    wide = regression(y=np.zeros((3, 2), np.float32), y_test=np.zeros((1, 2), np.float32))
    assert wide.num_outputs == 2
    assert wide.labels("train", np.array([[0, 1], [2, 0]])).shape == (2, 2, 2)
    assert (dataset().task, dataset().num_outputs) == ("classification", 2)


def test_regression_targets_are_the_same_in_every_view() -> None:
    data = regression(views=(View(), View(Shifted(1.0))))
    assert data.labels("train", np.array([0, 3, 5])).tolist() == [0.5, 0.5, 2.0]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"y": np.array([0.5, np.nan, 2], np.float32)}, "the target in row 1 of train is nan"),
        ({"y_test": np.array([np.inf], np.float32)}, "row 0 of test is inf; expected finite"),
        ({"y": np.array([0, 1, 1])}, "expected float32 of shape .* got int64"),
        ({"y_test": np.zeros((1, 2), np.float32)}, r"got float32 of shape \(1, 2\) in test"),
        ({"class_names": ("a", "b")}, "class names for 0 classes"),
        ({"coarse": np.zeros(3, np.int64)}, "coarse describes classes"),
    ],
)
def test_inconsistent_regression_targets_are_rejected(changes: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        regression(**changes)
