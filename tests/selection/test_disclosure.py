from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.selection.disclosure import Disclosure, Ledger, clipped, frequencies

TRUE = np.array([10.0, 0.0, 5.0])
OFF = Disclosure()


def said(
    privacy: Disclosure, *histograms: list[float], span: int | None = None, arriving: int = 0
) -> tuple[Ledger, list[list[float] | None]]:
    """What a client says when it is asked once per histogram, `arriving` labels before each time."""
    ledger, words = privacy.begin(len(histograms[0])), []
    for turn, counts in enumerate(histograms):
        ledger = privacy.arrive(ledger, arriving)
        ledger, word = privacy.release(ledger, np.array(counts), span, np.random.default_rng(turn))
        words.append(None if word is None else word.tolist())
    return ledger, words


def test_the_worked_example_of_noise_and_clipping() -> None:
    noisy = TRUE + np.array([1.2, -0.8, 0.3])
    assert frequencies(clipped(noisy)) == pytest.approx([0.678788, 0, 0.321212], abs=1e-6)


def test_nothing_left_after_clipping_is_said_as_uniform() -> None:
    assert frequencies(clipped(np.array([-1.0, -2.0, -0.1, 0.0]))).tolist() == [0.25] * 4


def test_without_privacy_the_counts_are_said_as_they_are_every_time_and_nothing_is_spent() -> None:
    ledger, words = said(OFF, [10, 0, 5], [10, 0, 5], [0, 0, 0])
    assert words == [[10, 0, 5], [10, 0, 5], [0, 0, 0]]
    assert (ledger.reports, ledger.spent) == (3, 0.0)


@pytest.mark.parametrize(("neighbours", "scale"), [("replace", 4.0), ("add_remove", 2.0)])
def test_the_noise_is_laplace_with_a_scale_that_covers_the_neighbours(
    neighbours: str, scale: float
) -> None:
    privacy = Disclosure(epsilon=0.5, neighbours=neighbours)  # type: ignore[arg-type]
    assert privacy.scale == scale
    # Far from zero nothing is clipped.
    _, counts = privacy.release(
        privacy.begin(20_000), np.full(20_000, 1e6), None, np.random.default_rng(0)
    )
    assert counts is not None
    noise = counts - 1e6
    # Mean 0, variance 2 b^2, mean size b; standard errors over 20,000 draws are b / 100,
    # b^2 sqrt(20) / 141 = b^2 / 31.6 and b / 141.
    assert abs(noise.mean()) < 5 * scale / 100
    assert noise.var() == pytest.approx(2 * scale**2, abs=5 * scale**2 / 31.6)
    assert abs(noise).mean() == pytest.approx(scale, abs=5 * scale / 141)


def test_noise_is_drawn_anew_for_every_look() -> None:
    _, words = said(Disclosure(epsilon=1.0), [10, 0, 5], [10, 0, 5])
    assert words[0] != words[1]


def test_repeated_looks_add_up() -> None:
    ledger, _ = said(Disclosure(epsilon=0.5), *[[10, 0, 5]] * 4)
    assert ledger.spent == 2.0
    assert ledger.reports == 4


def test_a_window_seen_only_once_is_paid_for_only_once() -> None:
    privacy, looks = Disclosure(epsilon=0.5), [[10.0, 0.0, 5.0]] * 4
    assert said(privacy, *looks, span=15, arriving=15)[0].spent == 0.5
    assert said(privacy, *looks, span=15, arriving=14)[0].spent == 2.0, "one sample is in two"
    assert said(privacy, *looks, span=None, arriving=1000)[0].spent == 2.0


def test_after_overlapping_windows_a_fresh_one_costs_no_more_than_they_did() -> None:
    privacy = Disclosure(epsilon=1.0)
    ledger = privacy.begin(3)
    spent = []
    for arriving in (5, 2, 2, 5, 2):
        ledger = privacy.arrive(ledger, arriving)
        ledger, _ = privacy.release(ledger, TRUE, 5, np.random.default_rng(0))
        spent.append((ledger.chain, ledger.spent))
    # Looks 1 to 3 overlap; 4 shares nothing with them; 5 overlaps with 4.
    assert spent == [(1, 1), (2, 2), (3, 3), (1, 3), (2, 3)]


def test_a_change_that_is_too_small_is_not_worth_a_report() -> None:
    # From (2/3, 1/3): to (3/5, 2/5) it is 2/15 in L1, to (1/2, 1/2) it is 1/3.
    ledger, words = said(Disclosure(min_change=0.2), [2, 1], [4, 2], [3, 2], [1, 1], [1, 1])
    assert words == [[2, 1], None, None, [1, 1], None]
    assert ledger.reports == 2
    assert ledger.said.tolist() == [0.5, 0.5]


def test_the_change_is_measured_from_what_was_said_not_from_what_was_last_true() -> None:
    # Steps of 0.2 each; only from the second on has the mix moved by more than 0.3.
    _, words = said(Disclosure(min_change=0.3), [10, 0], [9, 1], [8, 2], [7, 3], [6, 4])
    assert [word is None for word in words] == [False, True, False, True, False]


def test_a_client_with_few_samples_says_nothing() -> None:
    _, words = said(Disclosure(min_count=5), [2, 2], [3, 2], [0, 0])
    assert words == [None, [3, 2], None]


def test_with_noise_silence_costs_as_much_as_a_report() -> None:
    ledger, words = said(Disclosure(epsilon=0.5, min_change=1.9), *[[100, 0, 50]] * 5)
    assert [word is None for word in words] == [False, True, True, True, True]
    assert ledger.reports == 1
    assert ledger.spent == 2.5


def test_with_noise_few_samples_are_noticed_only_through_the_noise() -> None:
    privacy = Disclosure(epsilon=0.1, min_count=5)
    silent = 0
    for seed in range(200):
        ledger, word = privacy.release(
            privacy.begin(3), np.array([4.0, 0.0, 0.0]), None, np.random.default_rng(seed)
        )
        assert ledger.spent == 0.1
        silent += word is None
    # The sum of three Laplace draws of scale 20 is as often above as below 1: about 100.
    assert 60 < silent < 140


@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    epsilon=st.floats(0.01, 10.0),
    seed=st.integers(0, 100),
)
def test_what_is_said_is_always_a_histogram(counts: list[int], epsilon: float, seed: int) -> None:
    privacy = Disclosure(epsilon=epsilon)
    _, word = privacy.release(
        privacy.begin(len(counts)),
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
            Disclosure(epsilon=epsilon)
    for change in (-0.1, 2.0):
        with pytest.raises(ConfigError, match="min_change must lie in"):
            Disclosure(min_change=change)
    with pytest.raises(ConfigError, match="min_count must not be negative"):
        Disclosure(min_count=-1)
    with pytest.raises(UnknownName, match="Did you mean 'replace'"):
        Disclosure(neighbours="replaced")  # type: ignore[arg-type]
