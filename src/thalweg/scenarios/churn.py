"""Scenarios of clients that come and go: two groups take turns, each with labels of its own.

Chang et al., "Federated learning with dynamic client arrival and departure", 2025. Everybody has all samples from
the start. The paper's shares of labels that both groups have are ``--set world.partition.overlap=0`` (here) and
0.2, its mixes ``--set world.partition.concentration=0.3`` (here) and 0.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from thalweg.data import AgNews, Cifar10, DataSource, Digits, FashionMnist, Mnist, Svhn
from thalweg.local import PolynomialDecay, Sgd
from thalweg.nets import Cnn, FastText, Mlp, NetSpec
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
    batch_size: int = 128,
) -> Scenario:
    """Two groups of `each` clients in six sessions of `length` rounds, in which the learning rate falls to 60 %."""
    return Scenario(
        name=name,
        data=data,
        net=net,
        world=Inflow(num_clients=2 * each, partition=Overlap(), historical=1.0, capacity_of="own"),
        local=Sgd(
            lr=lr,
            momentum=0.9,
            batch_size=batch_size,
            steps=5,
            decay=PolynomialDecay(power=0.9, floor=0.6, rounds=length),
        ),
        rounds=SESSIONS * length,
        ticks=1,
        evaluate_first=10,
        prequential=0,
        sessions=Alternating(length=length),
    )


def churn_mnist() -> Scenario:
    """Two groups of 20 clients take turns of 50 rounds on MNIST: digits 0 to 4, then 5 to 9.

    The learning rate is that of the paper's code for FedAvg; the width of its net is not given.
    """
    return _alternating_scenario("churn-mnist", Mnist(), Mlp(), each=20, length=50, lr=0.001)


def churn_fashion_mnist() -> Scenario:
    """The same on Fashion-MNIST. The paper's learning rate is not known; this is that of MNIST."""
    return replace(churn_mnist(), name="churn-fashion-mnist", data=FashionMnist())


def churn_ag_news() -> Scenario:
    """Two groups of 20 clients take turns of 100 rounds on AG News: two sections of the news, then two others.

    Word vectors are smaller than the paper's, of 300 numbers for 30,000 words: ``--set net.width=300 --set
    data.vocabulary=30000``. Its learning rate is not known. In short trials of FedAvg with 0.01 nothing was right
    in ten rounds after a transition, and with 0.1 half of it after two; the paper's numbers lie between, and so
    does this one. Labels that both groups have: overlap 0, or 0.6.
    """
    data, net = AgNews(vocabulary=10_000), FastText(width=100)
    return _alternating_scenario("churn-ag-news", data, net, each=20, length=100, lr=0.03)


def churn_cifar10() -> Scenario:
    """At reduced scale: two groups of 10 clients take turns of 40 rounds on CIFAR-10, with a small net.

    The paper has 20 clients in a group, sessions of 150 rounds, batches of 128 and a ResNet-18 that knows
    ImageNet; its levels of accuracy are out of reach here, and its learning rate is not known. Of 0.01, 0.03 and
    0.1 no one was clearly best for the first session of FedAvg (seed 0).
    """
    return _alternating_scenario(
        "churn-cifar10", Cifar10(), Cnn(), each=10, length=40, lr=0.03, batch_size=64
    )


def churn_svhn() -> Scenario:
    """The same, also at reduced scale, on SVHN; the paper has 20 clients in a group and sessions of 200 rounds."""
    return replace(churn_cifar10(), name="churn-svhn", data=Svhn())


def churn_digits() -> Scenario:
    """The same world on scikit-learn's digits, with groups of 6 and sessions of 10 rounds: for demonstrations."""
    net = Mlp(hidden=(32,))
    return _alternating_scenario(
        "churn-digits", Digits(), net, each=6, length=10, lr=0.02, batch_size=16
    )


CHURN: dict[str, Callable[[], Scenario]] = {
    "churn-digits": churn_digits,
    "churn-mnist": churn_mnist,
    "churn-fashion-mnist": churn_fashion_mnist,
    "churn-ag-news": churn_ag_news,
    "churn-svhn": churn_svhn,
    "churn-cifar10": churn_cifar10,
}
