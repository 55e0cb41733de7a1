"""Limits that the owner of a device sets: checked before anything is computed or allocated."""

from __future__ import annotations

import itertools
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from network.edge.doubles import SCHEMA, plan_for
from network.edge.test_daemon import PLAN, Home, invitation, join_run, make_request, rejection_of
from network.edge.test_live_setup import invitation as live_invitation
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.core.registry import TooLarge
from thalweg.engine.builders import make_world
from thalweg.engine.plan import make_plan, plan_to_toml
from thalweg.local import LocalTraining
from thalweg.memory import Reservoir
from thalweg.nets import Module
from thalweg.nets.module import count_params
from thalweg.network.edge.device_limits import (
    MAX_REQUESTS,
    DeviceLimits,
    RoundTimer,
    limit_join_time,
    parse_size,
)
from thalweg.network.edge.schema import schema_to_json
from thalweg.network.edge.socket import Frame
from thalweg.network.edge.store import Store
from thalweg.network.rejections import Rejected
from thalweg.recipes import get_recipe


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "state")
    yield home
    home.stop()


@pytest.mark.parametrize(
    "limits, code",
    [
        (DeviceLimits(max_params=4809), "too-large"),
        (DeviceLimits(max_memory=4 * 4810 * 8 + 16 * 64 - 1), "too-large"),  # 16 images of 8x8
        (DeviceLimits(recipes=("sfedpo", "fedprox")), "recipe"),
    ],
)
def test_invitation_beyond_a_limit_is_rejected(limits: DeviceLimits, code: str, home: Home) -> None:
    rejection_of(home.start(limits=limits), invitation(), code)
    assert home.store is not None
    assert home.store.read_membership() is None


def test_invitation_within_the_limits_is_accepted(home: Home) -> None:
    limits = DeviceLimits(4810, 4 * 4810 * 8 + 16 * 64, recipes=("sfedpo", "fedavg"))
    assert join_run(home.start(limits=limits)).client == 2


def test_model_is_measured_and_not_taken_from_the_invitation(home: Home) -> None:
    """The server claims 9 parameters, but its plan has about 100,000 ** 2."""
    plan = make_plan("fedavg", "digits-partial", net={"kind": "mlp", "hidden": (10**5, 10**5)})
    text = plan_to_toml(plan)
    rejection_of(home.start(), invitation(plan=text, num_params=9), "too-large")
    assert home.store is not None
    assert home.store.read_membership() is None


