"""`FlowerFederation`: present clients, waiting for clients, and participation counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tomli_w

from network.flower.fake_grid import FakeGrid, devices_in
from network.flower.runs import tiny_plan, write_regression
from thalweg.core.errors import ConfigError, RunError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Job
from thalweg.data.in_memory import InMemory
from thalweg.engine.builders import make_client_pool
from thalweg.engine.plan import Plan, make_plan
from thalweg.network.edge.device_client import DeviceOptions
from thalweg.network.edge.invitations import read_server_plan
from thalweg.network.flower.federation import FlowerFederation, _make_device_plan
from thalweg.network.flower.registry import ClientRegistry
from thalweg.network.flower.serve_options import ServeOptions
from thalweg.network.rejections import Rejected, RejectionCode


class Served:
    """A federation with a fake grid, the events that it emits, and the times that it sleeps."""

    def __init__(
        self, folder: Path, plan: Plan, grid: FakeGrid | None = None, **options: Any
    ) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.slept: list[float] = []
        self.rejected: dict[RejectionCode, int] = {}
        data = plan.scenario.data.load(None, plan.seed)
        net = plan.scenario.net.build(data.input_shape, data.num_classes)
        pool = make_client_pool(plan, data, net.num_params)
        self.start = net.init(rng_for(plan.seed, Draw.NET))
        self.simulated_roster = pool.roster
        self.federation = FlowerFederation(
            grid or FakeGrid({}),
            plan,
            data,
            net,
            pool,
            ClientRegistry(folder, pool.world.num_clients),
            ServeOptions(**options),
            self.events.append,
            self._sleep,
        )
        self.on_sleep = lambda: None

    def connect(self, *clients: int, is_joining: bool = False) -> None:
        """Replace the nodes of the grid: these clients are connected."""
        self.federation.nodes = SimpleNamespace(  # type: ignore[assignment]
            present={client: 100 + client for client in clients},
            is_joining=is_joining,
            poll=lambda: None,
            recall_late=lambda: None,
            rejected=self.rejected,
            num_failing=0,
        )

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        assert len(self.slept) < 100, "the federation waits forever"
        self.on_sleep()


def present(served: Served, rnd: int) -> list[int]:
    return served.federation.roster(rnd).present.tolist()


def test_replayed_world_uses_connected_clients_that_are_present_in_the_simulation(
    tmp_path: Path,
) -> None:
    served = Served(tmp_path, tiny_plan("fedavg", "digits-partial", 10, "world.availability=0.5"))
    simulated = [served.simulated_roster(rnd).present.tolist() for rnd in range(10)]
    assert any(len(each) < 5 for each in simulated)
    served.connect(0, 1, 2, 3, 4)
    assert [present(served, rnd) for rnd in range(10)] == simulated
    served.connect(1, 4)
    assert [present(served, rnd) for rnd in range(10)] == [
        [client for client in each if client in (1, 4)] for each in simulated
    ]


def test_all_connected_clients_are_present_in_a_live_world(tmp_path: Path) -> None:
    overrides = ["world=live", "world.num_clients=5", "capacity=16"]
    served = Served(tmp_path, make_plan("fedavg", "digits-full", overrides=overrides))
    served.connect(4, 1)
    assert present(served, 0) == [1, 4]


def test_round_waits_for_enough_clients_and_for_clients_that_are_joining(tmp_path: Path) -> None:
    served = Served(tmp_path, tiny_plan("fedavg", rounds=1), min_clients=2)
    served.connect(0)
    steps = iter([lambda: served.connect(0, 1, is_joining=True), lambda: served.connect(0, 1, 2)])
    served.on_sleep = lambda: next(steps)()
    served.federation.roster(0)
    assert len(served.slept) == 2
    assert served.events == [
        {"event": "waiting", "present": 1, "wanted": 2, "rejected": {}, "failing": 0}
    ]


def test_run_fails_if_too_few_clients_connect_in_time(tmp_path: Path) -> None:
    served = Served(tmp_path, tiny_plan("fedavg", rounds=1), min_clients=2, wait_s=0)
    served.rejected = {RejectionCode.VERSION: 3}
    served.connect(0)
    reason = (
        r"1 clients are present after 0 seconds, 2 are needed \(--min-clients\); rejected so far: "
        r"3 \(version: 3\);"
    )
    with pytest.raises(RunError, match=reason):
        served.federation.roster(0)


def test_simulated_faults_and_too_many_required_clients_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"simulated faults.*--set faults=none"):
        Served(tmp_path, tiny_plan("fedavg", "digits-partial", 1, "faults=unreliable"))
    with pytest.raises(ConfigError, match=r"min_clients must be at most .*\(5\), got 6"):
        Served(tmp_path, tiny_plan("fedavg", rounds=1), min_clients=6)


def test_participation_is_counted_except_in_probe_rounds_and_restored_on_resume(
    tmp_path: Path,
) -> None:
    sets = "world.availability=1", "session_start=warm-start", "session_trigger=presence"
    plan = tiny_plan("fedavg", "digits-partial", 3, *sets)
    with devices_in(tmp_path, 3) as devices:
        served = Served(tmp_path, plan, FakeGrid(devices), min_clients=3)
        federation, bank = served.federation, served.start[None]
        assert present(served, 0) == [0, 1, 2]
        federation.train([Job(0, 0, probe_round=1)], bank, 0)
        assert federation.pending() == {"rounds_participated": pytest.approx(np.zeros(5))}
        federation.train([Job(0, 0), Job(2, 0)], bank, 0)
        updates = federation.train([Job(2, 0)], bank, 1)
        assert updates.clients.tolist() == [2]
        assert updates.deltas.any()
        pending = federation.pending()
    assert pending["rounds_participated"].tolist() == [1, 0, 2, 0, 0]  # type: ignore[index, call-overload, union-attr]
    resumed = Served(tmp_path, plan).federation
    resumed.restore(pending)  # type: ignore[arg-type]
    clock = resumed.client_pool.clock(2)
    assert np.asarray(clock).tolist() == [0, 0, 1, 0, 0], "rounds that are over, without the last"
    assert np.asarray(resumed.client_pool.clock(2, is_over=False)).tolist() == [1, 0, 2, 0, 0]


@pytest.mark.parametrize("is_live", [False, True])
def test_plan_for_devices_has_no_files_of_the_server(is_live: bool, tmp_path: Path) -> None:
    file = write_regression(tmp_path / "numbers.npz")
    own = tmp_path / "own.py"
    own.write_text("import torch\n\n\ndef make():\n    return torch.nn.Linear(3, 1)\n")
    plan = tiny_plan(
        "fedavg",
        str(file),
        2,
        "net=module",
        f"net.path={own}:make",
        "metrics=rmse",
        "headline=rmse",
        f"start_from={tmp_path / 'start.safetensors'}",
    )
    text = tomli_w.dumps(_make_device_plan(plan, is_live))
    assert str(tmp_path) not in text
    options = DeviceOptions(f"replay:{file}", model=f"{own}:make")
    received = read_server_plan(text, options, is_live)
    assert received.scenario.net == replace(plan.scenario.net, digest="")
    assert received.recipe == plan.recipe
    assert received.scenario.data == (
        InMemory("the data of this device") if is_live else plan.scenario.data
    )
    if not is_live:
        with pytest.raises(Rejected, match="--data replay:FILE"):
            read_server_plan(text, replace(options, data="replay"))
