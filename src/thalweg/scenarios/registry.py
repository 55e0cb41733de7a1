"""The built-in scenarios by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from thalweg.core.errors import UnknownName, require
from thalweg.core.registry import make_name
from thalweg.data import (
    ArrayFolder,
    Arrays,
    Cifar10,
    Cinic10,
    Dataset,
    DataSource,
    Digits,
    FashionMnist,
    GaussianMixture,
    Ham10000,
    HuggingFace,
    Mnist,
    RiverStream,
    SyntheticLogistic,
    Table,
)
from thalweg.data.in_memory import make_source
from thalweg.local import LocalTraining
from thalweg.nets import AlexNet, Cnn, HamCnn, LeNet5, Linear, Mlp
from thalweg.scenarios.alarms import ALARMS
from thalweg.scenarios.base import Scenario
from thalweg.scenarios.churn import CHURN
from thalweg.scenarios.drift import DRIFT
from thalweg.scenarios.inflows import INFLOWS
from thalweg.scenarios.mixed import MIXED
from thalweg.scenarios.real_streams import REAL_STREAMS
from thalweg.streams import (
    LatentStates,
    PeriodicStates,
    Replay,
    StateDynamics,
    SwitchingRegimes,
)

ScenarioLike = Scenario | Dataset | str | os.PathLike[str]
Access = Literal["full", "partial"]


def digits(access: Access) -> Scenario:
    """The latent-state world on scikit-learn's digits: small enough for a demonstration."""
    return Scenario(
        name=f"digits-{access}",
        data=Digits(),
        net=Mlp(hidden=(64,)),
        world=LatentStates(
            num_clients=20,
            clusters=(0.05, 0.1, 0.5, 100.0),
            states_per_cluster=6,
            access=access,
            reachable=3,
        ),
        local=LocalTraining(lr=0.03, momentum=0.9, weight_decay=1e-4, batch_size=16, passes=2),
        rounds=40,
        capacity=100,
        evaluate_every=2,
        prequential=16,
    )


def digits_periodic() -> Scenario:
    """Latent states on digits whose probabilities return every 50 ticks (10 rounds).

    Clients reach six states, and collect data while they are absent.
    """
    return _digits_over_time("digits-periodic", PeriodicStates(period=50.0, length=0.25))


def digits_regimes() -> Scenario:
    """Latent states on digits whose probabilities change at once, after 20 ticks on average.

    Clients reach six states, and collect data while they are absent.
    """
    return _digits_over_time("digits-regimes", SwitchingRegimes(regimes=4, stay=0.95))


def _digits_over_time(name: str, dynamics: StateDynamics) -> Scenario:
    scenario = digits("partial")
    assert isinstance(scenario.world, LatentStates)
    world = replace(scenario.world, reachable=6, absent="collecting", dynamics=dynamics)
    return replace(scenario, name=name, world=world)


def digits_rotated() -> Scenario:
    """A control: latent states on digits that differ in the rotation, with the same classes.

    Four states, one for each rotation; clients reach all of them, with different probabilities. The
    tasks are the rotations.
    """
    scenario = digits("full")
    world = LatentStates(
        num_clients=20,
        clusters=(1e6,),
        states_per_cluster=4,
        access="full",
        rotations=(0.0, 90.0, 180.0, 270.0),
    )
    return replace(scenario, name="digits-rotated", world=world, tasks=True)


def fashion_mnist(access: Access) -> Scenario:
    """SFedPO's Fashion-MNIST world: 30 clients, 60 states, LeNet-5, memories of 500.

    One pass over the memory per tick, with momentum: the "one step" reading of the paper cannot
    reach its numbers (docs/recipes/sfedpo.md). That reading is ``--set local.passes=none --set
    local.steps=1 --set local.momentum=0``.
    """
    return Scenario(
        name=f"fashion-mnist-{access}",
        data=FashionMnist(),
        net=LeNet5(),
        world=LatentStates(access=access),
        local=LocalTraining(lr=0.01, momentum=0.9, weight_decay=1e-4, batch_size=64, passes=1),
    )


def mnist(access: Access) -> Scenario:
    """SFedPO's world on MNIST."""
    return replace(fashion_mnist(access), name=f"mnist-{access}", data=Mnist())


def cifar10(access: Access) -> Scenario:
    """SFedPO's world on CIFAR-10, with the paper's AlexNet (36 million parameters)."""
    return replace(fashion_mnist(access), name=f"cifar10-{access}", data=Cifar10(), net=AlexNet())


def cifar10_cnn(access: Access) -> Scenario:
    """SFedPO's world on CIFAR-10 with a small net, as in the paper's comparison of nets."""
    return replace(cifar10(access), name=f"cifar10-cnn-{access}", net=Cnn())


