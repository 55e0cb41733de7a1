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
    """Return lambda implied by each state's ratio, (M,); equal for all states within the bounds."""
    gamma = retention(budget, ticks)
    gain = 4 * grad_bound * gamma
    steep = gain * 2 / (2 - budget) * (1 + (1 - budget) / budget * np.array(probs))
    pull = gain * np.array(importance) - (1 - gamma) * np.array(heterogeneity)
    return (ratios * steep - pull) / budget


def test_exact_ratios_with_an_active_bound_match_worked_example():  # worked example 14.6
    ratios = dds_ratios_exact(PROBS, THIRDS, SPREAD, 0.5, TICKS, 1.0)
    np.testing.assert_allclose(ratios, [0.676026, 0.539956, 0], atol=1e-6)
    best = dds_objective(PROBS, ratios, THIRDS, SPREAD, 0.5, TICKS, 1.0)
    assert best == pytest.approx(0.656786, abs=1e-6)
    asked = multipliers(ratios, PROBS, THIRDS, SPREAD, 0.5, TICKS, 1.0)
    np.testing.assert_allclose(asked[:2], 1.740265, atol=1e-6)
    assert asked[2] > asked[0]  # the third state needs a larger lambda for a positive ratio


def test_closed_form_objective_is_slightly_worse_than_the_optimum():  # worked example 14.6
    ratios = dds_ratios(PROBS, THIRDS, SPREAD, 0.5, 0.15, 0.25)
    reached = dds_objective(PROBS, ratios, THIRDS, SPREAD, 0.5, TICKS, 1.0)
    assert reached == pytest.approx(0.764378, abs=1e-6)


def test_closed_form_is_exact_without_active_bounds():  # worked example 14.6
    exact = dds_ratios_exact(PROBS, THIRDS, SPREAD, 0.3, TICKS, 1.0)
    np.testing.assert_allclose(exact, [0.348438, 0.365300, 0.080955], atol=1e-6)
    asked = multipliers(exact, PROBS, THIRDS, SPREAD, 0.3, TICKS, 1.0)
    np.testing.assert_allclose(asked, 3.076039, atol=1e-6)
    gamma = retention(0.3, TICKS)
    slope, offset = (1 - gamma) / (4 * gamma), asked[0] * 0.3 / (4 * gamma)
    assert (slope, offset) == pytest.approx((0.393942, 0.594237), abs=1e-6)
    closed = dds_ratios(PROBS, THIRDS, SPREAD, 0.3, slope, offset)
    np.testing.assert_allclose(closed, exact, atol=1e-12)


def test_dds_objective_equals_the_score_without_noise():
    ratios = dds_ratios(PROBS, THIRDS, SPREAD, 0.5, 0.15, 0.25)
    score = heterogeneity_score(PROBS, ratios, THIRDS, SPREAD, 0.5, TICKS, 2.0, noise=0.0)
    assert dds_objective(PROBS, ratios, THIRDS, SPREAD, 0.5, TICKS, 2.0) == score


def test_large_heterogeneity_gap_gives_ratios_at_their_bounds():
    ratios = dds_ratios_exact([0.3, 0.7], [0.5, 0.5], [0, 900], 0.5, TICKS, 1.0)
    np.testing.assert_allclose(ratios, [1, 0.2 / 0.7], atol=1e-12)


def test_budget_of_one_renews_all_states():
    assert dds_ratios_exact([0.4, 0.6, 0], THIRDS, SPREAD, 1.0, TICKS).tolist() == [1, 1, 1]


def test_impossible_state_gets_the_limit_of_a_rare_state():
    rare = dds_ratios_exact([0.6, 0.4, 1e-10], THIRDS, SPREAD, 0.3, TICKS)
    never = dds_ratios_exact([0.6, 0.4, 0.0], THIRDS, SPREAD, 0.3, TICKS)
    assert 0 < never[2] < 1
    np.testing.assert_allclose(never, rare, atol=1e-8)


@given(cases(), st.integers(1, 20), st.floats(0.01, 20))
def test_exact_ratios_meet_the_budget_and_lie_in_0_1(case: Case, ticks, grad_bound):
    ratios = dds_ratios_exact(*case, ticks, grad_bound)
    assert case.probs @ ratios == pytest.approx(case.budget, abs=1e-12)
    assert ratios.min() >= 0
    assert ratios.max() <= 1


@given(cases(max_budget=0.95), st.integers(1, 20), st.floats(0.1, 20))
def test_exact_ratios_satisfy_the_optimality_conditions(case: Case, ticks, grad_bound):
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
    assert (asked[ratios <= 1e-9] > level - close).all()  # at 0: needs a larger lambda to move
    assert (asked[ratios >= 1 - 1e-9] < level + close).all()  # at 1: needs a smaller lambda to move


@given(cases(), st.integers(1, 20), st.floats(0.01, 20), st.data())
def test_no_feasible_ratios_have_a_better_objective(
    case: Case, ticks, grad_bound, data: st.DataObject
):
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
def test_exact_ratios_do_not_depend_on_state_order(case: Case, ticks, data: st.DataObject):
    order = np.array(data.draw(st.permutations(range(len(case.probs)))))
    probs, importance, heterogeneity, budget = case
    shuffled = dds_ratios_exact(
        probs[order], importance[order], heterogeneity[order], budget, ticks
    )
    np.testing.assert_allclose(shuffled, dds_ratios_exact(*case, ticks)[order], atol=1e-9)


@pytest.mark.parametrize("budget", [1e-300, 1e-9, 0.5, 1 - 1e-9, 1 - 1e-16])
@pytest.mark.parametrize("grad_bound", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("worst", [0.0, 1e9])
def test_exact_ratios_meet_the_budget_for_extreme_inputs(budget, grad_bound, worst):
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
def test_invalid_exact_dds_inputs_are_rejected(bad):
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
