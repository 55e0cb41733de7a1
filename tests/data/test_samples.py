from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from thalweg.core.errors import ThalwegError
from thalweg.data import Dataset


def test_mappings_become_columns_with_clients_and_times() -> None:
    rows = [({"a": i, 7: "u" if i % 2 else "v"}, i % 2, i % 5, float(i)) for i in range(20)]
    data = Dataset.from_stream(rows, standardise=False)
    assert data.columns == ("a", "7=u", "7=v")
    assert data.client_names == ("0", "1", "2", "3", "4")
    assert data.y_test.tolist() == [1, 0, 1, 0, 1]  # the last of four rows of every client
    assert data.x[3].tolist() == [3, 1, 0]


def test_a_missing_feature_follows_the_rules_for_missing_values() -> None:
    rows = [({"a": i, "b": 1.0} if i else {"a": 0}, i % 2) for i in range(10)]
    with pytest.raises(ThalwegError, match="row 1, column 'b' is missing"):
        Dataset.from_stream(rows)
    assert len(Dataset.from_stream(rows, missing="drop", test_fraction=0.3).y) == 6


def test_only_as_many_items_are_read_as_allowed() -> None:
    read = 0

    def endless() -> Iterator[Any]:
        nonlocal read
        while True:
            read += 1
            yield [read, 0.5], read % 2, "a", datetime.fromtimestamp(read, UTC)

    data = Dataset.from_stream(endless(), limit=10)
    assert read == 10
    assert data.time is not None
    assert data.time.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_torch_dataset_of_tensors_is_equal_to_its_arrays() -> None:
    x, y = torch.arange(60.0).reshape(10, 3, 2), torch.tensor([0, 1] * 5)
    one = Dataset.from_torch(TensorDataset(x, y))
    two = Dataset.from_arrays(x, y)
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_array_equal(one.y, two.y)
    assert one.name == "TensorDataset"


class Photos:
    def __init__(self, sizes: list[int], mode: str = "RGB") -> None:
        self.sizes, self.mode = sizes, mode

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        return Image.new("RGB", (self.sizes[i], 4), (i, 0, 255)).convert(self.mode), i % 2


@pytest.mark.parametrize("mode, channels", [("RGB", 3), ("L", 1), ("P", 3)])
def test_pil_images_become_bytes(mode: str, channels: int) -> None:
    data = Dataset.from_torch(Photos([5] * 10, mode))
    assert data.x.dtype == np.uint8
    assert data.x.shape == (8, 4, 5, channels)
    assert data.is_image


@pytest.mark.parametrize(
    "items, text",
    [
        ([], "expected items \\(x, y\\), got none"),
        ([([1, 2], 0), [1]], "item 1 is a list of length 1; expected \\(x, y\\)"),
        ([([1, 2], 0), ([1, 2], 0, 1)], "item 1 has 3 parts; expected 2"),
        ([([1, 2], 0), ([1], 0)], "item 1 has the shape \\(1,\\); expected \\(2,\\)"),
        ([({"a": 1}, 0), ({"a": "x"}, 1)], "'a' has values of different types"),
        ([([1.0], 0), ([np.inf], 1)], "x\\[1, 0\\] is inf"),
    ],
)
def test_invalid_items_are_rejected(items: list[Any], text: str) -> None:
    with pytest.raises(ThalwegError, match=text):
        Dataset.from_stream(items)


def test_images_of_different_sizes_are_rejected_with_a_remedy() -> None:
    with pytest.raises(ThalwegError, match=r"shape \(4, 6, 3\); expected \(4, 5, 3\).*Resize"):
        Dataset.from_torch(Photos([5, 6, 5, 5]))


def test_iterable_dataset_is_rejected_with_a_remedy() -> None:
    with pytest.raises(ThalwegError, match="from_stream"):
        Dataset.from_torch(iter([]))
