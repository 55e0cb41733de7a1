import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.theory import (
    dds_objective,
    dds_ratios,
    dds_ratios_exact,
    heterogeneity_score,
    retention,
)
from theory.cases import SPREAD, THIRDS, Case, cases, rows, scale_to_budget

PROBS = (0.5, 0.3, 0.2)
TICKS = 5


def multipliers(ratios, probs, importance, heterogeneity, budget, ticks, grad_bound):
    """(M,) the lambda that each state's ratio asks for: equal in all states within the bounds."""
    gamma = retention(budget, ticks)
    gain = 4 * grad_bound * gamma
    steep = gain * 2 / (2 - budget) * (1 + (1 - budget) / budget * np.array(probs))
    pull = gain * np.array(importance) - (1 - gamma) * np.array(heterogeneity)
    return (ratios * steep - pull) / budget


def test_the_sheet_s_program_with_an_active_bound():  # worked example 14.6
    ratios = dds_ratios_exact(PROBS, THIRDS, SPREAD, 0.5, TICKS, 1.0)
    np.testing.assert_allclose(ratios, [0.676026, 0.539956, 0], atol=1e-6)
    best = dds_objective(PROBS, ratios, THIRDS, SPREAD, 0.5, TICKS, 1.0)
    assert best == pytest.approx(0.656786, abs=1e-6)
    asked = multipliers(ratios, PROBS, THIRDS, SPREAD, 0.5, TICKS, 1.0)
    np.testing.assert_allclose(asked[:2], 1.740265, atol=1e-6)
    assert asked[2] > asked[0]  # the third state would need a larger one to be used at all


def test_the_closed_form_is_a_little_worse():  # worked example 14.6
    ratios = dds_ratios(PROBS, THIRDS, SPREAD, 0.5, 0.15, 0.25)
    reached = dds_objective(PROBS, ratios, THIRDS, SPREAD, 0.5, TICKS, 1.0)
    assert reached == pytest.approx(0.764378, abs=1e-6)


def test_the_closed_form_is_exact_where_no_bound_is_active():  # worked example 14.6
    exact = dds_ratios_exact(PROBS, THIRDS, SPREAD, 0.3, TICKS, 1.0)
    np.testing.assert_allclose(exact, [0.348438, 0.365300, 0.080955], atol=1e-6)
    asked = multipliers(exact, PROBS, THIRDS, SPREAD, 0.3, TICKS, 1.0)
    np.testing.assert_allclose(asked, 3.076039, atol=1e-6)
    gamma = retention(0.3, TICKS)
    slope, offset = (1 - gamma) / (4 * gamma), asked[0] * 0.3 / (4 * gamma)
    assert (slope, offset) == pytest.approx((0.393942, 0.594237), abs=1e-6)
    closed = dds_ratios(PROBS, THIRDS, SPREAD, 0.3, slope, offset)
    np.testing.assert_allclose(closed, exact, atol=1e-12)


def test_the_objective_is_the_score_without_noise():
    ratios = dds_ratios(PROBS, THIRDS, SPREAD, 0.5, 0.15, 0.25)
    score = heterogeneity_score(PROBS, ratios, THIRDS, SPREAD, 0.5, TICKS, 2.0, noise=0.0)
    assert dds_objective(PROBS, ratios, THIRDS, SPREAD, 0.5, TICKS, 2.0) == score


def test_a_large_difference_is_all_or_nothing():
    ratios = dds_ratios_exact([0.3, 0.7], [0.5, 0.5], [0, 900], 0.5, TICKS, 1.0)
    np.testing.assert_allclose(ratios, [1, 0.2 / 0.7], atol=1e-12)


def test_a_budget_of_one_leaves_nothing_to_choose():
    assert dds_ratios_exact([0.4, 0.6, 0], THIRDS, SPREAD, 1.0, TICKS).tolist() == [1, 1, 1]


def test_an_impossible_state_gets_what_an_ever_rarer_one_would():
    rare = dds_ratios_exact([0.6, 0.4, 1e-10], THIRDS, SPREAD, 0.3, TICKS)
    never = dds_ratios_exact([0.6, 0.4, 0.0], THIRDS, SPREAD, 0.3, TICKS)
    assert 0 < never[2] < 1
    np.testing.assert_allclose(never, rare, atol=1e-8)


