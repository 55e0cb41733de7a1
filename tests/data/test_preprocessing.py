from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import DataError
from thalweg.data import Dataset, Digits, Preprocessing

COLUMNS: dict[str, Any] = {
    "age": [float(i) for i in range(10)],
    "town": ["Ulm", "Bonn"] * 5,
    "sick": ["yes", "no"] * 5,
}


def make_preprocessing(**rules: Any) -> tuple[Dataset, Preprocessing]:
    data = Dataset.from_frame(COLUMNS, label="sick", **rules)
    return data, data.preprocessing


def test_transform_repeats_what_was_done_to_the_training_rows() -> None:
    data, rules = make_preprocessing(hold_out="rows")
    found = rules.transform({**COLUMNS, "more": [0] * 10})
    both = np.concatenate([data.x, data.x_test])
    assert sorted(map(tuple, found)) == sorted(map(tuple, both))


def test_rules_survive_json() -> None:
    for data in (make_preprocessing()[0], Digits().load(None, 0)):
        rules = data.preprocessing
        assert Preprocessing.from_dict(json.loads(json.dumps(rules.to_dict()))) == rules


def test_outputs_become_class_names_or_numbers() -> None:
    _, rules = make_preprocessing()
    assert rules.decode(np.array([[0.1, 0.9], [2.0, 1.0]])).tolist() == ["yes", "no"]
    digits = Preprocessing("classification", (2,), class_names=("0", "7"))
    assert digits.decode(np.array([[0.1, 0.9]])).tolist() == [7]
    numbers = Preprocessing("regression", (2,))
    assert numbers.decode(np.array([[0.5], [1.5]])).tolist() == [0.5, 1.5]
    assert numbers.decode(np.array([[0.5, 1.0]])).tolist() == [[0.5, 1.0]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"age": [1.0]}, "column town is missing; expected the columns age, town, got age"),
        (
            {"age": [1.0], "town": ["Rom"]},
            "row 1, column 'town' is 'Rom'; expected one of Bonn, Ulm",
        ),
        ({"age": [np.inf], "town": ["Ulm"]}, "row 1, column 'age' is inf"),
        ({"age": ["old"], "town": ["Ulm"]}, "column 'age' is string"),
        (np.zeros((2, 4)), r"shape \(2, 4\). Expected float32 of shape \(n, 3\)"),
        (np.zeros((2, 3)), "the columns of an array cannot be texts"),
        (np.array([["a", "b", "c"]]), "expected numbers, got"),
    ],
)
def test_bad_rows_are_rejected(rows: Any, message: str) -> None:
    _, rules = make_preprocessing()
    with pytest.raises(DataError, match=message):
        rules.transform(rows)


def test_images_of_another_type_are_rejected() -> None:
    rules = Digits().load(None, 0).preprocessing
    shape = rules.shape
    assert rules.transform(np.zeros((2, *shape), np.uint8)).shape == (2, *shape)
    with pytest.raises(DataError, match="got float64 of shape"):
        rules.transform(np.zeros((2, *shape)))
