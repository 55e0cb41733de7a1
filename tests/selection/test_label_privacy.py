from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.selection.label_privacy import LabelPrivacy, PrivacyAccount, clip_counts, frequencies

TRUE = np.array([10.0, 0.0, 5.0])
OFF = LabelPrivacy()


def said(
    privacy: LabelPrivacy, *histograms: list[float], span: int | None = None, arriving: int = 0
) -> tuple[PrivacyAccount, list[list[float] | None]]:
    """What a client says when it is asked once per histogram, `arriving` labels before each time."""
    account, words = privacy.init(len(histograms[0])), []
    for turn, counts in enumerate(histograms):
        account = privacy.count_arrivals(account, arriving)
        account, word = privacy.release(
            account, np.array(counts), span, np.random.default_rng(turn)
        )
        words.append(None if word is None else word.tolist())
    return account, words


def test_the_worked_example_of_noise_and_clipping() -> None:
    noisy = TRUE + np.array([1.2, -0.8, 0.3])
    assert frequencies(clip_counts(noisy)) == pytest.approx([0.678788, 0, 0.321212], abs=1e-6)


def test_nothing_left_after_clipping_is_said_as_uniform() -> None:
    assert frequencies(clip_counts(np.array([-1.0, -2.0, -0.1, 0.0]))).tolist() == [0.25] * 4


def test_without_privacy_the_counts_are_said_as_they_are_every_time_and_nothing_is_spent() -> None:
    account, words = said(OFF, [10, 0, 5], [10, 0, 5], [0, 0, 0])
    assert words == [[10, 0, 5], [10, 0, 5], [0, 0, 0]]
    assert (account.reports, account.spent) == (3, 0.0)


@pytest.mark.parametrize(("neighbours", "scale"), [("replace", 4.0), ("add_remove", 2.0)])
def test_the_noise_is_laplace_with_a_scale_that_covers_the_neighbours(
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


def test_noise_is_drawn_anew_for_every_look() -> None:
    _, words = said(LabelPrivacy(epsilon=1.0), [10, 0, 5], [10, 0, 5])
    assert words[0] != words[1]


def test_repeated_looks_add_up() -> None:
    account, _ = said(LabelPrivacy(epsilon=0.5), *[[10, 0, 5]] * 4)
    assert account.spent == 2.0
    assert account.reports == 4


def test_a_window_seen_only_once_is_paid_for_only_once() -> None:
    privacy, looks = LabelPrivacy(epsilon=0.5), [[10.0, 0.0, 5.0]] * 4
    assert said(privacy, *looks, span=15, arriving=15)[0].spent == 0.5
    assert said(privacy, *looks, span=15, arriving=14)[0].spent == 2.0, "one sample is in two"
    assert said(privacy, *looks, span=None, arriving=1000)[0].spent == 2.0


def test_after_overlapping_windows_a_fresh_one_costs_no_more_than_they_did() -> None:
    privacy = LabelPrivacy(epsilon=1.0)
    account = privacy.init(3)
    spent = []
    for arriving in (5, 2, 2, 5, 2):
        account = privacy.count_arrivals(account, arriving)
        account, _ = privacy.release(account, TRUE, 5, np.random.default_rng(0))
        spent.append((account.chain_epsilon, account.spent))
    # Looks 1 to 3 overlap; 4 shares nothing with them; 5 overlaps with 4.
    assert spent == [(1, 1), (2, 2), (3, 3), (1, 3), (2, 3)]


def test_a_change_that_is_too_small_is_not_worth_a_report() -> None:
    # From (2/3, 1/3): to (3/5, 2/5) it is 2/15 in L1, to (1/2, 1/2) it is 1/3.
    account, words = said(LabelPrivacy(min_change=0.2), [2, 1], [4, 2], [3, 2], [1, 1], [1, 1])
    assert words == [[2, 1], None, None, [1, 1], None]
    assert account.reports == 2
    assert account.last_mix.tolist() == [0.5, 0.5]


def test_the_change_is_measured_from_what_was_said_not_from_what_was_last_true() -> None:
    # Steps of 0.2 each; only from the second on has the mix moved by more than 0.3.
    _, words = said(LabelPrivacy(min_change=0.3), [10, 0], [9, 1], [8, 2], [7, 3], [6, 4])
    assert [word is None for word in words] == [False, True, False, True, False]


def test_a_client_with_few_samples_says_nothing() -> None:
    _, words = said(LabelPrivacy(min_count=5), [2, 2], [3, 2], [0, 0])
    assert words == [None, [3, 2], None]


def test_with_noise_silence_costs_as_much_as_a_report() -> None:
    account, words = said(LabelPrivacy(epsilon=0.5, min_change=1.9), *[[100, 0, 50]] * 5)
    assert [word is None for word in words] == [False, True, True, True, True]
    assert account.reports == 1
    assert account.spent == 2.5


def test_with_noise_few_samples_are_noticed_only_through_the_noise() -> None:
    privacy = LabelPrivacy(epsilon=0.1, min_count=5)
    silent = 0
    for seed in range(200):
        account, word = privacy.release(
            privacy.init(3), np.array([4.0, 0.0, 0.0]), None, np.random.default_rng(seed)
        )
        assert account.spent == 0.1
        silent += word is None
    # The sum of three Laplace draws of scale 20 is as often above as below 1: about 100.
    assert 60 < silent < 140


@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    epsilon=st.floats(0.01, 10.0),
    seed=st.integers(0, 100),
)
def test_what_is_said_is_always_a_histogram(counts: list[int], epsilon: float, seed: int) -> None:
    privacy = LabelPrivacy(epsilon=epsilon)
    _, word = privacy.release(
        privacy.init(len(counts)),
        np.array(counts, dtype=np.float64),
        None,
        np.random.default_rng(seed),
    )
    assert word is not None
    assert (word >= 0).all()
    assert frequencies(word).sum() == pytest.approx(1.0)


def test_settings_that_mean_nothing_are_refused() -> None:
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
