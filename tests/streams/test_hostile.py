from __future__ import annotations

import numpy as np
import pytest

import thalweg
from contracts.runs import check_engines_agree
from thalweg.core.errors import ConfigError
from thalweg.streams import Hostile, TampersUpdates

CLIENTS = np.arange(200)
DELTAS = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
SMALL = ["capacity=24", "local.passes=1", "ticks=2", "world.num_clients=8", "evaluate_every=4"]


def test_hostile_clients_are_drawn_once_with_the_given_share() -> None:
    faults = Hostile(share=0.3)
    assert isinstance(faults, TampersUpdates)
    hostile = faults.is_hostile(CLIENTS, seed=1)
    assert 40 <= hostile.sum() <= 80
    assert faults.is_hostile(CLIENTS[50:], seed=1).tolist() == hostile[50:].tolist()
    assert not Hostile(share=0.0).is_hostile(CLIENTS, seed=1).any()
    assert faults.draw_delays(CLIENTS, 0, 1).tolist() == [0] * 200
    assert not faults.draw_lost_responses(CLIENTS, 0, 1, 0).any()


@pytest.mark.parametrize("attack", ["flip", "noise", "together"])
def test_updates_of_honest_clients_are_unchanged(attack: str) -> None:
    faults = Hostile(share=0.3, attack=attack, strength=4.0)  # type: ignore[arg-type]
    before = DELTAS.copy()
    sent, hostile = faults.tamper(DELTAS, CLIENTS, 5, 1), faults.is_hostile(CLIENTS, 1)
    assert sent[~hostile].tolist() == DELTAS[~hostile].tolist()
    assert DELTAS.tolist() == before.tolist()
    lengths = np.linalg.norm(sent[hostile], axis=1) / np.linalg.norm(DELTAS[hostile], axis=1)
    np.testing.assert_allclose(lengths, 4.0, rtol=1e-5)


def test_each_attack_changes_updates_as_documented() -> None:
    deltas, clients = np.array([[1, 2], [3, 0]], dtype=np.float32), np.array([4, 9])
    flipped = Hostile(share=1.0, strength=2.0).tamper(deltas, clients, 0, 0)
    assert flipped.tolist() == [[-2, -4], [-6, 0]]
    both = Hostile(share=1.0, attack="together").tamper(deltas, clients, 0, 0)
    unit = both / np.linalg.norm(both, axis=1, keepdims=True)
    np.testing.assert_allclose(unit[0], unit[1], rtol=1e-5)
    own = Hostile(share=1.0, attack="noise").tamper(deltas, clients, 0, 0)
    unit = own / np.linalg.norm(own, axis=1, keepdims=True)
    assert abs(float(unit[0] @ unit[1])) < 0.999


def test_invalid_hostile_options_are_rejected() -> None:
    with pytest.raises(ConfigError, match="share"):
        Hostile(share=1.5)
    with pytest.raises(ConfigError, match="attack"):
        Hostile(attack="shout")  # type: ignore[arg-type]


def test_both_engines_use_the_same_hostile_clients_and_count_them() -> None:
    overrides = [*SMALL, "faults=hostile", "faults.share=0.4", "robust=norm-clip"]
    runs = [
        thalweg.run("fedavg", "digits-partial", rounds=4, engine=engine, overrides=overrides)
        for engine in ("fast", "reference")
    ]
    check_engines_agree(*runs)
    assert any(row.get("hostile") for row in runs[0].metrics)
    assert any(row.get("clipped") for row in runs[0].metrics)


def test_median_aggregation_learns_under_attack_where_the_mean_fails() -> None:
    overrides = [*SMALL, "world.availability=1.0", "faults=hostile", "faults.strength=30"]
    mean, median = (
        thalweg.run("fedavg", "digits-partial", seed=1, rounds=8, overrides=[*overrides, each])
        for each in ("robust=none", "robust=median")
    )
    assert median.metrics[0]["hostile"] in (1, 2, 3)
    assert median.final["accuracy"] > mean.final["accuracy"]