def test_module_is_measured_without_memory(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("import torch\n\ndef make(n=1):\n    return torch.nn.Linear(n, n)\n")
    assert count_params(Module(f"{file}:make", {"n": 1_000_000})) == 10**12 + 10**6
    with pytest.raises(TooLarge, match=r"1000001000000 parameters.*--max-params"):
        DeviceLimits().check_net(Module(f"{file}:make", {"n": 1_000_000}))


def test_live_memory_is_checked_before_its_file_is_created(home: Home, tmp_path: Path) -> None:
    """10,000 samples of 2**26 numbers need 2.7 TB."""
    schema = schema_to_json(replace(SCHEMA, shape=(2**26,), columns=(), centre=(), width=()))
    text = plan_to_toml(plan_for("fedavg", "capacity=10000"))
    letter = live_invitation(schema=schema, plan=text, shape=(2**26,), num_params=9)
    daemon = home.start(data=str(tmp_path / "rows.jsonl"))
    reason = rejection_of(daemon, letter, "too-large")
    assert re.search("--max-(memory|params)", reason)
    assert sum(file.stat().st_size for file in home.folder.iterdir()) < 10**6


@pytest.mark.parametrize(
    "changes", [{"steps": 200_001}, {"steps": None, "passes": 9000, "batch_size": 1}]
)
def test_round_without_end_is_rejected(changes: dict[str, Any]) -> None:
    """The scenario has 5 ticks per round."""
    plan = make_plan("fedavg", "digits-partial")
    assert plan.scenario.ticks == 5
    local = LocalTraining(**{"lr": 0.1, "batch_size": 8, "steps": 200_000} | changes)
    endless = replace(plan, scenario=replace(plan.scenario, local=local))
    with pytest.raises(TooLarge, match="steps of local training per round"):
        DeviceLimits().check_plan(endless)
    local = LocalTraining(lr=0.1, batch_size=8, steps=200_000)
    DeviceLimits().check_plan(replace(plan, scenario=replace(plan.scenario, local=local)))


@pytest.mark.parametrize(
    "settings, most",
    [
        ("local.steps=10 local.passes=none local.batch_size=20", 5 * 10 * 20),
        ("local.steps=10 local.passes=none local.batch_size=1000000", 5 * 10 * 100),  # the memory
        ("local.passes=2 local.batch_size=1", 5 * 2 * 100),
        ("local.passes=0.5 world.arrivals=300", 5 * 300),
        ("ticks=1 world=inflow world.arrivals=constant world.arrivals.per_round=300", 300),
        ("ticks=1 world=inflow world.arrivals=poisson world.arrivals.rate=299.5", 300),
        ("ticks=1 world=inflow world.arrivals=bursts world.arrivals.size=300", 300),
    ],
)
def test_samples_of_a_round_are_limited(settings: str, most: int) -> None:
    """A round has 5 ticks or 1; a memory holds 100 samples."""
    plan = make_plan("fedavg", "digits-partial", overrides=settings.split())
    assert (plan.scenario.ticks in (1, 5), plan.scenario.capacity) == (True, 100)
    DeviceLimits(max_samples=most).check_plan(plan)
    with pytest.raises(TooLarge, match=f"up to {most} samples .*--max-samples"):
        DeviceLimits(max_samples=most - 1).check_plan(plan)


@pytest.mark.parametrize(
    "recipe, settings, num_models",
    [
        ("fedavg", [], 1),
        ("ifca", ["bank.models=4"], 1),
        ("fedrc", ["bank.num_models=4"], 4),
        ("feddaa", ["bank.max_clusters=4"], 4),
        ("fedavg", ["bank=two-mixtures", "bank.max_models=3"], 3),
    ],
)
def test_work_is_counted_for_each_model_that_a_client_trains(
    recipe: str, settings: list[str], num_models: int
) -> None:
    """A round has 5 ticks of 10 steps of 20 samples."""
    local = ["local.steps=10", "local.passes=none", "local.batch_size=20", "local.keep_rounds=none"]
    plan = make_plan(recipe, "digits-partial", overrides=[*local, *settings])
    most = num_models * 5 * 10 * 20
    DeviceLimits(max_samples=most).check_plan(plan)
    with pytest.raises(TooLarge, match=f"up to {most} samples .*--max-samples"):
        DeviceLimits(max_samples=most - 1).check_plan(plan)


def test_samples_that_arrive_because_a_client_has_them_are_limited(home: Home) -> None:
    """The rate of this world follows from the number of rounds and of the client's samples."""
    settings = ["world=inflow", "ticks=1", "rounds=3", "local.passes=0.5", "capacity=10"]
    plan = make_plan("fedavg", "digits-partial", overrides=settings)
    world = make_world(plan.scenario, plan.scenario.data.load(None, plan.seed), plan.seed)
    limits = DeviceLimits(max_samples=int(world.supply(2).total / 3) - 1)
    limits.check_plan(plan)
    rejection_of(home.start(limits=limits), invitation(plan=plan_to_toml(plan)), "too-large")


def test_owners_memory_and_not_that_of_the_plan_bounds_the_work_of_a_live_run(
    home: Home, tmp_path: Path
) -> None:
    """A round has 2 ticks of 1000 passes. The owner's memory of 21 samples replaces that of 10."""
    plan = plan_for("fedavg", "capacity=10", "ticks=2", "local.steps=none", "local.passes=1000")
    letter = live_invitation(plan=plan_to_toml(plan))
    limits = DeviceLimits(max_samples=2 * 1000 * 20)
    daemon = home.start(data=str(tmp_path / "rows.jsonl"), limits=limits, capacity=21)
    assert "--max-samples" in rejection_of(daemon, letter, "too-large")


@pytest.mark.parametrize(
    "settings",
    [
        "world.num_clients=10001",
        "world.num_clients=1000000",
        "world.num_clients=1000 world.states_per_cluster=251",  # of 4 clusters
        "data=gaussian-mixture data.num_samples=1000000 data.num_features=100000",
        "ticks=10000 world.arrivals=1000000",
    ],
)
def test_plan_that_needs_long_or_much_memory_is_rejected_before_data_are_loaded(
    settings: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan("fedavg", "digits-partial", overrides=settings.split())
    monkeypatch.setattr(type(plan.scenario.data), "load", None)
    rejection_of(home.start(), invitation(plan=plan_to_toml(plan)), "too-large")
    assert home.store is not None
    assert home.store.read_membership() is None


def test_capacity_that_a_world_gives_a_client_is_limited(home: Home) -> None:
    """Client 2 of this world stores all of its samples, more than the scenario's capacity of 10."""
    settings = ["world=inflow", "world.capacity_of=own", "capacity=10", "ticks=1", "rounds=3"]
    plan = make_plan("fedavg", "digits-partial", overrides=[*settings, "local.passes=1"])
    data = plan.scenario.data.load(None, plan.seed)
    capacity = make_world(plan.scenario, data, plan.seed).capacity(2)
    assert capacity > 10
    limits = DeviceLimits(max_samples=capacity - 1)
    limits.check_plan(plan)
    rejection_of(home.start(limits=limits), invitation(plan=plan_to_toml(plan)), "too-large")


def test_join_is_limited_in_cpu_time() -> None:
    with pytest.raises(TooLarge, match=r"more than 0\.05 s of CPU time"), limit_join_time(0.05):
        all(True for _ in itertools.count())
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_recipe_is_compared_by_its_components_and_not_only_by_name() -> None:
    limits = DeviceLimits(recipes=("fedavg",))
    other = replace(get_recipe("sfedpo"), name="fedavg")
    with pytest.raises(Rejected, match="allows fedavg"):
        limits.check_plan(replace(PLAN, recipe=other))
    with pytest.raises(Rejected, match="allows fedavg"):
        limits.check_plan(replace(PLAN, recipe=replace(PLAN.recipe, memory=Reservoir())))
    limits.check_plan(make_plan("fedavg", "digits-partial", privacy="gaussian"))
    with pytest.raises(UnknownName, match="fedavgg"):
        DeviceLimits(recipes=("fedavgg",))


def test_recipe_is_compared_inside_its_components() -> None:
    plan = make_plan("dpcs", "digits-partial", overrides=["selection.counter=window"])
    with pytest.raises(Rejected, match="allows dpcs with their own components"):
        DeviceLimits(recipes=("dpcs",)).check_plan(plan)
    DeviceLimits(recipes=("dpcs?selection.counter=window",)).check_plan(plan)


@pytest.mark.parametrize(
    "allowed, served, weaker",
    [
        ("dpcs", "", None),
        ("dpcs", "selection.privacy.epsilon=1", None),
        ("dpcs?selection.privacy.epsilon=1", "selection.privacy.epsilon=1", None),
        ("dpcs?selection.privacy.epsilon=1", "selection.privacy.epsilon=0.5", None),
        (
            "dpcs?selection.privacy.epsilon=1",
            "",
            "survey responses of the selection without noise",
        ),
        ("dpcs?selection.privacy.epsilon=1", "selection.privacy.epsilon=1.5", "epsilon 1.5 in"),
        ("dpcs?selection.privacy.epsilon=1", "selection.privacy.epsilon=1e30", "in place of 1"),
        (  # noise of half the scale
            "dpcs?selection.privacy.epsilon=1",
            "selection.privacy.epsilon=1 selection.privacy.neighbours=add_remove",
            "epsilon 2 in place of 1",
        ),
        ("dpcs?privacy=gaussian&privacy.noise=20", "privacy=gaussian privacy.noise=20", None),
        (
            "dpcs?privacy=gaussian&privacy.noise=20",
            "privacy=gaussian privacy.noise=19",
            "a response has epsilon",
        ),
        (
            "dpcs?privacy=gaussian&privacy.losses=omit",
            "privacy=gaussian",
            "losses without noise",
        ),
    ],
)
def test_plan_is_at_least_as_private_as_the_allowed_recipe(
    allowed: str, served: str, weaker: str | None
) -> None:
    limits = DeviceLimits(recipes=("fedavg", allowed))
    plan = make_plan("dpcs", "digits-partial", overrides=served.split())
    if weaker is None:
        limits.check_plan(plan)
    else:
        with pytest.raises(Rejected, match=weaker) as error:
            limits.check_plan(plan)
        assert error.value.code == "privacy"


def test_privacy_that_an_allowed_recipe_requires_cannot_be_removed() -> None:
    limits = DeviceLimits(recipes=("fedavg?privacy=gaussian",))
    with pytest.raises(Rejected, match="allows fedavg"):
        limits.check_plan(make_plan("fedavg", "digits-partial"))


def test_rounds_come_at_most_once_per_interval(home: Home) -> None:
    daemon = home.start(limits=DeviceLimits(min_interval_s=1000.0))
    join_run(daemon)
    first = daemon.handle(make_request(0))
    assert first.kind == "request"
    early = Frame("rejected", reason="frequency")
    assert daemon.handle(make_request(1)) == early
    assert daemon.handle(make_request(0)) == first, "a repeated request has its stored response"
    daemon = home.start(limits=DeviceLimits(min_interval_s=1000.0))
    assert daemon.handle(make_request(1)) == early, "also after a restart"
    daemon._timer._now = lambda: 1e12
    assert daemon.handle(make_request(1)).kind == "request"


def test_interval_counts_from_the_start_of_a_round(tmp_path: Path) -> None:
    store, clock = Store.open(tmp_path), [100.0]
    timer = RoundTimer(store, 10.0, lambda: clock[0])
    timer.start(3)
    clock[0] = 109.0
    timer.start(3)  # such as the training after a survey
    with pytest.raises(Rejected, match=r"9 s after the last one.*every 10 s at most"):
        timer.start(4)
    clock[0] = 110.0
    timer.start(4)
    for _ in range(MAX_REQUESTS - 1):
        timer.start(4)
    with pytest.raises(Rejected):
        timer.start(4)
    clock[0] = 50.0  # the clock was set back
    with pytest.raises(Rejected):
        timer.start(5)
    clock[0] = 60.0
    timer.start(5)
    store.close()


@pytest.mark.parametrize("text", ["", "0", "-1GB", "2 TB", "many", "nan", "inf", "299MB"])
def test_invalid_sizes_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match="such as 500MB or 2GB"):
        parse_size(text)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit RLIMIT_DATA")
def test_allocations_beyond_the_limit_fail() -> None:
    code = (
        "from thalweg.network.edge.device_limits import DeviceLimits\n"
        "DeviceLimits(max_memory=2 * 10**9).limit_process()\n"
        "import numpy as np\n"
        "np.ones(10**6)\n"
        "try:\n    np.ones(10**9)\nexcept MemoryError:\n    print('rejected')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "rejected\n", done.stderr
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] != 2 * 10**9
