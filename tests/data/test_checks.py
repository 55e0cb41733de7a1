from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import thalweg
from thalweg.core.remedies import messages_for
from thalweg.data import Dataset
from thalweg.data.checks import DataWarning, find_problems

N = 200


def make_columns(**more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, N)
    return {"size": rng.normal(size=N) + label, "sick": label, **more}


def problems_of(**more: Any) -> str:
    return " ".join(find_problems(Dataset.from_frame(make_columns(**more), label="sick")))


def test_ordinary_columns_give_no_warning() -> None:
    rng = np.random.default_rng(1)
    assert problems_of(weight=rng.normal(size=N), town=rng.choice(["a", "b"], N)) == ""


def test_column_that_determines_the_label_is_reported() -> None:
    label = np.asarray(make_columns()["sick"])
    assert "'result' alone almost determines the target" in problems_of(result=7.0 - 2 * label)
    noise = np.random.default_rng(2).normal(size=N) / 100
    assert "'result' alone almost determines the target" in problems_of(result=label + noise)


def test_rare_class_is_not_a_leak() -> None:
    rng = np.random.default_rng(3)
    columns = {"size": rng.normal(size=N), "sick": (np.arange(N) < 3).astype(int)}
    assert find_problems(Dataset.from_frame(columns, label="sick")) == []


def test_counters_identifiers_and_times_are_reported() -> None:
    rng = np.random.default_rng(4)
    assert "'n' never decreases from row to row" in problems_of(n=np.arange(N))
    assert "'device_id' looks like an identifier" in problems_of(device_id=rng.permutation(N))
    assert "'year' looks like a time" in problems_of(year=rng.integers(1990, 2020, N))


def test_identifiers_with_several_rows_are_reported() -> None:
    rng = np.random.default_rng(6)
    patient = rng.permutation(np.repeat(np.arange(5000, 5100), 2))  # 100 patients, two rows each
    found = problems_of(patient=patient)
    assert "'patient' looks like an identifier: 100 different values in 200 rows" in found
    assert "data={'drop': ['patient']}), or name it as the client column" in found
    assert "'case_id' looks like" in problems_of(case_id=rng.integers(0, 90, N))  # by its name
    texts = [f"ward {i}" for i in rng.permutation(np.repeat(np.arange(40), 5))]
    assert "'ward' looks like an identifier: 40 different values" in problems_of(ward=texts)


def test_quantities_are_not_identifiers() -> None:
    rng = np.random.default_rng(7)
    columns = {
        "age": rng.integers(18, 95, N),
        "price": rng.integers(0, 10**6, N),
        "length": rng.normal(size=N),
        "month": np.tile(np.arange(10), N // 10),
        "town": rng.choice([f"town {i}" for i in range(30)], N),
    }
    found = problems_of(**{name: rng.permutation(each) for name, each in columns.items()})
    assert "identifier" not in found


def test_large_identifiers_that_32_bits_cannot_distinguish_are_reported() -> None:
    numbers = 4_000_000_000 + 1000 * np.random.default_rng(8).permutation(N)
    assert "'phone_number' looks like an identifier" in problems_of(phone_number=numbers)


def test_clients_with_one_row_are_reported() -> None:
    who = ["a"] * 100 + ["b"] * 98 + ["c", "d"]
    data = Dataset.from_frame({**make_columns(), "who": who}, label="sick", client="who")
    (text,) = find_problems(replace(data, client=np.r_[data.client[:-2], 2, 3]))
    assert text.startswith("2 of 4 clients have one training row ('c', 'd')")


def test_texts_that_are_mostly_numbers_are_reported() -> None:
    values = np.random.default_rng(9).choice(["1", "2", "3"], N).tolist()
    values[7] = "?"
    found = problems_of(grade=values)
    assert "'grade' is used as 4 categories, but most of its texts are numbers; '?' is not" in found


def test_remedies_fit_the_caller() -> None:
    data = Dataset.from_frame(make_columns(n=np.arange(N)), label="sick")
    with messages_for("command line"):
        assert "--set data.time=n), or drop it (--set data.drop=n)" in find_problems(data)[0]
    with pytest.warns(DataWarning, match=r"time column \(time='n'\), or drop it \(drop=\['n'\]\)"):
        thalweg.run("fedavg", data, rounds=1, workers=1)


def test_repeated_rows_are_reported() -> None:
    half = {
        name: np.tile(np.asarray(column)[: N // 2], 2) for name, column in make_columns().items()
    }
    (text,) = find_problems(Dataset.from_frame(half, label="sick"))
    assert text.startswith("100 of 200 rows repeat another row exactly")
    assert "of the 40 test rows are also training rows" in text


def test_function_of_a_regression_target_is_reported() -> None:
    rng = np.random.default_rng(5)
    y = rng.normal(size=N)
    data = Dataset.from_frame({"a": rng.normal(size=N), "b": np.exp(y), "y": y}, label="y")
    assert "'b' alone almost determines the target" in " ".join(find_problems(data))


def test_run_warns_about_own_data_in_python() -> None:
    data = Dataset.from_frame(make_columns(n=np.arange(N)), label="sick")
    with pytest.warns(DataWarning, match="'n' never decreases"):
        thalweg.run("fedavg", data, rounds=1, workers=1)


def test_class_with_one_row_is_reported() -> None:
    columns = make_columns()
    columns["sick"] = ["yes" if label else "no" for label in columns["sick"]]
    columns["sick"][5] = "yess"
    (text,) = find_problems(Dataset.from_frame(columns, label="sick"))
    assert text.startswith("1 of 3 classes have one row ('yess')")


@pytest.mark.parametrize("size, is_large", [(20.0, False), (21.0, True)])
def test_large_numbers_to_predict_are_reported(size: float, is_large: bool) -> None:
    x = np.random.default_rng(10).normal(size=N)
    columns = {"x": x, "y": size * np.tile([-1.0, 1.0], N // 2)}
    data = Dataset.from_frame(columns, label="y", task="regression")
    found = " ".join(find_problems(data))
    assert ("large (root mean square 21) and are not scaled" in found) == is_large
