from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import DataError
from thalweg.data import Dataset, Digits, Preprocessing
from thalweg.data.preprocessing import InputColumn

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
        (np.zeros((2, 4)), r"expected float32 of shape \(n, 3\).*; got an array of shape \(2, 4\)"),
        (np.zeros((2, 3)), "the columns of an array cannot be texts"),
        (np.array([["a", "b", "c"]]), r"; got <U1 of shape \(1, 3\)"),
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


def test_numbers_that_are_texts_become_numbers() -> None:
    columns = {**COLUMNS, "dose": [f" {i / 4} " for i in range(10)], "zip": ["01067", "10115"] * 5}
    data = Dataset.from_frame(columns, label="sick", standardise=False)
    assert data.columns == ("age", "town=Bonn", "town=Ulm", "dose", "zip=01067", "zip=10115")
    dose = next(column for column in data.encoding if column.name == "dose")
    assert dose == InputColumn("dose", from_text=True)
    rows = {"age": [1.0], "town": ["Ulm"], "zip": ["10115"]}
    expected = [[1.0, 0.0, 1.0, 0.75, 0.0, 1.0]]
    for value in ("0.75", 0.75):  # texts or numbers
        assert data.preprocessing.transform({**rows, "dose": [value]}).tolist() == expected
    with pytest.raises(DataError, match=r"column 'dose' is string, for example 'much' in row 1"):
        data.preprocessing.transform({**rows, "dose": ["much"]})


def test_missing_values_among_number_texts_are_filled() -> None:
    columns = {**COLUMNS, "dose": [None, "3", *["1"] * 8]}
    data = Dataset.from_frame(columns, label="sick", missing="fill", standardise=False)
    dose = next(column for column in data.encoding if column.name == "dose")
    assert dose.from_text
    assert dose.fill is not None
    assert 1 <= dose.fill < 3
    with pytest.raises(DataError, match=r"row 1, column 'dose' is missing.*missing='fill'"):
        Dataset.from_frame(columns, label="sick")


def test_label_of_fractions_that_are_texts_is_a_regression() -> None:
    columns = {"x": [float(i) for i in range(10)], "y": [str(i / 2) for i in range(10)]}
    assert Dataset.from_frame(columns, label="y").task == "regression"
    whole = {**columns, "y": ["3", "7"] * 5}
    assert Dataset.from_frame(whole, label="y").class_names == ("3", "7")


def test_many_texts_most_of_which_are_numbers_are_rejected_with_the_others() -> None:
    texts = [str(i) for i in range(60)] + ["?"]
    columns = {"size": texts, "sick": [0, 1] * 30 + [0]}
    expected = r"61 different texts, most of which are numbers, but not '\?' \(row 61\); expected"
    with pytest.raises(DataError, match=expected):
        Dataset.from_frame(columns, label="sick")
    more = {"size": [*texts, "3"], "a": [None, *range(61)], "sick": [0, 1] * 31}
    with pytest.raises(DataError, match=r"without the rows that .* drops: .*'\?' \(row 60\)"):
        Dataset.from_frame(more, label="sick", missing="drop")