@given(cases(), st.integers(1, 20), st.floats(0.01, 20))
def test_the_budget_is_met_and_ratios_are_shares(case: Case, ticks, grad_bound):
    ratios = dds_ratios_exact(*case, ticks, grad_bound)
    assert case.probs @ ratios == pytest.approx(case.budget, abs=1e-12)
    assert ratios.min() >= 0
    assert ratios.max() <= 1


@given(cases(max_budget=0.95), st.integers(1, 20), st.floats(0.1, 20))
def test_the_optimality_conditions_hold(case: Case, ticks, grad_bound):
    ratios = dds_ratios_exact(*case, ticks, grad_bound)
    importance = case.importance / case.importance.sum()
    asked = multipliers(
        ratios, case.probs, importance, case.heterogeneity, case.budget, ticks, grad_bound
    )
    inside = (ratios > 1e-9) & (ratios < 1 - 1e-9)
    assume(inside.any())
    level = asked[inside][0]
    close = 1e-7 * (1 + abs(level))
    assert np.abs(asked[inside] - level).max() < close
    assert (asked[ratios <= 1e-9] > level - close).all()  # held at 0: it would take more to move
    assert (asked[ratios >= 1 - 1e-9] < level + close).all()  # held at 1: it would take less


@given(cases(), st.integers(1, 20), st.floats(0.01, 20), st.data())
def test_no_feasible_point_is_better(case: Case, ticks, grad_bound, data: st.DataObject):
    probs, importance, heterogeneity, budget = case

    def objective(ratios):
        return dds_objective(probs, ratios, importance, heterogeneity, budget, ticks, grad_bound)

    best = objective(dds_ratios_exact(*case, ticks, grad_bound))
    wish = data.draw(rows(len(probs), 0.0, 1.0))
    rivals = [dds_ratios(*case, 0.15, 0.25), np.full(len(probs), budget)]
    rivals.append(np.clip(scale_to_budget(probs, wish, budget), 0, 1))
    for rival in rivals:
        assert probs @ rival == pytest.approx(budget)
        assert best <= objective(rival) + 1e-9


@given(cases(), st.integers(1, 20), st.data())
def test_the_order_of_the_states_does_not_matter(case: Case, ticks, data: st.DataObject):
    order = np.array(data.draw(st.permutations(range(len(case.probs)))))
    probs, importance, heterogeneity, budget = case
    shuffled = dds_ratios_exact(
        probs[order], importance[order], heterogeneity[order], budget, ticks
    )
    np.testing.assert_allclose(shuffled, dds_ratios_exact(*case, ticks)[order], atol=1e-9)


@pytest.mark.parametrize("budget", [1e-300, 1e-9, 0.5, 1 - 1e-9, 1 - 1e-16])
@pytest.mark.parametrize("grad_bound", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("worst", [0.0, 1e9])
def test_extreme_numbers_still_meet_the_budget(budget, grad_bound, worst):
    ratios = dds_ratios_exact(PROBS, THIRDS, [0.0, worst / 2, worst], budget, TICKS, grad_bound)
    assert ((ratios >= 0) & (ratios <= 1)).all()
    assert PROBS @ ratios == pytest.approx(budget, rel=1e-9)


@pytest.mark.parametrize(
    "bad",
    [
        {"probs": [-1, 1, 1]},
        {"importance": [1.0]},
        {"heterogeneity": [0.1, 0.5, -2]},
        {"budget": 0},
        {"budget": 2},
        {"ticks": 0},
        {"grad_bound": 0},
        {"grad_bound": float("inf")},
    ],
)
def test_impossible_inputs_are_refused(bad):
    good = {
        "probs": PROBS,
        "importance": THIRDS,
        "heterogeneity": SPREAD,
        "budget": 0.5,
        "ticks": TICKS,
        "grad_bound": 1.0,
    }
    with pytest.raises(ConfigError, match=next(iter(bad))):
        dds_ratios_exact(**good | bad)
