from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.selection import LabelPrivacy, PrivacyAccount
from thalweg.selection.label_privacy import clip_counts, frequencies

TRUE = np.array([10.0, 0.0, 5.0])
OFF = LabelPrivacy()


def release_all(
    privacy: LabelPrivacy, *histograms: list[float], span: int | None = None, arriving: int = 0
) -> tuple[PrivacyAccount, list[list[float] | None]]:
    """Release each histogram in turn, with `arriving` labels before each; None: no report."""
    account, released = privacy.init(len(histograms[0])), []
    for survey, true in enumerate(histograms):
        account = privacy.count_arrivals(account, arriving)
        account, counts = privacy.release(
            account, np.array(true), span, np.random.default_rng(survey)
        )
        released.append(None if counts is None else counts.tolist())
    return account, released


def test_negative_noisy_counts_are_clipped_before_normalising() -> None:
    noisy = TRUE + np.array([1.2, -0.8, 0.3])
    assert frequencies(clip_counts(noisy)) == pytest.approx([0.678788, 0, 0.321212], abs=1e-6)


def test_counts_that_are_all_clipped_become_uniform() -> None:
    assert frequencies(clip_counts(np.array([-1.0, -2.0, -0.1, 0.0]))).tolist() == [0.25] * 4


def test_without_privacy_the_true_counts_are_released_every_time() -> None:
    account, released = release_all(OFF, [10, 0, 5], [10, 0, 5], [0, 0, 0])
    assert released == [[10, 0, 5], [10, 0, 5], [0, 0, 0]]
    assert account.spent == 0.0


@pytest.mark.parametrize(("neighbours", "scale"), [("replace", 4.0), ("add_remove", 2.0)])
def test_the_noise_is_laplace_with_the_scale_of_the_neighbours(
    neighbours: str, scale: float
) -> None:
    privacy = LabelPrivacy(epsilon=0.5, neighbours=neighbours)  # type: ignore[arg-type]
    assert privacy.scale == scale
    # Far from zero nothing is clipped.
    _, counts = privacy.release(
        privacy.init(20_000), np.full(20_000, 1e6), None, np.random.default_rng(0)
    )
    assert counts is not None
    noise = counts - 1e6
    # Mean 0, variance 2 b^2, mean size b; standard errors over 20,000 draws are b / 100,
    # b^2 sqrt(20) / 141 = b^2 / 31.6 and b / 141.
    assert abs(noise.mean()) < 5 * scale / 100
    assert noise.var() == pytest.approx(2 * scale**2, abs=5 * scale**2 / 31.6)
    assert abs(noise).mean() == pytest.approx(scale, abs=5 * scale / 141)


def test_each_survey_draws_new_noise() -> None:
    _, released = release_all(LabelPrivacy(epsilon=1.0), [10, 0, 5], [10, 0, 5])
    assert released[0] != released[1]


def test_the_epsilon_of_repeated_surveys_adds_up() -> None:
    account, _ = release_all(LabelPrivacy(epsilon=0.5), *[[10, 0, 5]] * 4)
    assert account.spent == 2.0


def test_disjoint_windows_spend_epsilon_only_once() -> None:
    privacy, surveys = LabelPrivacy(epsilon=0.5), [[10.0, 0.0, 5.0]] * 4
    assert release_all(privacy, *surveys, span=15, arriving=15)[0].spent == 0.5
    assert release_all(privacy, *surveys, span=15, arriving=14)[0].spent == 2.0, (
        "one sample is in two windows"
    )
    assert release_all(privacy, *surveys, span=None, arriving=1000)[0].spent == 2.0


def test_a_disjoint_window_starts_a_new_chain() -> None:
    privacy = LabelPrivacy(epsilon=1.0)
    account = privacy.init(3)
    spent = []
    for arriving in (5, 2, 2, 5, 2):
        account = privacy.count_arrivals(account, arriving)
        account, _ = privacy.release(account, TRUE, 5, np.random.default_rng(0))
        spent.append((account.chain_epsilon, account.spent))
    # Surveys 1 to 3 overlap; 4 shares no sample with them; 5 overlaps with 4.
    assert spent == [(1, 1), (2, 2), (3, 3), (1, 3), (2, 3)]


def test_a_small_change_of_the_mix_sends_no_report() -> None:
    # From (2/3, 1/3): to (3/5, 2/5) it is 2/15 in L1, to (1/2, 1/2) it is 1/3.
    account, released = release_all(
        LabelPrivacy(min_change=0.2), [2, 1], [4, 2], [3, 2], [1, 1], [1, 1]
    )
    assert released == [[2, 1], None, None, [1, 1], None]
    assert account.reports == 2
    assert account.last_mix.tolist() == [0.5, 0.5]


def test_the_change_is_measured_from_the_last_report() -> None:
    # Steps of 0.2 each; only from the second on has the mix moved by more than 0.3.
    _, released = release_all(LabelPrivacy(min_change=0.3), [10, 0], [9, 1], [8, 2], [7, 3], [6, 4])
    assert [counts is None for counts in released] == [False, True, False, True, False]


def test_a_client_with_few_samples_sends_no_report() -> None:
    _, released = release_all(LabelPrivacy(min_count=5), [2, 2], [3, 2], [0, 0])
    assert released == [None, [3, 2], None]


def test_with_noise_a_missing_report_spends_epsilon_too() -> None:
    account, released = release_all(LabelPrivacy(epsilon=0.5, min_change=1.9), *[[100, 0, 50]] * 5)
    assert [counts is None for counts in released] == [False, True, True, True, True]
    assert account.reports == 1
    assert account.spent == 2.5


def test_with_noise_min_count_is_compared_with_the_noisy_sum() -> None:
    privacy = LabelPrivacy(epsilon=0.1, min_count=5)
    num_missing = 0
    for seed in range(200):
        account, counts = privacy.release(
            privacy.init(3), np.array([4.0, 0.0, 0.0]), None, np.random.default_rng(seed)
        )
        assert account.spent == 0.1
        num_missing += counts is None
    # The sum of three Laplace draws of scale 20 is as often above as below 1: about 100.
    assert 60 < num_missing < 140


@given(
    true=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    epsilon=st.floats(0.01, 10.0),
    seed=st.integers(0, 100),
)
def test_released_noisy_counts_are_always_a_histogram(
    true: list[int], epsilon: float, seed: int
) -> None:
    privacy = LabelPrivacy(epsilon=epsilon)
    _, counts = privacy.release(
        privacy.init(len(true)),
        np.array(true, dtype=np.float64),
        None,
        np.random.default_rng(seed),
    )
    assert counts is not None
    assert (counts >= 0).all()
    assert frequencies(counts).sum() == pytest.approx(1.0)


def test_invalid_parameters_are_rejected() -> None:
    for epsilon in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ConfigError, match="epsilon must be positive and finite, or none"):
            LabelPrivacy(epsilon=epsilon)
    for change in (-0.1, 2.0):
        with pytest.raises(ConfigError, match="min_change must lie in"):
            LabelPrivacy(min_change=change)
    with pytest.raises(ConfigError, match="min_count must not be negative"):
        LabelPrivacy(min_count=-1)
    with pytest.raises(UnknownName, match="Did you mean 'replace'"):
        LabelPrivacy(neighbours="replaced")  # type: ignore[arg-type]
