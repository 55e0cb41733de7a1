from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from thalweg.report.labels import short_label, spread_apart

wanted = st.lists(st.integers(0, 100).map(float), min_size=1, max_size=12)


@given(wanted, st.sampled_from([1.0, 5.0, 30.0]))
def test_labels_are_apart_in_order_and_inside(positions, gap):
    moved = spread_apart(positions, gap, low=0.0, high=100.0)
    room = min(gap, 100.0 / max(len(positions) - 1, 1))
    assert all(later - earlier >= room - 1e-6 for earlier, later in pairwise(sorted(moved)))
    assert min(moved) >= -1e-6
    assert max(moved) <= 100 + 1e-6
    for a, b in zip(positions, moved, strict=True):
        for c, d in zip(positions, moved, strict=True):
            assert not (a < c and b > d)


def test_labels_that_are_apart_stay_where_they_are():
    assert spread_apart([10.0, 50.0, 30.0], 5.0, 0.0, 100.0) == [10.0, 50.0, 30.0]


def test_a_long_name_keeps_both_of_its_ends():
    assert short_label("sfedpo") == "sfedpo"
    short = short_label("sfedpo,memory=uniform-ratio,weights=equal")
    assert short.startswith("sfedpo,")
    assert short.endswith("=equal")
    assert len(short) <= 30
