import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.theory import (
    b_term,
    dds_ratios,
    heterogeneity_score,
    retention,
    saw_weights,
    sfedpo_bound,
)
from theory.cases import CLIENTS, SPREAD, THIRDS, rows

AVAILABILITY = (0.2, 0.2, 0.2)
RATIOS = [dds_ratios(probs, THIRDS, SPREAD, 0.5, 0.15, 0.25) for probs in CLIENTS]
SCORES = np.array(
    [
        heterogeneity_score(probs, ratios, THIRDS, SPREAD, 0.5, 5)
        for probs, ratios in zip(CLIENTS, RATIOS, strict=True)
    ]
)
WEIGHTS = saw_weights(SCORES, AVAILABILITY, 1.0, 0.5)
WORLD = {
    "rounds": 100,
    "initial_loss": 2.3,
    "smoothness": 1.0,
    "client_lr": 0.01,
    "grad_noise": 1.0,
}


def test_b_term_matches_worked_example():  # worked example 14.10
    value = b_term(WEIGHTS, AVAILABILITY, SCORES + 0.01, noise=0.01)
    assert value == pytest.approx(1.734129, abs=1e-6)


@pytest.mark.parametrize(("variant", "value"), [("printed", 73.347419), ("corrected", 73.836147)])
def test_sfedpo_bound_matches_worked_example(variant, value):  # worked example 14.10
    bound = sfedpo_bound(WEIGHTS, AVAILABILITY, SCORES, 0.5, 5, variant=variant, **WORLD)
    assert bound.value == pytest.approx(value, abs=1e-6)
    assert bound.violations == ()


def test_corrected_variant_is_the_default():
    default = sfedpo_bound(WEIGHTS, AVAILABILITY, SCORES, 0.5, 5, **WORLD)
    assert default == sfedpo_bound(
        WEIGHTS, AVAILABILITY, SCORES, 0.5, 5, variant="corrected", **WORLD
    )


def test_theorem_constants_are_consistent():
    c = math.sqrt(1 / 5)  # the largest step the theorem allows
    assert 1 / (1 - 2 * c**2) == pytest.approx(5 / 3)
    assert 1 / 2 - 4 * c**2 / (3 * (1 - 2 * c**2)) == pytest.approx(1 / 18)


@given(st.data(), st.integers(1, 6), st.integers(1, 10), st.floats(0, 2))
def test_bound_is_the_b_term_plus_two_terms_decreasing_in_rounds(
    data: st.DataObject, size, ticks, grad_noise
):
    p, q = data.draw(rows(size, 0.01, 1)), data.draw(rows(size, 0.01, 1))
    p = p / p.sum()
    scores, budgets = data.draw(rows(size, 0, 5)), data.draw(rows(size, 0.05, 0.95))
    world = WORLD | {"grad_noise": grad_noise}
    noise = 0.01 * grad_noise
    stays = 18 * b_term(p, q, scores + noise, noise)
    gamma = np.array([retention(budget, ticks) for budget in budgets])
    tail = float((7 * gamma * p / (1 - (1 - budgets) ** (2 * ticks))).sum())
    fades = 18 / float(p @ q) * (2.3 / (ticks * 0.01) + tail)
    for rounds in (1, 100):
        bound = sfedpo_bound(p, q, scores, budgets, ticks, **world | {"rounds": rounds})
        assert bound.value == pytest.approx(stays + fades / rounds)


def test_printed_and_corrected_variants_agree_for_a_budget_of_one():
    both = [
        sfedpo_bound(WEIGHTS, AVAILABILITY, SCORES, 1.0, 5, variant=variant, **WORLD).value
        for variant in ("printed", "corrected")
    ]
    assert both[0] == both[1]


def test_too_large_step_size_is_reported_with_its_value():
    bound = sfedpo_bound([1], [1], [1], 0.5, 5, **WORLD | {"client_lr": 0.09})  # L T eta = 0.45
    assert len(bound.violations) == 1
    assert "at most 0.4472, is 0.45" in bound.violations[0]


def test_too_large_cohort_is_reported_with_its_value():
    world = WORLD | {"client_lr": 0.05}  # L T eta = 0.25
    all_clients = sfedpo_bound([0.7, 0.1, 0.2], [1] * 3, [1] * 3, 0.5, 5, **world)
    assert len(all_clients.violations) == 1
    assert "at most 0.5, is 0.525" in all_clients.violations[0]
    pairs = sfedpo_bound([0.7, 0.1, 0.2], [1] * 3, [1] * 3, 0.5, 5, cohort_size=2, **world)
    assert pairs.violations == ()
    assert pairs.value == all_clients.value


def test_both_violations_can_be_reported():
    assert len(sfedpo_bound([1], [1], [1], 0.5, 5, **WORLD | {"client_lr": 1.0}).violations) == 2


def test_budgets_may_differ_between_clients():
    one = sfedpo_bound(WEIGHTS, AVAILABILITY, SCORES, 0.5, 5, **WORLD)
    assert one == sfedpo_bound(WEIGHTS, AVAILABILITY, SCORES, [0.5] * 3, 5, **WORLD)
    assert one != sfedpo_bound(WEIGHTS, AVAILABILITY, SCORES, [0.5, 0.5, 0.2], 5, **WORLD)


def test_b_term_normalises_weights():
    ones = b_term([1, 1], [0.2, 0.4], [1, 2], 0.1)
    assert ones == pytest.approx(b_term([0.5, 0.5], [0.2, 0.4], [1, 2], 0.1))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"weights": [1, -1, 1]}, "weights"),
        ({"availability": [0.2, 0.2]}, "availability"),
        ({"availability": [0, 0, 0]}, "positive availability"),
        ({"scores": [1, 1, -1]}, "scores"),
        ({"budgets": [0.5, 0.5, 0.0]}, "budgets"),
        ({"ticks": 0}, "ticks"),
        ({"rounds": 0}, "rounds"),
        ({"initial_loss": -1}, "initial_loss"),
        ({"smoothness": 0}, "smoothness"),
        ({"client_lr": 0}, "client_lr"),
        ({"grad_noise": -1}, "grad_noise"),
        ({"grad_bound": 0}, "grad_bound"),
        ({"cohort_size": 0}, "cohort_size"),
    ],
)
def test_invalid_bound_inputs_are_rejected(bad, message):
    good = WORLD | {
        "weights": WEIGHTS,
        "availability": AVAILABILITY,
        "scores": SCORES,
        "budgets": 0.5,
        "ticks": 5,
    }
    with pytest.raises(ConfigError, match=message):
        sfedpo_bound(**good | bad)


def test_unknown_variant_error_suggests_the_nearest_name():
    with pytest.raises(UnknownName, match="Did you mean 'printed'"):
        sfedpo_bound([1], [1], [1], 0.5, 5, variant="print", **WORLD)


def test_b_term_of_never_available_clients_is_rejected():
    with pytest.raises(ConfigError, match="positive availability"):
        b_term([1, 0], [0, 1], [1, 1], 0.1)
