import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.theory import dds_ratios, dds_scores
from theory.cases import SPREAD, THIRDS, Case, cases

PROBS = (0.5, 0.3, 0.2)
# Exclude subnormal scores: they are too imprecise to compare with the slow implementation.
slopes = st.floats(0, 0.5, allow_subnormal=False)
offsets = st.floats(-0.5, 0.5, allow_subnormal=False)


def algorithm_2(probs, scores, budget):
    """Literal implementation of the paper's Algorithm 2, extended to impossible states.

    It is slow: it handles one state per pass, in the order of the states.
    """
    num_states = len(probs)
    worth = [max(score, 0.0) for score in scores]
    ratios = [0.0] * num_states
    open_states = [m for m in range(num_states) if probs[m] > 0]
    left, scale, flat = budget, 0.0, None
    while open_states:
        total = sum(probs[m] * worth[m] for m in open_states)
        if total == 0:
            flat = left / sum(probs[m] for m in open_states)
            for m in open_states:
                ratios[m] = flat
            break
        scale = left / total
        saturated = next((m for m in open_states if scale * worth[m] >= 1), None)
        if saturated is None:
            for m in open_states:
                ratios[m] = scale * worth[m]
            break
        ratios[saturated] = 1.0
        left = max(left - probs[saturated], 0.0)
        open_states.remove(saturated)
    for m in range(num_states):
        if probs[m] == 0:
            ratios[m] = min(scale * worth[m], 1.0) if flat is None else flat
    return ratios


def test_dds_scores_and_ratios_match_worked_example():  # worked example 14.1
    scores = dds_scores(PROBS, THIRDS, SPREAD, 0.5, 0.15, 0.25)
    ratios = dds_ratios(PROBS, THIRDS, SPREAD, 0.5, 0.15, 0.25)
    np.testing.assert_allclose(scores, [0.378889, 0.391026, 0.236111], atol=1e-6)
    np.testing.assert_allclose(ratios, [0.535193, 0.552336, 0.333514], atol=1e-6)
    assert PROBS @ ratios == pytest.approx(0.5, abs=1e-15)


def test_score_uses_the_factor_of_the_derivation():  # worked example 14.2
    scores = dds_scores(PROBS, THIRDS, SPREAD, 0.3, 0.15, 0.25)
    ratios = dds_ratios(PROBS, THIRDS, SPREAD, 0.3, 0.15, 0.25)
    np.testing.assert_allclose(scores, [0.262308, 0.299020, 0.193182], atol=1e-6)
    np.testing.assert_allclose(ratios, [0.303250, 0.345693, 0.223335], atol=1e-6)


def test_score_differs_from_the_misprinted_formula():  # worked example 14.2
    misprinted = (np.array(THIRDS) - 0.15 * np.array(SPREAD) + 0.25) / (
        1 + 0.3 / 0.7 * np.array(PROBS)
    )
    np.testing.assert_allclose(misprinted, [0.468039, 0.450422, 0.260965], atol=1e-6)
    wrong = 0.3 * misprinted / (PROBS @ misprinted)
    np.testing.assert_allclose(wrong, [0.333251, 0.320707, 0.185811], atol=1e-6)
    ours = dds_scores(PROBS, THIRDS, SPREAD, 0.3, 0.15, 0.25)
    assert np.abs(ours - misprinted).min() > 0.05
    ratios = dds_ratios(PROBS, THIRDS, SPREAD, 0.3, 0.15, 0.25)
    assert np.abs(ratios - wrong).min() > 0.02
    assert ratios[1] > ratios[0]  # the misprint reverses this order


def test_saturated_state_leaves_the_rest_to_other_states():  # worked example 14.3
    probs, heterogeneity = (0.1, 0.4, 0.5), (0, 0.5, 2)
    scores = dds_scores(probs, THIRDS, heterogeneity, 0.6, 0.15, 0.25)
    np.testing.assert_allclose(scores, [0.546875, 0.401316, 0.2125], atol=1e-6)
    unclipped = 0.6 * scores / (probs @ scores)
    np.testing.assert_allclose(unclipped, [1.020721, 0.749041, 0.396623], atol=1e-6)
    ratios = dds_ratios(probs, THIRDS, heterogeneity, 0.6, 0.15, 0.25)
    np.testing.assert_allclose(ratios, [1, 0.752158, 0.398274], atol=1e-6)
    ratios = dds_ratios(probs, THIRDS, heterogeneity, 0.8, 0.15, 0.25)
    np.testing.assert_allclose(ratios, [1, 1, 0.6], atol=1e-6)


def test_remaining_budget_goes_to_states_with_negative_scores():  # worked example 14.4
    probs, heterogeneity = (0.2, 0.3, 0.5), (0, 1, 2)
    scores = dds_scores(probs, THIRDS, heterogeneity, 0.6, 0.25, 0.15)
    np.testing.assert_allclose(scores, [0.426471, 0.194444, -0.0125], atol=1e-6)
    ratios = dds_ratios(probs, THIRDS, heterogeneity, 0.6, 0.25, 0.15)
    np.testing.assert_allclose(ratios, [1, 1, 0.2], atol=1e-6)


