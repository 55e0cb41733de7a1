"""Scenarios for alarms: new samples in every round; the labels of half of the clients change."""

from __future__ import annotations

from collections.abc import Callable

from thalweg.data import DataSource, Digits, FashionMnist
from thalweg.local import LocalTraining
from thalweg.nets import Mlp
from thalweg.scenarios.base import Scenario
from thalweg.streams import ConstantRate, Even, Inflow, Sudden

PER_ROUND = 50  # samples per client, all predicted before they are used for training


def _alarm_scenario(
    name: str, data: DataSource, net: Mlp, num_clients: int, rounds: int
) -> Scenario:
    """All clients are present, memories hold ten rounds of data, and half of the clients drift."""
    world = Inflow(
        num_clients=num_clients,
        partition=Even(),
        arrivals=ConstantRate(per_round=PER_ROUND),
        at_end="restart",
        absent="collecting",
    )
    return Scenario(
        name=name,
        data=data,
        net=net,
        world=world,
        local=LocalTraining(lr=0.05, momentum=0.9, batch_size=64, steps=8),
        rounds=rounds,
        ticks=1,
        capacity=10 * PER_ROUND,
        evaluate_every=5,
        prequential=PER_ROUND,
        drift=Sudden(at=rounds // 2, share=0.5),
    )


def alarms_fashion_mnist() -> Scenario:
    """20 clients with 50 new Fashion-MNIST images per round; ten clients drift in mid-run."""
    return _alarm_scenario("alarms-fashion-mnist", FashionMnist(), Mlp(), num_clients=20, rounds=60)


def alarms_digits() -> Scenario:
    """8 clients with 50 digits per round, which recur; four clients drift in mid-run.

    For demonstrations.
    """
    return _alarm_scenario("alarms-digits", Digits(), Mlp(hidden=(64,)), num_clients=8, rounds=60)


ALARMS: dict[str, Callable[[], Scenario]] = {
    "alarms-digits": alarms_digits,
    "alarms-fashion-mnist": alarms_fashion_mnist,
}
