from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.streams import LOST, Unreliable

CLIENTS = np.arange(4000)


def test_lost_and_late_shares_match_their_probabilities() -> None:
    delays = Unreliable(lost=0.1, late=0.3, delay=2.0).draw_delays(CLIENTS, rnd=3, seed=7)
    assert (delays == LOST).mean() == pytest.approx(0.1, abs=0.02)
    assert (delays > 0).mean() == pytest.approx(0.3, abs=0.03)
    late = delays[delays > 0]
    assert late.mean() == pytest.approx(2.0, abs=0.15)
    assert (late == 1).mean() == pytest.approx(1 / 2, abs=0.05)  # geometric
    assert (late == 2).mean() == pytest.approx(1 / 4, abs=0.05)


def test_mean_delay_of_one_always_delays_by_one_round() -> None:
    delays = Unreliable(lost=0.0, late=1.0, delay=1.0).draw_delays(CLIENTS, 0, 0)
    assert (delays == 1).all()


def test_zero_probabilities_give_no_faults() -> None:
    calm = Unreliable(lost=0.0, late=0.0)
    assert not calm.draw_delays(CLIENTS, 0, 0).any()
    assert not calm.draw_lost_responses(CLIENTS, 0, 0, 0).any()


def test_loss_probability_one_loses_all_responses() -> None:
    gone = Unreliable(lost=1.0, late=0.0, spread=2.0)
    assert (gone.draw_delays(CLIENTS, 0, 0) == LOST).all()
    assert gone.draw_lost_responses(CLIENTS, 0, 0, 0).all()


@given(st.lists(st.integers(0, 50), unique=True, max_size=8), st.integers(0, 99), st.integers(0, 9))
def test_fault_of_a_client_does_not_depend_on_other_participants(
    clients: list[int], rnd: int, seed: int
) -> None:
    faults = Unreliable(lost=0.3, late=0.4, spread=1.0)
    all_delays = faults.draw_delays(np.arange(51), rnd, seed)
    assert faults.draw_delays(np.array(clients, dtype=np.int64), rnd, seed).tolist() == [
        all_delays[client] for client in clients
    ]


def test_faults_differ_between_rounds_seeds_probe_rounds_and_surveys() -> None:
    faults = Unreliable(lost=0.5, late=0.0)
    lost = faults.draw_delays(CLIENTS, 1, 2) == LOST
    others = [
        faults.draw_delays(CLIENTS, 2, 2) == LOST,
        faults.draw_delays(CLIENTS, 1, 3) == LOST,
        faults.draw_delays(CLIENTS, 1, 2, probe_round=1) == LOST,
        faults.draw_lost_responses(CLIENTS, 1, 2, 0),
        faults.draw_lost_responses(CLIENTS, 1, 2, 1),
    ]
    for other in others:
        assert (lost == other).mean() == pytest.approx(0.5, abs=0.05)


def test_median_client_has_the_given_fault_probabilities() -> None:
    faults = Unreliable(lost=0.1, late=0.2, spread=1.0)
    chances = np.array([faults.fault_probs(client, seed=0) for client in range(1001)])
    assert np.median(chances, axis=0) == pytest.approx([0.1, 0.2], abs=0.015)
    assert (chances[:, 1] / chances[:, 0]) == pytest.approx(2.0)
    # With e times worse odds, a share 0.3 e / (0.7 + 0.3 e) of the responses is lost or late.
    worse = np.quantile(chances.sum(1), 0.8413)
    assert worse == pytest.approx(0.538103, abs=0.04)
    assert (chances.sum(1) < 1).all()


def test_zero_spread_gives_all_clients_equal_fault_probabilities() -> None:
    assert Unreliable(lost=0.1, late=0.2).fault_probs(5, seed=0).tolist() == [0.1, 0.2]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lost": 0.6, "late": 0.5}, r"lost \+ late must be at most 1, got 0\.6 \+ 0\.5"),
        ({"lost": -0.1}, "lost must lie in"),
        ({"late": float("nan")}, "late must lie in"),
        ({"delay": 0.5}, "delay must be at least 1"),
        ({"spread": -1.0}, "spread must lie in"),
    ],
)
def test_invalid_faults_are_rejected(fields: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Unreliable(**fields)