def cinic10(access: Access) -> Scenario:
    """SFedPO's world on CINIC-10, with AlexNet."""
    return replace(cifar10(access), name=f"cinic10-{access}", data=Cinic10())


def ham10000(access: Access) -> Scenario:
    """SFedPO's world on HAM10000.

    Two thirds of the images have one class: see balanced_accuracy.
    """
    return replace(fashion_mnist(access), name=f"ham10000-{access}", data=Ham10000(), net=HamCnn())


def synthetic_logistic() -> Scenario:
    """Eleven clients with different logistic concepts, replayed."""
    return Scenario(
        name="synthetic-logistic",
        data=SyntheticLogistic(),
        net=Linear(),
        world=Replay(arrivals=4, at_end="restart"),
        local=LocalTraining(lr=0.1, batch_size=16, steps=5),
        capacity=32,
        ticks=1,
    )


def gaussian_mixture() -> Scenario:
    """Gaussian classes whose means move over time; clients cover contiguous periods."""
    return Scenario(
        name="gaussian-mixture",
        data=GaussianMixture(),
        net=Linear(),
        world=Replay(num_clients=20, arrivals=16, at_end="restart"),
        local=LocalTraining(lr=0.1, batch_size=16, passes=1),
        capacity=64,
        ticks=1,
    )


def own_data(source: DataSource, name: str) -> Scenario:
    """User data: a table or arrays, replayed in time order by the clients in the data."""
    return Scenario(
        name=make_name(name),
        data=source,
        net=Mlp(hidden=(64,)),
        world=Replay(division="interleaved", arrivals=0, availability=1.0),
        local=LocalTraining(lr=0.05, momentum=0.9, batch_size=32, passes=1),
        rounds=0,
        capacity=256,
        ticks=1,
    )


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "digits-full": partial(digits, "full"),
    "digits-partial": partial(digits, "partial"),
    "digits-periodic": digits_periodic,
    "digits-regimes": digits_regimes,
    "digits-rotated": digits_rotated,
    "fashion-mnist-full": partial(fashion_mnist, "full"),
    "fashion-mnist-partial": partial(fashion_mnist, "partial"),
    "mnist-full": partial(mnist, "full"),
    "mnist-partial": partial(mnist, "partial"),
    "cifar10-full": partial(cifar10, "full"),
    "cifar10-partial": partial(cifar10, "partial"),
    "cifar10-cnn-full": partial(cifar10_cnn, "full"),
    "cifar10-cnn-partial": partial(cifar10_cnn, "partial"),
    "cinic10-full": partial(cinic10, "full"),
    "cinic10-partial": partial(cinic10, "partial"),
    "ham10000-full": partial(ham10000, "full"),
    "ham10000-partial": partial(ham10000, "partial"),
    "synthetic-logistic": synthetic_logistic,
    "gaussian-mixture": gaussian_mixture,
    **INFLOWS,
    **CHURN,
    **DRIFT,
    **REAL_STREAMS,
    **ALARMS,
    **MIXED,
}


def find_scenario(given: ScenarioLike) -> Scenario:
    """A scenario, a built-in one by its name, or one for a user's file or data set."""
    if isinstance(given, Scenario):
        return given
    if isinstance(given, Dataset):
        return own_data(make_source(given), given.name)
    require(
        isinstance(given, str | os.PathLike),
        f"expected a scenario, the name of one, a path or a Dataset, got {type(given).__name__}. "
        "Convert a table with thalweg.Dataset.from_frame(frame, label=...), and arrays with "
        "thalweg.Dataset.from_arrays(X, y).",
    )
    name = os.fspath(given)
    if Path(name).suffix.lower() in (".npz", ".csv", ".parquet"):
        source = Arrays(name) if name.lower().endswith(".npz") else Table(name)
        return own_data(source, Path(name).stem)
    if name.startswith("hf:"):
        hub_name = name.removeprefix("hf:")
        return own_data(HuggingFace(hub_name), hub_name.strip("./~").replace("/", "-"))
    if name.startswith("river:"):
        stream = name.removeprefix("river:")
        return own_data(RiverStream(stream), stream)
    if name not in SCENARIOS and Path(name).expanduser().is_dir():
        return own_data(ArrayFolder(name), Path(name).expanduser().resolve().name)
    if name not in SCENARIOS:
        require(
            "." not in name and os.sep not in name,
            f"{name}: expected the name of a scenario, hf:NAME, river:NAME, a .csv, "
            ".parquet or .npz file, or a folder with x.npy and y.npy.",
        )
        raise UnknownName("scenario", name, SCENARIOS, see="thalweg list")
    return SCENARIOS[name]()
