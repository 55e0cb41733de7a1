"""Fixed share: its weights, and the bounds of its regret against sequences of predictors."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.theory import (
    fixed_share,
    fixed_shares,
    mix_regret_bound,
    optimal_alpha,
    optimal_eta,
    optimal_rates,
    tracking_regret_bound,
)

TOLERANCE = 1e-9


@st.composite
def streams(draw):
    """Random losses in [0, 1], some of them missing, and a sequence of available predictors."""
    num_predictors, num_samples = draw(st.integers(1, 5)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    losses = rng.random((num_samples, num_predictors)) ** draw(st.sampled_from([0.1, 1, 10]))
    losses[rng.random(losses.shape) < draw(st.sampled_from([0, 0.3]))] = np.nan
    missing = np.isnan(losses).all(axis=1)
    losses[missing, 0] = 0.5
    stay = draw(st.sampled_from([0.0, 0.8, 1.0]))
    path = []
    for sample in losses:
        available = np.flatnonzero(~np.isnan(sample))
        is_kept = path and path[-1] in available and rng.random() < stay
        path.append(path[-1] if is_kept else int(rng.choice(available)))
    return losses, np.array(path)


rates = st.tuples(st.floats(0.01, 20), st.floats(0.001, 1))


def run(losses, eta, alpha):
    number = losses.shape[1]
    return fixed_share(np.full(number, 1 / number), losses, eta, alpha)


def measure(losses, path, eta, alpha):
    """Return the regret of the mix loss and of the weighted mean loss, and the switches."""
    found = run(losses, eta, alpha)
    known = ~np.isnan(losses)
    weights = np.where(known, found.before, 0)
    means = (weights * np.where(known, losses, 0)).sum(1) / weights.sum(1)
    best = losses[np.arange(len(path)), path].sum()
    switches = int((np.diff(path) != 0).sum())
    return found.mix_losses.sum() - best, means.sum() - best, switches


@settings(deadline=None)
@given(streams(), rates)
def test_the_mix_loss_never_exceeds_its_bound(stream, rate):
    losses, path = stream
    regret, _, switches = measure(losses, path, *rate)
    assert regret <= mix_regret_bound(*losses.shape, switches, *rate) + TOLERANCE


@settings(deadline=None)
@given(streams(), rates)
def test_the_weighted_mean_loss_never_exceeds_its_bound(stream, rate):
    losses, path = stream
    _, regret, switches = measure(losses, path, *rate)
    assert regret <= tracking_regret_bound(*losses.shape, switches, *rate) + TOLERANCE


@settings(deadline=None)
@given(streams(), rates)
def test_weights_stay_probabilities(stream, rate):
    losses, _ = stream
    found = run(losses, *rate)
    assert np.allclose(found.before.sum(axis=1), 1)
    assert found.after.sum() == pytest.approx(1)
    assert (found.after >= rate[1] / losses.shape[1] - TOLERANCE).all()


def test_the_bound_is_attained_if_only_the_sequence_has_no_loss():
    """The losses of all other predictors are so large that only one sequence has any weight."""
    path = np.array([0, 0, 1, 1, 1, 0])
    losses = np.full((6, 2), 1000.0)
    losses[np.arange(6), path] = 0
    regret, _, switches = measure(losses, path, 1.0, 0.3)
    assert switches == 2
    assert regret == pytest.approx(mix_regret_bound(6, 2, 2, 1.0, 0.3))


def test_a_predictor_that_was_not_available_has_its_first_weight():
    nan = float("nan")
    two = run(np.array([[0, 1], [0, 1], [1, 0]], float), 1.0, 0.1)
    three = run(np.array([[0, 1, nan], [0, 1, nan], [1, 0, nan]], float), 1.0, 0.1)
    assert three.after[2] == pytest.approx(1 / 3)
    assert three.after[:2] * 3 / 2 == pytest.approx(two.after)
    assert three.mix_losses == pytest.approx(two.mix_losses)


def test_samples_one_by_one_give_the_same_weights():
    losses = np.random.default_rng(0).random((20, 3))
    together, weights = run(losses, 2.0, 0.05), np.full(3, 1 / 3)
    for sample in losses:
        weights = fixed_share(weights, sample[None], 2.0, 0.05).after
    assert weights == pytest.approx(together.after)


def test_without_samples_nothing_changes():
    found = fixed_share([0.25, 0.75], np.empty((0, 2)), 1.0, 0.1)
    assert found.before.shape == (0, 2)
    assert found.after.tolist() == [0.25, 0.75]


def test_a_sample_without_predictors_only_shares():
    found = fixed_share([1.0, 0.0], [[np.nan, np.nan]], 1.0, 0.5)
    assert found.after.tolist() == [0.75, 0.25]
    assert found.mix_losses.tolist() == [0.0]


def test_log_losses_with_eta_one_are_those_of_the_mixture():
    probs = np.random.default_rng(1).random((30, 3)) * 0.9 + 0.05
    found = run(-np.log(probs), 1.0, 0.02)
    assert found.mix_losses == pytest.approx(-np.log((found.before * probs).sum(axis=1)))


@pytest.mark.parametrize(("num_samples", "num_predictors", "switches"), [(50, 2, 1), (200, 5, 9)])
def test_optimal_parameters_minimise_the_bound(num_samples, num_predictors, switches):
    sizes = (num_samples, num_predictors, switches)
    alpha = optimal_alpha(*sizes)
    eta = optimal_eta(*sizes, alpha)
    best = tracking_regret_bound(*sizes, eta, alpha)
    for factor in (0.9, 1.1):
        assert tracking_regret_bound(*sizes, factor * eta, alpha) > best
        assert tracking_regret_bound(*sizes, eta, factor * alpha) > best
    assert best == pytest.approx(eta * num_samples / 4)  # both parts are equal


def test_rates_of_long_runs_are_the_limits():
    period, num_predictors, switches = 40, 4, 100_000
    sizes = (period * switches + 1, num_predictors, switches)
    alpha = optimal_alpha(*sizes)
    found = optimal_rates(num_predictors, period)
    assert found.alpha == pytest.approx(alpha)
    assert found.eta == pytest.approx(optimal_eta(*sizes, alpha), rel=1e-4)


def test_without_a_share_no_switch_has_a_bound():
    assert mix_regret_bound(10, 2, 1, 1.0, 0.0) == math.inf
    assert optimal_alpha(10, 3, 0) == 0
    assert optimal_rates(1, 10.0).alpha == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.5, 0.5], [[0.0]], 1.0, 0.1), "a column for each of 2 predictors"),
        (([0.5, 0.5], [[0.0, np.inf]], 1.0, 0.1), "must be finite or nan"),
        (([0.5, 0.5], [[0.0, 1.0]], 0.0, 0.1), "eta must be positive"),
        (([0.5, 0.5], [[0.0, 1.0]], 1.0, 1.1), r"alpha must lie in \(0, 1\]"),
        (([0.0, 0.0], [[0.0, 1.0]], 1.0, 0.1), "weights must have a positive entry"),
    ],
)
def test_invalid_inputs_are_rejected(arguments, message):
    with pytest.raises(ConfigError, match=message):
        fixed_share(*arguments)


def test_impossible_counts_are_rejected():
    for sizes in ((0, 1, 0), (1, 0, 0), (3, 2, 3), (3, 2, -1)):
        with pytest.raises(ConfigError, match="fewer switches than samples"):
            mix_regret_bound(*sizes, 1.0, 0.1)
    with pytest.raises(ConfigError, match="switch_every must be above 1"):
        optimal_rates(2, 1.0)


@pytest.mark.parametrize("weight", [1e-20, 1e-300])
def test_tiny_weights_are_shared_as_usual_if_the_predictor_with_all_weight_is_missing(weight):
    """A loss of ln 3 divides a weight by three, so that 1/2 and 1/2 become 3/4 and 1/4."""
    weights, losses = [1.0, weight, weight], [[np.nan, 0.0, math.log(3)]]
    found = fixed_share(weights, losses, eta=1.0, alpha=0.0)
    assert found.after / [1.0, weight, weight] == pytest.approx([1.0, 1.5, 0.5])
    assert found.mix_losses == pytest.approx([math.log(3 / 2)])


def test_a_missing_loss_overflows_nothing_with_a_large_eta() -> None:
    found = fixed_share([0.5, 0.25, 0.25], [[np.nan, 0.9, 0.1]], eta=1e9, alpha=0.0)
    assert found.after.tolist() == [0.5, 0.0, 0.5]


def test_a_weight_that_rounding_removes_changes_nothing() -> None:
    """1 - 1e-20 is 1, so that no weight is left for the predictor that is not missing."""
    found = fixed_share([1.0, 1e-20], [[np.nan, 0.5]], eta=1.0, alpha=0.0)
    assert found.after.tolist() == [1.0, 1e-20]
    assert found.mix_losses.tolist() == [0.5]


@pytest.mark.parametrize("sizes", [[2], [1, 2], [-1, 3]])
def test_sizes_must_be_those_of_the_samples(sizes: list[int]) -> None:
    with pytest.raises(ConfigError, match="2 numbers of samples with the sum 2, got"):
        fixed_shares([[0.5, 0.5]] * 2, np.zeros((2, 2)), sizes, eta=1.0, alpha=0.1)
