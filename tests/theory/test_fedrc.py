import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.theory import (
    client_mixture,
    fedrc_objective,
    label_mass,
    label_priors,
    responsibilities,
)

LOSSES = [[0.2, 1.5], [1.2, 0.3]]  # (models, samples): the sheet's table, turned
LABELS = [0, 1]
HALF = [0.5, 0.5]
FLAT = [HALF, HALF]


def check_close(values, expected):
    np.testing.assert_allclose(values, expected, atol=1e-6)


def test_two_em_rounds_match_worked_example():  # worked example 10
    first = responsibilities(LOSSES, LABELS, HALF, FLAT)
    check_close(first.T, [[0.731059, 0.268941], [0.231475, 0.768525]])
    mixture = client_mixture(first)
    check_close(mixture, [0.481267, 0.518733])
    priors = label_priors(label_mass(first, LABELS, 2))
    check_close(priors, [[0.759515, 0.240485], [0.259229, 0.740771]])
    second = responsibilities(LOSSES, LABELS, mixture, priors)
    check_close(second.T, [[0.462586, 0.537414]] * 2)  # explained by labels alone: cancelled
    check_close(fedrc_objective(LOSSES, LABELS, HALF, FLAT), 0.038272)
    check_close(fedrc_objective(LOSSES, LABELS, mixture, priors), 0.039675)


def test_responsibilities_support_losses_of_any_size():
    far = responsibilities([[1e6, 0.0], [1e6 + 1, 1e6]], LABELS, HALF, FLAT)
    check_close(far, [[0.731059, 1.0], [0.268941, 0.0]])


def test_model_without_mixture_weight_gets_no_responsibility():
    assert responsibilities(LOSSES, LABELS, [1.0, 0.0], FLAT).tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_mixture_keeps_a_small_weight_so_a_model_can_recover():
    mixture = client_mixture([[1.0, 1.0], [0.0, 0.0]])
    assert 0 < mixture[1] < 2e-8
    for _ in range(10):  # e^2 per round
        shares = responsibilities([[2.5] * 2, [0.5] * 2], LABELS, mixture, FLAT)
        mixture = client_mixture(shares)
    assert mixture[1] > 0.5


def test_one_sample_and_no_sample_are_supported():
    one = responsibilities([[0.3], [0.3]], [1], HALF, FLAT)
    assert one.tolist() == [[0.5], [0.5]]
    none = responsibilities(np.empty((2, 0)), [], HALF, FLAT)
    assert none.shape == (2, 0)
    assert client_mixture(none).tolist() == HALF
    assert label_mass(none, [], 3).tolist() == [[0.0] * 3] * 2
    with pytest.raises(ConfigError, match="at least one sample"):
        fedrc_objective(np.empty((2, 0)), [], HALF, FLAT)


def test_class_without_samples_gets_a_tiny_prior():
    priors = label_priors([[3.0, 1.0, 0.0]])
    assert 0 < priors[0, 2] < 1e-8
    check_close(priors, [[0.75, 0.25, 0.0]])


@pytest.mark.parametrize(
    ("losses", "labels", "mixture", "priors", "words"),
    [
        ([[np.nan, 1], [1, 1]], LABELS, HALF, FLAT, "diverged"),
        (LOSSES, [0, 2], HALF, FLAT, "0 .. 1"),
        (LOSSES, [0], HALF, FLAT, "2 numbers"),
        (LOSSES, LABELS, [1.0], FLAT, "2 entries"),
        (LOSSES, LABELS, HALF, [[1.0, 0.0], HALF], "positive shares"),
        (LOSSES, LABELS, HALF, [HALF], "positive shares"),
        ([0.2, 1.5], LABELS, HALF, FLAT, "a row per model"),
    ],
)
def test_invalid_responsibility_inputs_are_rejected(losses, labels, mixture, priors, words):
    with pytest.raises(ConfigError, match=words):
        responsibilities(losses, labels, mixture, priors)


def test_negative_label_mass_is_rejected():
    with pytest.raises(ConfigError, match="non-negative"):
        label_priors([[1.0, -0.1]])


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 20), st.integers(1, 4))
def test_responsibilities_sum_to_one_and_em_never_lowers_the_objective(
    seed, models, samples, classes
):
    rng = np.random.default_rng(seed)
    losses = rng.gamma(1.0, 3.0, (models, samples))
    labels = rng.integers(0, classes, samples)
    mixture = rng.dirichlet(np.ones(models)) + 1e-3
    priors = label_priors(rng.gamma(1.0, 1.0, (models, classes)))
    shares = responsibilities(losses, labels, mixture, priors)
    np.testing.assert_allclose(shares.sum(axis=0), 1)
    mass = label_mass(shares, labels, classes)
    np.testing.assert_allclose(mass.sum(), samples)
    # With the same priors, the new mixture is the maximum of a bound on the objective.
    before = fedrc_objective(losses, labels, mixture, priors)
    assert fedrc_objective(losses, labels, client_mixture(shares), priors) >= before - 1e-6
