from __future__ import annotations

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.local import Gaussian, RoundNumbers
from thalweg.theory import gaussian_epsilon

QUIET = Gaussian(clip=5.0, noise=1e-6)


def test_only_updates_longer_than_the_clip_are_shortened() -> None:
    rng = np.random.default_rng(0)
    long, short = np.array([[6, 8]], dtype=np.float32), np.array([[0, 1]], dtype=np.float32)
    np.testing.assert_allclose(QUIET.add_noise(long, rng), [[3, 4]], atol=5e-5)
    np.testing.assert_allclose(QUIET.add_noise(short, rng), [[0, 1]], atol=5e-5)
    assert long.tolist() == [[6, 8]], "the argument is unchanged"


def test_updates_of_several_models_are_clipped_as_one_vector() -> None:
    deltas = np.array([[6, 0], [0, 8]], dtype=np.float32)  # norm 10 together
    noisy = QUIET.add_noise(deltas, np.random.default_rng(0))
    np.testing.assert_allclose(noisy, [[3, 0], [0, 4]], atol=5e-5)


def test_the_standard_deviation_of_the_noise_is_noise_times_clip() -> None:
    noisy = Gaussian(clip=2.0, noise=3.0).add_noise(
        np.zeros((1, 40_000), dtype=np.float32), np.random.default_rng(0)
    )
    assert noisy.std() == pytest.approx(6.0, rel=0.02)
    assert noisy.dtype == np.float32


def test_a_huge_update_is_clipped_without_overflow() -> None:
    noisy = QUIET.add_noise(np.array([[3e38, 0]], dtype=np.float32), np.random.default_rng(0))
    np.testing.assert_allclose(noisy, [[5, 0]], atol=5e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_update_that_is_not_finite_is_sent_as_zeros_with_noise(value: float) -> None:
    deltas = np.array([[value, 3.0]], dtype=np.float32)
    sent = QUIET.add_noise(deltas, np.random.default_rng(0))
    np.testing.assert_allclose(sent, [[0, 0]], atol=5e-5)


def test_the_sensitivity_of_an_update_is_twice_the_clip() -> None:
    assert Gaussian(noise=2.0).compute_epsilon(1) == pytest.approx(
        gaussian_epsilon(1e-5, noise=1.0)
    )
    assert Gaussian(clip=9.0, noise=2.0).compute_epsilon(1) == Gaussian(noise=2.0).compute_epsilon(
        1
    )
    assert Gaussian().compute_epsilon(0) == 0
    assert Gaussian().compute_epsilon(10) > Gaussian().compute_epsilon(9)


def test_smallest_parameters_have_a_finite_cost() -> None:
    privacy = Gaussian(clip=1e-30, noise=1e-6, losses="noisy", max_loss=1e-30)
    assert privacy.update_cost.mu_squared == pytest.approx(4e12)
    sent = privacy.add_noise(np.ones((1, 2), dtype=np.float32), np.random.default_rng(0))
    assert np.isfinite(sent).all()
    for field, value in (("noise", 1e-200), ("clip", 1e-300), ("max_loss", 1e-300)):
        with pytest.raises(ConfigError, match=f"{field} must be at least"):
            Gaussian(**{field: value})


@pytest.mark.parametrize("field", ["clip", "noise", "delta"])
def test_zero_parameters_are_rejected(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        Gaussian(**{field: 0.0})


NUMBERS = RoundNumbers(
    num_samples=40,
    num_steps=np.array([7]),
    losses=np.array([2.5]),
    num_tested=np.array([20]),
    num_correct=np.array([15]),
    error_sums=None,
)


def hide(privacy: Gaussian, numbers: RoundNumbers = NUMBERS, capacity: int = 100) -> RoundNumbers:
    return privacy.hide_numbers(numbers, capacity, np.random.default_rng(0))


def test_numbers_are_unchanged_by_default() -> None:
    assert hide(Gaussian()) == NUMBERS
    assert Gaussian().exact_parts == ("losses", "counts", "predictions")


def test_omitted_numbers_are_constants() -> None:
    sent = hide(Gaussian(losses="omit", counts="omit", predictions="omit"))
    assert (sent.num_samples, sent.num_steps.tolist(), sent.losses.tolist()) == (1, [1], [0.0])
    assert (sent.num_tested.tolist(), sent.num_correct.tolist()) == ([0], [0])


def test_numbers_with_almost_no_noise_are_the_true_ones() -> None:
    quiet = Gaussian(noise=1e-6, losses="noisy", counts="noisy", predictions="noisy")
    sent = hide(quiet)
    assert (sent.num_samples, sent.num_steps.tolist()) == (40, [1])
    assert sent.losses == pytest.approx([2.5], rel=1e-4)
    assert (sent.num_tested.tolist(), sent.num_correct.tolist()) == ([20], [15])
    errors = NUMBERS._replace(num_correct=np.array([0]), error_sums=np.array([30.0]))
    assert hide(quiet, errors).error_sums == pytest.approx([30.0], rel=1e-4)


def test_numbers_are_clipped_before_noise() -> None:
    quiet = Gaussian(
        noise=1e-6, losses="noisy", counts="noisy", predictions="noisy", max_loss=2, max_count=10
    )
    sent = hide(quiet)
    assert sent.losses == pytest.approx([2.0], rel=1e-4)
    assert (sent.num_samples, sent.num_tested.tolist(), sent.num_correct.tolist()) == (
        10,
        [10],
        [10],
    )
    assert hide(quiet, NUMBERS._replace(losses=np.array([np.nan]))).losses == pytest.approx(
        [2.0], rel=1e-4
    )


@pytest.mark.parametrize("seed", range(20))
def test_noisy_counts_are_possible_values(seed: int) -> None:
    loud = Gaussian(noise=50.0, losses="noisy", counts="noisy", predictions="noisy")
    sent = loud.hide_numbers(NUMBERS, 100, np.random.default_rng(seed))
    assert 1 <= sent.num_samples <= 100
    assert 0 <= sent.num_correct[0] <= sent.num_tested[0] <= 1000
    errors = NUMBERS._replace(num_correct=np.array([0]), error_sums=np.array([30.0]))
    sent = loud.hide_numbers(errors, 100, np.random.default_rng(seed))
    assert sent.error_sums is not None
    assert 0 <= sent.error_sums[0] <= 10 * sent.num_tested[0]


def test_the_noise_of_a_loss_is_noise_times_half_the_interval() -> None:
    privacy = Gaussian(noise=3.0, losses="noisy", max_loss=4.0)
    rng = np.random.default_rng(0)
    sent = [privacy.hide_numbers(NUMBERS, 9, rng).losses[0] for _ in range(4000)]
    assert np.std(sent) == pytest.approx(6.0, rel=0.06)
    assert np.mean(sent) == pytest.approx(2.5, abs=0.4)


def test_every_noisy_number_costs_as_much_as_the_update() -> None:
    assert Gaussian(noise=4.0).cost.mu_squared == 0.25
    noisy = Gaussian(noise=4.0, losses="noisy", counts="omit", predictions="noisy")
    assert noisy.cost.mu_squared == 0.75
    assert noisy.exact_parts == ()


def test_hidden_counts_need_hidden_losses() -> None:
    with pytest.raises(ConfigError, match="counts=omit needs losses=noisy or losses=omit"):
        Gaussian(counts="omit")
