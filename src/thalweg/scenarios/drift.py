"""Scenarios in which label concepts and image rotations change every few rounds.

Peng and Tang, "FedDAA: Dynamic client clustering for concept drift adaptation in federated
learning": 60 clients, six steps of 40 rounds, four concepts, three rotations. In the paper half of
the clients participate in a round (``--set selection=uniform --set selection.fraction=0.5``), and
every method has its own learning rate; the value here is the most frequent one. Clients train on
the samples of the current step, and some of them also on those of the previous step; the memory
holds both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from thalweg.data import Cifar10, Cifar100, DataSource, Digits, FashionMnist
from thalweg.local import LocalTraining
from thalweg.nets import Cnn5x5, LeNet5, Mlp, NetSpec
from thalweg.scenarios.base import Scenario
from thalweg.streams import Steps


def _steps_scenario(
    name: str,
    data: DataSource,
    net: NetSpec,
    world: Steps,
    *,
    lr: float = 0.06,
    batch_size: int = 128,
) -> Scenario:
    """One pass over the memory per round; evaluation on all tasks at the end of every step."""
    return Scenario(
        name=name,
        data=data,
        net=net,
        world=world,
        local=LocalTraining(lr=lr, momentum=0.9, batch_size=batch_size, passes=1),
        rounds=len(world.concepts) * world.rounds_per_step,
        ticks=1,
        evaluate_every=world.rounds_per_step,
        tasks=True,
        prequential=0,
    )


def drift_fashion_mnist() -> Scenario:
    """FedDAA's drifts on Fashion-MNIST: 60 clients, six steps of 40 rounds, four concepts.

    The paper's net has two convolutions and is not described further; this is LeNet-5, which has
    two. `drift-fashion-mnist-released` has the net and the training of the released code.
    """
    return _steps_scenario("drift-fashion-mnist", FashionMnist(), LeNet5(), Steps())


def drift_fashion_mnist_small() -> Scenario:
    """drift-fashion-mnist at a sixth of the cost: 20 clients with 500 images each.

    Batches of 64 instead of 128, so that clients take the same number of steps per round.
    """
    return _steps_scenario(
        "drift-fashion-mnist-small", FashionMnist(), LeNet5(), _small_steps(), batch_size=64
    )


def drift_fashion_mnist_mlp() -> Scenario:
    """drift-fashion-mnist-small with a dense net of 200 units, at about a quarter of the cost."""
    return _steps_scenario(
        "drift-fashion-mnist-mlp", FashionMnist(), Mlp(), _small_steps(), batch_size=64
    )


def drift_cifar10() -> Scenario:
    """FedDAA's drifts on CIFAR-10 with LeNet-5 at reduced scale (paper: 60 clients, ResNet-18).

    The paper's accuracy is not reachable; the order of the methods can be compared.
    """
    return _steps_scenario("drift-cifar10", Cifar10(), LeNet5(), _small_steps(), batch_size=64)


def drift_cifar100() -> Scenario:
    """FedDAA's drifts on CIFAR-100 with LeNet-5 at reduced scale (paper: 60 clients, MobileNet)."""
    return replace(drift_cifar10(), name="drift-cifar100", data=Cifar100())


def drift_fashion_mnist_released() -> Scenario:
    """drift-fashion-mnist with the net and the local training of FedDAA's released code.

    Convolutions with 32 and 64 maps of 5x5 and 2,048 hidden units (2,171,786 parameters); weight
    decay; clients keep their momentum within a time step; they train on a random 90 % of a shard,
    drawn anew in each step, and leave out a last mini-batch that is not full.

    Differs from the released code: it draws the 90 % of the previous step's shard anew as well, and
    has 41 rounds per step.
    """
    return _released("drift-fashion-mnist-released", drift_fashion_mnist())


def drift_fashion_mnist_released_small() -> Scenario:
    """drift-fashion-mnist-released at a sixth of the cost: 20 clients with 500 images each."""
    return _released("drift-fashion-mnist-released-small", drift_fashion_mnist_small())


def _released(name: str, scenario: Scenario) -> Scenario:
    world = scenario.world
    assert isinstance(world, Steps)
    return replace(
        scenario,
        name=name,
        net=Cnn5x5(),
        world=replace(world, train_share=0.9),
        local=replace(
            scenario.local,
            weight_decay=5e-4,
            optimizer_state="keep",
            keep_rounds=world.rounds_per_step,
            drop_last=True,
        ),
    )


def _small_steps() -> Steps:
    return Steps(num_clients=20, shard_size=500)


def drift_digits() -> Scenario:
    """FedDAA's drifts on scikit-learn's digits: 12 clients, steps of 5 rounds.

    For demonstrations.
    """
    world = Steps(num_clients=12, rounds_per_step=5)
    return _steps_scenario("drift-digits", Digits(), Mlp(hidden=(64,)), world, batch_size=16)


DRIFT: dict[str, Callable[[], Scenario]] = {
    "drift-digits": drift_digits,
    "drift-fashion-mnist": drift_fashion_mnist,
    "drift-fashion-mnist-small": drift_fashion_mnist_small,
    "drift-fashion-mnist-mlp": drift_fashion_mnist_mlp,
    "drift-fashion-mnist-released": drift_fashion_mnist_released,
    "drift-fashion-mnist-released-small": drift_fashion_mnist_released_small,
    "drift-cifar10": drift_cifar10,
    "drift-cifar100": drift_cifar100,
}
