from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.theory import gaussian_epsilon
from thalweg.theory.privacy_account import (
    ORDERS,
    PrivacyCost,
    gaussian_rdp,
    laplace_rdp,
    rdp_epsilon,
    sampled_gaussian_rdp,
)

DELTA = 1e-5


def test_sampling_everyone_is_no_sampling() -> None:
    assert sampled_gaussian_rdp(0.7, 1.0).tolist() == gaussian_rdp(0.7).tolist()


def test_sampling_bound_at_order_three() -> None:
    # mu = 1, share 1/2: 1 + 1/4 * 3 * 2 e + 1/8 * 2 e^3, over alpha - 1 = 2; below 3/2.
    expected = math.log(1 + 1.5 * math.e + math.exp(3) / 4) / 2
    assert sampled_gaussian_rdp(1.0, 0.5)[1] == pytest.approx(expected)


@given(st.floats(0.01, 5), st.floats(0.01, 1), st.floats(0.01, 1))
def test_smaller_shares_and_more_noise_disclose_less(mu: float, share: float, part: float) -> None:
    whole = sampled_gaussian_rdp(mu, share)
    slack = 1e-12 + 1e-9 * whole
    assert (whole <= gaussian_rdp(mu) + slack).all()
    assert (sampled_gaussian_rdp(mu, share * part) <= whole + slack).all()
    assert (sampled_gaussian_rdp(mu * part, share) <= whole + slack).all()


@given(st.floats(0.01, 3), st.integers(1, 50))
def test_composition_is_never_above_the_sum_of_epsilons(epsilon: float, count: int) -> None:
    cost = PrivacyCost(laplace={epsilon: 1}).times(count)
    assert cost.epsilon(DELTA) <= epsilon * count * (1 + 1e-12)


@given(st.floats(0.01, 2), st.floats(0.01, 2))
def test_two_numbers_disclose_at_most_as_much_as_one_that_changes_by_both(
    one: float, other: float
) -> None:
    assert (laplace_rdp(one) + laplace_rdp(other) <= laplace_rdp(one + other) + 1e-12).all()


def test_many_laplace_releases_cost_less_than_their_sum() -> None:
    assert PrivacyCost(laplace={0.1: 100}).epsilon(DELTA) < 6  # the sum is 10


def test_costs_of_gaussian_releases_are_exact() -> None:
    cost = PrivacyCost(mu_squared=0.25).times(4)
    assert cost.epsilon(DELTA) == pytest.approx(gaussian_epsilon(DELTA, noise=1.0))
    assert PrivacyCost().epsilon(DELTA) == 0
    assert PrivacyCost.unlimited().epsilon(DELTA) == math.inf
    assert PrivacyCost.unlimited().times(0).epsilon(DELTA) == 0
    assert (cost + PrivacyCost.unlimited()).epsilon(DELTA) == math.inf


def test_mixed_releases_cost_at_least_each_part() -> None:
    gaussian, laplace = PrivacyCost(mu_squared=0.04).times(10), PrivacyCost(laplace={0.1: 20})
    both = (gaussian + laplace).epsilon(DELTA)
    assert both > max(gaussian.epsilon(DELTA), laplace.epsilon(DELTA))
    assert both <= gaussian.epsilon(DELTA) + 2.0


def test_invalid_inputs_are_rejected() -> None:
    with pytest.raises(ConfigError, match="share must lie in"):
        sampled_gaussian_rdp(1.0, 0.0)
    with pytest.raises(ConfigError, match="delta must lie in"):
        rdp_epsilon(gaussian_rdp(1.0), 0.0)


# --- comparison with dp-accounting ---


def import_reference():  # type: ignore[no-untyped-def]
    reason = "dp-accounting is not installed: pip install -e '.[dev]'"
    return pytest.importorskip("dp_accounting", reason=reason)


def reference_epsilon(*events: object) -> float:
    dp = import_reference()
    accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_ONE)
    for event in events:
        accountant.compose(event)
    return float(accountant.get_epsilon(DELTA))


@pytest.mark.filterwarnings("ignore")
def test_compositions_equal_those_of_dp_accounting() -> None:
    dp = import_reference()
    for mu, releases in ((0.2, 1), (0.05, 300), (1.0, 10)):
        event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(1 / mu), releases)
        ours = rdp_epsilon(releases * gaussian_rdp(mu), DELTA)
        assert ours == pytest.approx(reference_epsilon(event), rel=1e-9)
    for epsilon, releases in ((0.5, 3), (0.1, 100), (2.0, 1)):
        event = dp.SelfComposedDpEvent(dp.LaplaceDpEvent(1 / epsilon), releases)
        ours = rdp_epsilon(releases * laplace_rdp(epsilon), DELTA)
        assert ours == pytest.approx(reference_epsilon(event), rel=1e-9)
    both = [
        dp.SelfComposedDpEvent(dp.GaussianDpEvent(10.0), 20),
        dp.SelfComposedDpEvent(dp.LaplaceDpEvent(10.0), 20),
    ]
    cost = PrivacyCost(0.01).times(20) + PrivacyCost(laplace={0.1: 20})
    assert cost.epsilon(DELTA) == pytest.approx(reference_epsilon(*both), rel=1e-9)


@pytest.mark.filterwarnings("ignore")
def test_exact_gaussian_composition_equals_that_of_privacy_loss_distributions() -> None:
    dp = import_reference()
    from dp_accounting.pld import privacy_loss_distribution

    for sigma, releases in ((4.0, 10), (1.0, 1)):
        loss = privacy_loss_distribution.from_gaussian_mechanism(
            sigma / math.sqrt(releases), value_discretization_interval=1e-3
        )
        ours = PrivacyCost(1 / sigma**2).times(releases).epsilon(DELTA)
        assert ours == pytest.approx(loss.get_epsilon_for_delta(DELTA), abs=2e-3)
    assert dp is not None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("mu", "share", "releases"), [(0.5, 0.1, 10), (0.25, 0.3, 50), (1, 0.01, 5)]
)
def test_sampling_bound_is_valid_but_not_far_above_that_of_dp_accounting(
    mu: float, share: float, releases: int
) -> None:
    """Theirs is Theorem 27 of the same paper, which is tighter for Gaussian noise."""
    dp = import_reference()
    sampled = dp.SampledWithoutReplacementDpEvent(
        1000, int(1000 * share), dp.GaussianDpEvent(1 / mu)
    )
    theirs = reference_epsilon(dp.SelfComposedDpEvent(sampled, releases))
    ours = rdp_epsilon(releases * sampled_gaussian_rdp(mu, share), DELTA)
    without = rdp_epsilon(releases * gaussian_rdp(mu), DELTA)
    assert theirs * (1 - 1e-9) <= ours <= min(2 * theirs, without)


def test_sampling_bound_equals_that_of_dp_accounting_at_a_high_order() -> None:
    import_reference()
    from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_sample_wor_gaussian_scalar

    theirs = _compute_rdp_sample_wor_gaussian_scalar(0.01, 20.0, 512)  # theirs is Theorem 9 here
    assert sampled_gaussian_rdp(1 / 20, 0.01)[ORDERS.index(512)] == pytest.approx(theirs)
    assert np.isfinite(theirs)
