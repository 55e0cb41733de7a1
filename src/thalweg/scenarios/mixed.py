"""Scenarios in which everything changes: members, label distributions and concepts."""

from __future__ import annotations

from collections.abc import Callable

from thalweg.data import DataSource, Digits, FashionMnist
from thalweg.local import LocalTraining
from thalweg.nets import Mlp
from thalweg.scenarios.base import Scenario
from thalweg.streams import LatentStates, RandomChurn, Sudden


def _mixed_scenario(
    name: str, data: DataSource, net: Mlp, *, capacity: int, states_per_cluster: int
) -> Scenario:
    """20 clients join and leave, switch between latent states, and half of them drift.

    A client draws its samples from one of a few latent states with different class mixes. Most
    members are present in a round. In round 40 the labels of ten clients are reversed.
    """
    return Scenario(
        name=name,
        data=data,
        net=net,
        world=LatentStates(
            num_clients=20,
            clusters=(0.05, 0.1, 0.5, 100.0),
            states_per_cluster=states_per_cluster,
            access="partial",
            reachable=3,
            availability=0.8,
            absent="collecting",
        ),
        local=LocalTraining(lr=0.03, momentum=0.9, weight_decay=1e-4, batch_size=16, passes=1),
        rounds=80,
        ticks=1,
        capacity=capacity,
        evaluate_every=5,
        prequential=capacity,
        sessions=RandomChurn(join=0.03, leave=0.03, present=0.5),
        drift=Sudden(at=40, share=0.5),
    )


def mixed_digits() -> Scenario:
    """20 clients with small memories join, leave and change their classes; half of them drift."""
    return _mixed_scenario(
        "mixed-digits", Digits(), Mlp(hidden=(64,)), capacity=60, states_per_cluster=6
    )


def mixed_fashion_mnist() -> Scenario:
    """mixed-digits on Fashion-MNIST, with memories of 200 images."""
    return _mixed_scenario(
        "mixed-fashion-mnist", FashionMnist(), Mlp(), capacity=200, states_per_cluster=10
    )


MIXED: dict[str, Callable[[], Scenario]] = {
    "mixed-digits": mixed_digits,
    "mixed-fashion-mnist": mixed_fashion_mnist,
}
