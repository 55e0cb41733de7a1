import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import dirichlet

from thalweg.core.errors import ConfigError
from thalweg.theory import Posterior, mix_posteriors, nested_posteriors, perturb, posterior
from theory.cases import distributions, rows


def test_posterior_matches_worked_example():  # worked example 14.11
    belief = posterior([1, 1, 1], [3, 1, 0])
    np.testing.assert_allclose(belief.mean, [0.571429, 0.285714, 0.142857], atol=1e-6)
    np.testing.assert_allclose(belief.variance, [0.030612, 0.025510, 0.015306], atol=1e-6)


def test_posterior_without_observations_equals_the_prior():
    assert posterior([1, 3], [0, 0]).mean.tolist() == [0.25, 0.75]


def test_posterior_supports_stacked_clients():
    counts = np.array([[3, 1, 0], [0, 0, 5]])
    stacked = posterior(np.ones((2, 3)), counts)
    assert stacked.mean.shape == stacked.variance.shape == (2, 3)
    np.testing.assert_allclose(stacked.mean[1], posterior([1, 1, 1], counts[1]).mean)


@given(st.data(), st.integers(2, 6))
def test_posterior_matches_scipy_dirichlet(data: st.DataObject, size):
    prior = data.draw(rows(size, 0.1, 5))
    counts = np.array(data.draw(st.lists(st.integers(0, 99), min_size=size, max_size=size)))
    belief = posterior(prior, counts)
    np.testing.assert_allclose(belief.mean, dirichlet.mean(prior + counts))
    np.testing.assert_allclose(belief.variance, dirichlet.var(prior + counts))
    assert belief.mean.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("prior", "counts", "message"),
    [
        ([1, 0], [1, 1], "prior must be positive"),
        ([1, float("inf")], [1, 1], "prior must be positive"),
        ([1, 1], [1, -1], "counts must be non-negative"),
        ([1, 1], [1, float("nan")], "counts must be non-negative"),
        ([1, 1], [1, 1, 1], "one entry per state"),
        ([], [], "one entry per state"),
        (1.0, 2.0, "one entry per state"),
    ],
)
def test_invalid_counts_are_rejected(prior, counts, message):
    with pytest.raises(ConfigError, match=message):
        posterior(prior, counts)


def test_perturb_matches_worked_example():  # worked example 14.13
    forecast = perturb([0.5, 0.3, 0.2], [0.04, -0.06, 0.01])
    np.testing.assert_allclose(forecast, [0.545455, 0.242424, 0.212121], atol=1e-6)


def test_perturb_keeps_impossible_states_at_zero():  # worked example 14.13
    forecast = perturb([0.5, 0.5, 0], [0.04, -0.06, -0.03])
    np.testing.assert_allclose(forecast, [0.551020, 0.448980, 0], atol=1e-6)
    assert np.abs(forecast - [0.5, 0.5, 0]).sum() == pytest.approx(0.102041, abs=1e-6)


def test_perturb_returns_the_truth_if_noise_removes_all_mass():
    assert perturb([0.25, 0.75], [-1, -1]).tolist() == [0.25, 0.75]


@given(st.data(), st.integers(1, 7), st.floats(0, 0.3))
def test_perturb_returns_a_distribution(data: st.DataObject, size, width):
    truth = data.draw(distributions(size))
    forecast = perturb(truth, data.draw(rows(size, -width, width)))
    assert forecast.min() >= 0
    assert forecast.sum() == pytest.approx(1, abs=1e-12)


@given(st.data(), st.integers(1, 7))
def test_perturb_with_zero_noise_changes_nothing(data: st.DataObject, size):
    truth = data.draw(distributions(size))
    np.testing.assert_allclose(perturb(truth, np.zeros(size)), truth, atol=1e-15)


@pytest.mark.parametrize("noise", [[0.1], [0.1, float("nan")], [0.1, float("inf")]])
def test_invalid_noise_is_rejected(noise):
    with pytest.raises(ConfigError, match="noise must"):
        perturb([0.5, 0.5], noise)


def test_an_estimate_with_a_short_memory_starts_from_the_longer_one():
    mean, variance = nested_posteriors([1, 1], [[2, 0], [0, 0]])
    assert mean.tolist() == [[0.75, 0.25], [0.75, 0.25]]
    assert variance[1].tolist() == [0.09375, 0.09375]  # 3/4 * 1/4 / 2: one pseudo-visit


def test_a_mixture_has_the_variance_within_and_between():
    posteriors = Posterior(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.1, 0.1], [0.0, 0.0]]))
    mean, variance = mix_posteriors(posteriors, [0.5, 0.5])
    assert mean.tolist() == [0.75, 0.25]
    assert variance.tolist() == pytest.approx([0.05 + 0.0625] * 2)


def test_discounted_counts_without_rows_are_rejected():
    with pytest.raises(ConfigError, match="one row per discount"):
        nested_posteriors([1, 1], [1, 0])
