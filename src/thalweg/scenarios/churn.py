"""Scenarios of client arrival and departure: two groups with different labels alternate.

Chang et al., "Federated learning with dynamic client arrival and departure", 2025. All clients have
all samples from the start. The paper's label overlaps are ``--set world.partition.overlap=0``
(default) and 0.2, its concentrations ``--set world.partition.concentration=0.3`` (default) and 0.7.
Nets and learning rates of MNIST, Fashion-MNIST and AG News are those of the released code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from thalweg.data import AgNews, Cifar10, DataSource, Digits, FashionMnist, Mnist, Svhn
from thalweg.local import LocalTraining, PolynomialDecay
from thalweg.nets import Cnn, FastText, Linear, Mlp, NetSpec
from thalweg.scenarios.base import Scenario
from thalweg.streams import Alternating, Inflow, Overlap

SESSIONS = 6


def _alternating_scenario(
    name: str,
    data: DataSource,
    net: NetSpec,
    *,
    each: int,
    length: int,
    lr: float,
    floor: float,
    batch_size: int = 128,
) -> Scenario:
    """Two groups of `each` clients and six sessions of `length` rounds.

    In each session the learning rate decays to the share `floor`.
    """
    return Scenario(
        name=name,
        data=data,
        net=net,
        world=Inflow(num_clients=2 * each, partition=Overlap(), historical=1.0, capacity_of="own"),
        local=LocalTraining(
            lr=lr,
            momentum=0.9,
            batch_size=batch_size,
            steps=5,
            decay=PolynomialDecay(power=0.9, floor=floor, rounds=length),
        ),
        rounds=SESSIONS * length,
        ticks=1,
        evaluate_first=10,
        prequential=0,
        sessions=Alternating(length=length),
    )


def churn_mnist() -> Scenario:
    """Two groups of 20 clients alternate every 50 rounds on MNIST: digits 0 to 4, then 5 to 9.

    The net is linear, as in the released code.
    """
    return _alternating_scenario(
        "churn-mnist", Mnist(), Linear(), each=20, length=50, lr=0.001, floor=0.6
    )


def churn_fashion_mnist() -> Scenario:
    """churn-mnist on Fashion-MNIST, with a larger learning rate."""
    return _alternating_scenario(
        "churn-fashion-mnist", FashionMnist(), Linear(), each=20, length=50, lr=0.003, floor=0.3
    )


def churn_ag_news() -> Scenario:
    """Two groups of 20 clients, with two topics each, alternate every 100 rounds on AG News.

    Word vectors have 300 numbers, as in the paper; with 100 the first rounds learn more slowly. The
    vocabulary has 10,000 words instead of the 30,522 of BERT's tokenizer (``--set
    data.vocabulary=30000``). Label overlap: 0 or 0.8, with which each group has three topics.
    """
    data, net = AgNews(vocabulary=10_000), FastText(width=300)
    return _alternating_scenario(
        "churn-ag-news", data, net, each=20, length=100, lr=0.005, floor=0.2
    )


def churn_cifar10() -> Scenario:
    """Two groups of 10 clients alternate every 40 rounds on CIFAR-10; a small net.

    The paper has 20 clients per group, sessions of 150 rounds, batches of 128 and a ResNet-18
    pretrained on ImageNet. Its accuracy is not reachable here. The released learning rate, 0.05
    with a floor of 0.5, belongs to that net. Among 0.01, 0.03 and 0.1 none was clearly best in the
    first session of FedAvg (seed 0).
    """
    return _alternating_scenario(
        "churn-cifar10", Cifar10(), Cnn(), each=10, length=40, lr=0.03, floor=0.6, batch_size=64
    )


def churn_svhn() -> Scenario:
    """churn-cifar10 on SVHN (reduced scale).

    The paper has 20 clients per group and sessions of 200 rounds.
    """
    return replace(churn_cifar10(), name="churn-svhn", data=Svhn())


def churn_digits() -> Scenario:
    """churn-mnist on scikit-learn's digits: groups of 6, sessions of 10 rounds.

    For demonstrations.
    """
    net = Mlp(hidden=(32,))
    return _alternating_scenario(
        "churn-digits", Digits(), net, each=6, length=10, lr=0.02, floor=0.6, batch_size=16
    )


CHURN: dict[str, Callable[[], Scenario]] = {
    "churn-digits": churn_digits,
    "churn-mnist": churn_mnist,
    "churn-fashion-mnist": churn_fashion_mnist,
    "churn-ag-news": churn_ag_news,
    "churn-svhn": churn_svhn,
    "churn-cifar10": churn_cifar10,
}
