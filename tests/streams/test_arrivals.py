from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.streams import (
    ARRIVALS,
    ArrivalProcess,
    AtStart,
    Bursts,
    ConstantRate,
    OneShot,
    Poisson,
)
from thalweg.streams.arrivals import StreamRate, spread_starts


def counts(process: ArrivalProcess, flow: StreamRate, rounds: int) -> list[int]:
    return [process.draw_count(flow, rnd, np.random.default_rng(rnd)) for rnd in range(rounds)]


def flow(
    rows: int = 20, rounds: float = 10, *, client: int = 0, rate_factor: float = 1.0
) -> StreamRate:
    return StreamRate(client, rows, rounds, rate_factor)


@pytest.mark.parametrize(
    "make",
    [lambda n: ConstantRate(per_round=n), lambda n: Poisson(rate=n), lambda n: Bursts(size=n)],
)
def test_rates_that_would_not_end_are_rejected(make: Callable[[int], ArrivalProcess]) -> None:
    make(1_000_000)
    with pytest.raises(ConfigError, match="must be at most 1,000,000, got 1000001"):
        make(1_000_001)
    with pytest.raises(ConfigError, match="or none, got 0"):
        make(0)


def test_at_start_process_delivers_all_samples_before_round_0() -> None:
    assert AtStart().initial_count(flow()) == 20
    assert counts(AtStart(), flow(), 3) == [0, 0, 0]
    assert AtStart().expected_count(flow(), 10) == 0
    assert AtStart().burst_size(flow()) == 20


def test_only_at_start_process_has_initial_samples() -> None:
    for kind, process in ARRIVALS.items():
        assert process().initial_count(flow()) == (20 if kind == "at-start" else 0)


def test_constant_rate_delivers_the_same_number_every_round() -> None:
    assert counts(ConstantRate(3), flow(), 4) == [3, 3, 3, 3]
    assert ConstantRate(3).expected_count(flow(), 7) == 21
    assert ConstantRate(3).burst_size(flow()) == 3


def test_fractional_rate_delivers_one_sample_periodically_from_round_0() -> None:
    assert counts(ConstantRate(0.25), flow(), 8) == [1, 0, 0, 0, 1, 0, 0, 0]
    assert ConstantRate(0.25).burst_size(flow()) == 1


@given(rows=st.integers(0, 500), rounds=st.integers(1, 300))
def test_default_constant_rate_delivers_all_rows_by_the_end_of_the_run(
    rows: int, rounds: int
) -> None:
    mine = flow(rows, rounds)
    arrived = counts(ConstantRate(), mine, rounds)
    assert sum(arrived) == rows
    assert max(arrived) - min(arrived) <= 1
    assert max(arrived) == ConstantRate().burst_size(mine)
    assert ConstantRate().expected_count(mine, rounds) == pytest.approx(rows)


def test_rate_factor_scales_the_number_of_arrivals() -> None:
    assert counts(ConstantRate(3), flow(rate_factor=2.0), 2) == [6, 6]
    assert counts(ConstantRate(), flow(rate_factor=2.0), 2) == [4, 4]
    assert Poisson(3).expected_count(flow(rate_factor=2.0), 5) == 30
    assert Bursts(3).burst_size(flow(rate_factor=2.0)) == 6


def test_poisson_arrivals_have_the_mean_and_the_variance_of_their_rate() -> None:
    arrived = np.array(counts(Poisson(4.0), flow(), 4000))
    assert abs(arrived.mean() - 4) < 5 * 2 / 63  # standard deviation 2 / sqrt(4000)
    assert abs(arrived.var() - 4) < 5 * 6 / 63
    assert Poisson().expected_count(flow(), 10) == 20
    assert Poisson().burst_size(flow(rows=21)) == 3


def test_equal_generators_give_equal_poisson_counts() -> None:
    assert counts(Poisson(4.0), flow(), 20) == counts(Poisson(4.0), flow(), 20)


