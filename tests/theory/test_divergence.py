import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.theory import divergence_between, divergence_from_uniform

KINDS = ("kl", "js", "l1", "l2", "l2_squared")
histograms = st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("l1", 0.733333),
        ("l2", 0.454606),
        ("l2_squared", 0.206667),
        ("kl", 0.296794),
        ("js", 0.074806),
    ],
)
def test_divergences_match_worked_example(kind, expected):  # worked example 14.12
    assert float(divergence_from_uniform([0.7, 0.2, 0.1], kind)) == pytest.approx(
        expected, abs=1e-6
    )


def test_single_class_has_the_largest_divergence():  # worked example 14.12
    assert float(divergence_from_uniform([0, 1, 0])) == pytest.approx(math.log(3), abs=1e-12)
    assert float(divergence_from_uniform([0, 1, 0], "js")) == pytest.approx(0.318257, abs=1e-6)


def test_kl_is_the_default_divergence():
    assert divergence_from_uniform([3, 1]) == divergence_from_uniform([3, 1], "kl")


@pytest.mark.parametrize("kind", KINDS)
def test_histograms_can_be_stacked_along_leading_axes(kind):
    table = np.array([[[5, 5, 0], [1, 2, 3]], [[4, 4, 4], [0, 0, 1]]])  # (2, 2, 3)
    stacked = divergence_from_uniform(table, kind)
    assert stacked.shape == (2, 2)
    assert divergence_from_uniform(table[0, 0], kind).shape == ()
    for i, j in np.ndindex(2, 2):
        assert stacked[i, j] == pytest.approx(float(divergence_from_uniform(table[i, j], kind)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_classes", [1, 2, 3, 7, 10])
def test_balanced_classes_have_divergence_zero(kind, num_classes):
    assert float(divergence_from_uniform([6] * num_classes, kind)) == pytest.approx(0, abs=1e-15)


@given(histograms, st.sampled_from(KINDS), st.floats(0.01, 100))
def test_divergence_depends_on_class_shares_only(counts, kind, factor):
    np.testing.assert_allclose(
        divergence_from_uniform(np.array(counts) * factor, kind),
        divergence_from_uniform(counts, kind),
        atol=1e-7,  # the square root in l2 magnifies rounding near zero
    )


@given(histograms)
def test_every_divergence_stays_in_its_range(counts):
    num_classes = len(counts)
    kl, js, l1, l2, l2_squared = (float(divergence_from_uniform(counts, kind)) for kind in KINDS)
    assert 0 <= kl <= math.log(num_classes) + 1e-12
    assert 0 <= js < math.log(2)
    assert 0 <= l1 < 2
    assert l2 == pytest.approx(math.sqrt(l2_squared))


@given(histograms)
def test_divergences_match_scipy_entropy(counts):
    h = np.array(counts) / sum(counts)
    u = np.full(len(counts), 1 / len(counts))
    assert float(divergence_from_uniform(counts)) == pytest.approx(entropy(h, u), abs=1e-12)
    between = (h + u) / 2
    halves = (entropy(h, between) + entropy(u, between)) / 2
    assert float(divergence_from_uniform(counts, "js")) == pytest.approx(halves, abs=1e-12)


def test_js_divergence_is_the_square_of_the_scipy_distance():
    ours = float(divergence_from_uniform([7, 2, 1], "js"))
    assert jensenshannon([0.7, 0.2, 0.1], [1 / 3] * 3) ** 2 == pytest.approx(ours)


@pytest.mark.parametrize(
    "bad", [[1, -1], [1, float("nan")], [1, float("inf")], [0, 0], [[1, 1], [0, 0]], [], 3.0]
)
def test_invalid_histograms_are_rejected(bad):
    with pytest.raises(ConfigError, match="histogram"):
        divergence_from_uniform(bad)


def test_unknown_divergence_error_suggests_the_nearest_name():
    with pytest.raises(UnknownName, match="Did you mean 'l2_squared'"):
        divergence_from_uniform([1, 1], "l2_square")


@given(st.data())
def test_divergence_between_histograms_is_symmetric_and_bounded(data: st.DataObject) -> None:
    counts = st.lists(st.integers(0, 50), min_size=4, max_size=4).filter(any)
    one, other = data.draw(counts), data.draw(counts)
    for kind, most in (("js", math.log(2)), ("l1", 2.0), ("l2", math.sqrt(2))):
        there = float(divergence_between(one, other, kind))
        assert there == pytest.approx(float(divergence_between(other, one, kind)), abs=1e-12)
        assert 0 <= there <= most + 1e-12
        assert float(divergence_between(one, one, kind)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("kind", ["js", "l1", "l2"])
def test_divergence_from_uniform_equals_divergence_between_with_uniform(kind: Any) -> None:
    ours = divergence_between([[7, 2, 1], [0, 0, 1]], [1, 1, 1], kind)
    assert ours == pytest.approx(divergence_from_uniform([[7, 2, 1], [0, 0, 1]], kind), abs=1e-12)


def test_histograms_with_different_classes_are_rejected() -> None:
    with pytest.raises(ConfigError, match="same classes"):
        divergence_between([1, 2], [1, 2, 3])
    wrong: Any = "kl"
    with pytest.raises(ConfigError, match="divergence"):
        divergence_between([1, 2], [1, 2], wrong)
