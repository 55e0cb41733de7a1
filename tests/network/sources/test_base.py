from __future__ import annotations

from typing import Any

import pytest

from thalweg.core.errors import ConfigError
from thalweg.network.sources import SampleFormat, empty_batch


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dtype": "float64"}, "uint8, uint16 or float32"),
        ({"shape": ()}, "positive sizes"),
        ({"shape": (0,)}, "positive sizes"),
        ({"num_classes": -1}, "num_classes must be at least 1, or 0 for a regression, got -1"),
        ({"target_shape": (3,)}, r"\(\) for classes, got \(3,\) for num_classes=2"),
        ({"num_classes": 0, "target_shape": (2, 2)}, r"must be \(\) or \(D,\)"),
        ({"num_classes": 0, "target_shape": (0,)}, r"a positive size, got \(0,\)"),
        ({"classes": ("a",)}, "1 class names for 2 classes"),
        ({"columns": ("a", "b", "c")}, r"3 column names \(a, b, c\) for samples of 2 numbers"),
    ],
)
def test_invalid_sample_formats_are_rejected(change: dict[str, Any], why: str) -> None:
    plain: dict[str, Any] = {"shape": (2,), "dtype": "float32", "num_classes": 2}
    with pytest.raises(ConfigError, match=why):
        SampleFormat(**{**plain, **change})


def test_empty_batch_has_the_shape_of_the_samples() -> None:
    batch = empty_batch(SampleFormat((8, 8, 1), "uint8", 10), "here")
    assert batch.inputs.shape == (0, 8, 8, 1)
    assert batch.inputs.dtype == "uint8"
    assert (len(batch.labels), len(batch.times), batch.keys, batch.cursor) == (0, 0, (), "here")