def test_remaining_budget_is_spread_evenly_over_negative_scores():  # worked example 14.4
    ratios = dds_ratios([0.1, 0.1, 0.4, 0.4], [0.25] * 4, [0, 0.5, 2.2, 2.3], 0.5, 0.2, 0.15)
    np.testing.assert_allclose(ratios, [1, 1, 0.375, 0.375], atol=1e-6)


def test_every_state_gets_the_budget_without_positive_scores():  # worked example 14.5
    def ratios(rule):
        return dds_ratios([0.5, 0.5, 0], THIRDS, [5, 6, 7], 0.4, 0.15, 0.25, rule)

    np.testing.assert_allclose(ratios("zero"), [0.4, 0.4, 0.0], atol=1e-12)
    np.testing.assert_allclose(ratios("extend"), [0.4, 0.4, 0.4], atol=1e-12)


@pytest.mark.parametrize(("rule", "third"), [("extend", 0.772029), ("zero", 0.0), ("budget", 0.5)])
def test_impossible_states_follow_the_zero_probability_rule(rule, third):  # worked example 14.5
    ratios = dds_ratios([0.6, 0.4, 0], THIRDS, [0.1, 0.5, 0.2], 0.5, 0.15, 0.25, rule)
    np.testing.assert_allclose(ratios, [0.495598, 0.506602, third], atol=1e-6)


def test_extended_ratio_never_exceeds_one():
    ratios = dds_ratios([0.5, 0.5, 0], [0.1, 0.1, 0.8], [1, 1, 0], 0.5, 0.15, 0.25)
    np.testing.assert_allclose(ratios, [0.5, 0.5, 1.0], atol=1e-12)


def test_impossible_states_get_the_even_share_of_the_remaining_budget():
    # The good reachable state is at 1 and the worthless one gets the rest, 0.4 / 0.9. The even
    # share is then the rule for every impossible state, however good.
    ratios = dds_ratios([0.1, 0.9, 0], [0.5, 0, 0.5], [0, 9, 0], 0.5, 0.15, 0.25)
    np.testing.assert_allclose(ratios, [1, 4 / 9, 4 / 9], atol=1e-12)


def test_worthless_state_gets_what_the_saturated_state_leaves():  # worked example 14.5
    ratios = dds_ratios([0.3, 0.7], [0.5, 0.5], [0, 9], 0.5, 0.15, 0.25)
    np.testing.assert_allclose(ratios, [1, 0.285714], atol=1e-6)


def test_budget_of_one_renews_everything():  # worked example 14.5
    assert dds_ratios(PROBS, THIRDS, SPREAD, 1, 0.15, 0.25).tolist() == [1, 1, 1]


def test_single_state_gets_the_budget():
    assert dds_ratios([1.0], [1.0], [0.3], 0.4, 0.15, 0.25).tolist() == pytest.approx([0.4])
    assert dds_ratios([1.0], [1.0], [90], 0.4, 0.15, 0.25).tolist() == pytest.approx([0.4])


def test_exactly_spent_budget_leaves_nothing_for_other_states():
    assert dds_ratios([0.5, 0.5], [0.5, 0.5], [0, 9], 0.5, 0.15, 0.25).tolist() == [1, 0]


def test_ratios_for_a_memory_of_500_match_worked_example():  # worked example 14.15
    ratios = dds_ratios(PROBS, THIRDS, SPREAD, 0.5, 0.15, 0.25)
    assert np.floor(ratios * 500 + 0.5).tolist() == [268, 276, 167]


def test_probabilities_and_importance_are_normalised():
    ratios = dds_ratios([5, 3, 2], [1, 1, 1], SPREAD, 0.5, 0.15, 0.25)
    np.testing.assert_allclose(ratios, [0.535193, 0.552336, 0.333514], atol=1e-6)


def test_dds_ratios_leave_their_inputs_unchanged():
    probs, importance, heterogeneity = np.array([5.0, 3.0, 0.0]), np.ones(3), np.array(SPREAD)
    dds_ratios(probs, importance, heterogeneity, 0.5, 0.15, 0.25)
    assert probs.tolist() == [5, 3, 0]
    assert importance.tolist() == [1, 1, 1]
    assert heterogeneity.tolist() == list(SPREAD)


@given(cases(), slopes, offsets)
def test_dds_ratios_meet_the_budget_and_lie_in_0_1(case: Case, slope, offset):
    ratios = dds_ratios(*case, slope, offset)
    assert case.probs @ ratios == pytest.approx(case.budget, abs=1e-12)
    assert ratios.min() >= 0
    assert ratios.max() <= 1


