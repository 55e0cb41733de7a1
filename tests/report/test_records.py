import csv
import io

import pytest

from thalweg.report import summarise, to_csv


def test_csv_has_one_number_per_field(comparison):
    first, second = csv.DictReader(io.StringIO(to_csv(summarise(comparison, {"sfedpo": 83.0}))))
    assert (first["accuracy_percent_mean"], first["accuracy_percent_std"]) == ("82.0000", "2.0000")
    assert (first["published_percent"], first["points_from_published"]) == ("83.0000", "-1.0000")
    assert first["difference_points_mean"] == ""
    assert second["difference_points_mean"] == "-2.0000"
    assert float(second["difference_p_value"]) == pytest.approx(0.0741799)
    assert second["difference_seeds"] == "3"


def test_csv_columns_do_not_depend_on_what_was_measured(cell, comparison):
    bare = to_csv(summarise([cell(rows=[{"round": 1}])]))
    assert bare.splitlines()[0] == to_csv(summarise(comparison)).splitlines()[0]


def test_csv_always_has_the_balanced_accuracy(cell):
    rows = [{"round": 1, "accuracy": 0.75, "balanced_accuracy": 0.7475}]
    (line,) = csv.DictReader(io.StringIO(to_csv(summarise([cell("sfedpo", 0, rows=rows)]))))
    assert line["balanced_accuracy_percent_mean"] == "74.7500"
    (without,) = csv.DictReader(io.StringIO(to_csv(summarise([cell()]))))
    assert without["balanced_accuracy_percent_mean"] == ""