def test_periodic_bursts_are_staggered_across_clients() -> None:
    assert counts(Bursts(5, every=3), flow(client=0), 7) == [5, 0, 0, 5, 0, 0, 5]
    assert counts(Bursts(5, every=3), flow(client=4), 7) == [0, 5, 0, 0, 5, 0, 0]
    assert Bursts(5, every=3).expected_count(flow(client=0), 7) == 15
    assert Bursts(5, every=3).expected_count(flow(client=4), 7) == 10


@given(
    rows=st.integers(0, 100),
    rounds=st.integers(1, 60),
    every=st.integers(1, 20),
    client=st.integers(0, 50),
)
def test_bursts_without_a_size_deliver_all_rows(
    rows: int, rounds: int, every: int, client: int
) -> None:
    arrived = counts(Bursts(every=every), flow(rows, rounds, client=client), rounds)
    assert sum(arrived) >= rows or rounds < every, "if there is one burst at least"
    assert sum(arrived) == Bursts(every=every).expected_count(
        flow(rows, rounds, client=client), rounds
    )


def test_random_bursts_follow_their_probability() -> None:
    process = Bursts(5, every=None, probability=0.25)
    arrived = np.array(counts(process, flow(), 4000))
    assert set(arrived.tolist()) == {0, 5}
    assert abs((arrived > 0).mean() - 0.25) < 5 * 0.007
    assert process.expected_count(flow(), 12) == 15
    # 10 rounds at probability 0.25: at least two bursts must deliver 20 samples.
    assert Bursts(every=None, probability=0.25).burst_size(flow()) == 10


def test_one_shot_process_delivers_all_rows_within_its_width() -> None:
    assert counts(OneShot(), flow(7), 3) == [7, 0, 0]
    assert counts(OneShot(width=2), flow(7), 3) == [4, 3, 0]
    assert OneShot(width=2).draw_count(flow(7), -1, np.random.default_rng(0)) == 0
    assert OneShot(width=2).burst_size(flow(7)) == 4
    assert OneShot(width=2).expected_count(flow(8), 1) == 4
    assert OneShot(width=2).expected_count(flow(8), 100) == 8


def test_no_samples_arrive_before_round_0() -> None:
    for process in ARRIVALS.values():
        for rnd in range(-20, 0):
            assert process().draw_count(flow(), rnd, np.random.default_rng(0)) == 0


def test_only_the_one_shot_process_has_a_stay_length() -> None:
    stays = {kind: process().stay_length for kind, process in ARRIVALS.items()}
    assert stays.pop("one-shot") == 1
    assert set(stays.values()) == {None}


@given(count=st.integers(0, 60), stay=st.integers(1, 20), rounds=st.integers(1, 40))
def test_one_shot_starts_are_spread_evenly_and_end_within_the_run(
    count: int, stay: int, rounds: int
) -> None:
    starts = spread_starts(count, stay, rounds, np.random.default_rng(0))
    options = max(rounds - stay, 0) + 1
    assert ((starts >= 0) & (starts < options)).all()
    each = np.bincount(starts, minlength=options)
    assert each.max(initial=0) <= -(-count // options)


def test_order_of_one_shot_starts_is_random() -> None:
    starts = spread_starts(50, 1, 50, np.random.default_rng(0))
    assert sorted(starts.tolist()) == list(range(50))
    assert starts.tolist() != list(range(50))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: ConstantRate(0), "per_round"),
        (lambda: ConstantRate(float("inf")), "per_round"),
        (lambda: Poisson(-1.0), "rate"),
        (lambda: Poisson(float("nan")), "rate"),
        (lambda: Bursts(0), "size"),
        (lambda: Bursts(every=0), "every"),
        (lambda: Bursts(every=None), "set exactly one of every and probability"),
        (lambda: Bursts(probability=0.5), "set exactly one of every and probability"),
        (lambda: Bursts(every=None, probability=1.5), "probability"),
        (lambda: OneShot(0), "width"),
    ],
)
def test_invalid_arrival_processes_are_rejected(make: Callable[[], Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        make()