@given(cases(), slopes, offsets)
def test_dds_ratios_match_algorithm_2(case: Case, slope, offset):
    scores = dds_scores(*case, slope, offset)
    slow = algorithm_2((case.probs / case.probs.sum()).tolist(), scores.tolist(), case.budget)
    np.testing.assert_allclose(dds_ratios(*case, slope, offset), slow, atol=1e-9)


def test_dds_ratios_match_algorithm_2_for_60_states():
    rng = np.random.default_rng(11)
    for budget in (0.05, 0.3, 0.5, 0.8, 0.99):
        for concentration in (0.1, 1.0):
            probs = rng.dirichlet(np.full(60, concentration))
            case = Case(probs, np.full(60, 1 / 60), rng.uniform(0, 2.3, 60), budget)
            slow = algorithm_2(probs.tolist(), dds_scores(*case, 0.15, 0.25).tolist(), budget)
            np.testing.assert_allclose(dds_ratios(*case, 0.15, 0.25), slow, atol=1e-9)


@given(cases(), slopes, offsets, st.data())
def test_dds_ratios_do_not_depend_on_state_order(case: Case, slope, offset, data: st.DataObject):
    order = np.array(data.draw(st.permutations(range(len(case.probs)))))
    probs, importance, heterogeneity, budget = case
    shuffled = dds_ratios(
        probs[order], importance[order], heterogeneity[order], budget, slope, offset
    )
    np.testing.assert_allclose(shuffled, dds_ratios(*case, slope, offset)[order], atol=1e-9)


@given(cases(), slopes, offsets)
def test_reachable_state_with_a_higher_score_never_gets_less(case: Case, slope, offset):
    reachable = case.probs > 0
    scores = dds_scores(*case, slope, offset)[reachable]
    by_score = dds_ratios(*case, slope, offset)[reachable][np.argsort(scores)]
    assert (np.diff(by_score) >= -1e-12).all()


@given(cases(), slopes, offsets)
def test_dds_scores_match_the_formula(case: Case, slope, offset):
    probs, importance, heterogeneity, budget = case
    formula = (importance / importance.sum() - slope * heterogeneity + offset) / (
        1 + (1 - budget) / budget * probs / probs.sum()
    )
    np.testing.assert_allclose(dds_scores(*case, slope, offset), formula, atol=1e-12)


@pytest.mark.parametrize(
    "probs",
    [[1.0, 1e-17, 1e-300], [1.0, 5e-324, 0.0], [0.5, 0.5 - 1e-16, 1e-16]],
)
@pytest.mark.parametrize("budget", [5e-324, 1e-300, 1e-9, 0.5, 1 - 1e-16, 1.0])
@pytest.mark.parametrize("offset", [-1 / 3 + 1e-16, 1e-300 - 1 / 3, 0.25, 1e300])
def test_extreme_inputs_give_finite_ratios(probs, budget, offset):
    ratios = dds_ratios(probs, THIRDS, (0.0, 1e-300, 1e-9), budget, 0.15, offset)
    assert ((ratios >= 0) & (ratios <= 1)).all()
    assert np.array(probs) @ ratios == pytest.approx(budget, rel=1e-9, abs=1e-15)


def test_budget_of_one_fills_states_with_tiny_probability():
    ratios = dds_ratios([1.0, 1e-17, 1e-30], THIRDS, SPREAD, 1.0, 0.15, 0.25)
    assert ratios.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "bad",
    [
        {"probs": [0.5, -0.3, 0.8]},
        {"probs": [0.5, float("nan"), 0.5]},
        {"probs": [0, 0, 0]},
        {"probs": [0.5, 0.5]},
        {"importance": [1.0, 1.0]},
        {"importance": [0, 0, 0]},
        {"heterogeneity": [-1, 0, 0]},
        {"budget": 0},
        {"budget": -0.1},
        {"budget": 1.0001},
        {"budget": float("nan")},
        {"slope": float("inf")},
        {"offset": float("nan")},
    ],
)
@pytest.mark.parametrize("function", [dds_scores, dds_ratios])
def test_invalid_dds_inputs_are_rejected(function, bad):
    good = {
        "probs": PROBS,
        "importance": THIRDS,
        "heterogeneity": SPREAD,
        "budget": 0.5,
        "slope": 0.15,
        "offset": 0.25,
    }
    with pytest.raises(ConfigError):
        function(**good | bad)


def test_overflowing_scores_are_rejected():
    with pytest.raises(ConfigError, match="slope and offset"):
        dds_ratios(PROBS, THIRDS, (0, 0, 1e10), 0.5, -1e300, 0.25)


def test_unknown_rule_error_suggests_the_nearest_name():
    with pytest.raises(UnknownName, match="Did you mean 'extend'"):
        dds_ratios(PROBS, THIRDS, SPREAD, 0.5, 0.15, 0.25, "extended")
