"""Random generators per seed, purpose, round and client."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.rng import Draw, rng_for, uniforms_for

words = st.integers(0, 2**63 - 1)


def test_numbers_do_not_depend_on_the_order_of_clients() -> None:
    forward = [rng_for(7, Draw.MEMORY, 3, client).random() for client in range(5)]
    backward = [rng_for(7, Draw.MEMORY, 3, client).random() for client in reversed(range(5))]
    assert forward == backward[::-1]


def test_numbers_differ_by_seed_purpose_round_and_client() -> None:
    first = {
        rng_for(seed, draw, rnd, client).integers(2**63)
        for seed in range(3)
        for draw in Draw
        for rnd in range(3)
        for client in range(3)
    }
    assert len(first) == 3 * len(Draw) * 3 * 3


def test_round_and_client_are_not_interchangeable() -> None:
    assert rng_for(0, Draw.STREAM, 1, 2).random() != rng_for(0, Draw.STREAM, 2, 1).random()


def test_philox_key_is_seed_and_purpose_and_counter_is_client_and_round() -> None:
    # Part of all results, so it must never change.
    spelled_out = np.random.Philox(key=7 + (Draw.MEMORY << 64), counter=(1 << 64) + (3 << 128))
    expected = np.random.Generator(spelled_out).integers(2**32, size=8)
    assert rng_for(7, Draw.MEMORY, rnd=3, client=1).integers(2**32, size=8).tolist() == (
        expected.tolist()
    )


def test_purposes_have_fixed_values() -> None:
    assert {draw.name: draw.value for draw in Draw} == {
        "PARTITION": 0,
        "WORLD": 1,
        "AVAILABILITY": 2,
        "STREAM": 3,
        "INITIAL_MEMORY": 4,
        "MEMORY": 5,
        "SELECTION": 6,
        "BATCH": 7,
        "FORECAST": 8,
        "NET": 9,
        "DATA": 10,
        "LOCAL": 11,
        "AUGMENT": 12,
        "SURVEYED": 13,
        "SELECTION_ANSWER": 14,
        "BANK_ANSWER": 15,
        "SAMPLE_WEIGHTS_ANSWER": 16,
        "SESSIONS": 17,
        "PROBE_ROUND": 18,
        "FAULTS": 19,
        "DRIFT": 20,
        "BASELINE": 21,
        "PRIVACY": 22,
        "JUDGES": 23,
        "SESSION_START_ANSWER": 24,
        "DYNAMICS": 25,
    }


def test_long_draw_does_not_overlap_the_next_client() -> None:
    # Client 1 starts 2^64 blocks after client 0.
    long = rng_for(0, Draw.BATCH, 0, 0).integers(2**63, size=100_000)
    assert rng_for(0, Draw.BATCH, 0, 1).integers(2**63) not in long


def test_neighbouring_clients_are_not_correlated() -> None:
    draws = np.array([rng_for(0, Draw.BATCH, 0, client).random(400) for client in range(40)])
    between = np.corrcoef(draws)[~np.eye(40, dtype=bool)]
    assert abs(between).max() < 5 / np.sqrt(400)  # standard deviation 1 / sqrt(400)


@settings(max_examples=25)
@given(seed=words, rnd=words, client=words)
def test_any_63_bit_seed_round_and_client_is_valid(seed: int, rnd: int, client: int) -> None:
    numbers = [rng_for(seed, Draw.LOCAL, rnd, client).random() for _ in range(2)]
    assert numbers[0] == numbers[1]
    assert 0 <= numbers[0] < 1


@settings(max_examples=25)
@given(seed=words, rnd=words, clients=st.lists(words, max_size=4), count=st.integers(0, 9))
def test_uniforms_for_equals_the_draws_of_each_client(
    seed: int, rnd: int, clients: list[int], count: int
) -> None:
    together = uniforms_for(seed, Draw.SESSIONS, rnd, clients, count)
    assert together.shape == (len(clients), count)
    for client, row in zip(clients, together, strict=True):
        alone = rng_for(seed, Draw.SESSIONS, rnd, client).random(count)
        assert row.tolist() == alone.tolist()


def test_negative_seed_is_rejected() -> None:
    with pytest.raises(OverflowError):
        rng_for(-1, Draw.LOCAL)
