from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.doubles import batch
from thalweg.core.errors import BadMessage
from thalweg.data import Dataset, Digits
from thalweg.edge.blank import Blank, blank_from_json, blank_of, blank_to_json
from thalweg.streams.sources import LiveBatch

IMAGES = Blank((8, 8, 1), "uint8", 10, mean=(0.1,), std=(0.3,))
CODES = Blank((4,), "uint8", 5, num_codes=5)


def test_a_data_set_survives_without_its_samples() -> None:
    data = Digits().load(None, 0)
    blank = blank_from_json(blank_to_json(blank_of(data)))
    assert blank == blank_of(data)
    mine = blank.around(data.x[:3], data.y[:3])
    assert isinstance(mine, Dataset)
    assert (mine.input_shape, mine.mean, mine.std) == (data.input_shape, data.mean, data.std)
    assert mine.class_names == data.class_names
    assert blank.form.shape == (8, 8, 1)


@pytest.mark.parametrize(
    "blank", [IMAGES, CODES, Blank((3,), "float32", 2, class_names=("a", "b"))]
)
def test_it_travels_as_text(blank: Blank) -> None:
    assert blank_from_json(blank_to_json(blank)) == blank


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": []},
        {"shape": [0]},
        {"shape": [2.0]},
        {"shape": [1 << 40]},
        {"shape": [1 << 20, 1 << 20, 1]},
        {"dtype": "object"},
        {"num_classes": 0},
        {"num_classes": True},
        {"mean": [float("nan")]},
        {"std": [0.0]},
        {"mean": []},
        {"class_names": ["one"]},
        {"num_codes": -1},
    ],
)
def test_what_describes_no_data_set_is_refused(changes: dict[str, object]) -> None:
    text = json.dumps({**json.loads(blank_to_json(IMAGES)), **changes})
    with pytest.raises(BadMessage, match="does not describe a data set"):
        blank_from_json(text)


@given(st.recursive(st.none() | st.text() | st.integers() | st.floats(), st.lists))
def test_any_text_is_refused_and_nothing_else_happens(plain: object) -> None:
    for text in (json.dumps(plain), json.dumps({"shape": plain}), str(plain)):
        with pytest.raises(BadMessage):
            blank_from_json(text)


def test_codes_out_of_range_do_not_fit() -> None:
    inputs = np.array([[0, 1, 2, 4], [0, 1, 2, 5]], dtype=np.uint8)
    both = LiveBatch(inputs, np.zeros(2, dtype=np.int64), np.zeros(2), ("", ""), "")
    assert CODES.fitting(both).tolist() == [0]
    assert CODES.fitting(batch([1])).tolist() == []
