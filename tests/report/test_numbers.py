"""Formats of numbers in tables."""

from hypothesis import given
from hypothesis import strategies as st

from thalweg.report.numbers import NONE, amount, p_value, paired_points, percent_spread, points
from thalweg.report.summary import PairedDifference, Spread


def test_percentages_have_two_decimals_and_an_optional_spread():
    assert percent_spread(Spread(0.8731, 0.0012, 3)) == "87.31 ± 0.12"
    assert percent_spread(Spread(1.0, None, 1)) == "100.00"


def test_missing_values_are_formatted_as_a_dash():
    nothing = [percent_spread(None), amount(None), points(None), paired_points(None), p_value(None)]
    assert nothing == [NONE] * 5


def test_differences_are_points_with_a_typographic_minus_sign():
    assert paired_points(PairedDifference(-0.02, 0.01, None, 3)) == "−2.00 ± 1.00"
    assert paired_points(PairedDifference(0.02, None, None, 1)) == "+2.00"


@given(st.floats(-100, 100))
def test_zero_difference_has_no_sign(value):
    assert points(value) not in ("+0.00", "−0.00", "-0.00")
