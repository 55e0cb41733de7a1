"""Devices with samples of their own, on a grid without processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from network.edge.test_collector import until
from network.flower.fake_grid import Device, FakeGrid, devices_in
from network.flower.runs import prepare_run, tiny_plan
from thalweg.network.edge.device_client import DeviceOptions
from thalweg.network.edge.live_client import LiveClient
from thalweg.network.flower.server_app import serve_run

SOURCE = DeviceOptions(data="replay:digits-partial?client=1&rounds=3")


def client(device: Device) -> LiveClient:
    device_client = device.daemon._device_client
    assert isinstance(device_client, LiveClient)
    return device_client


@pytest.mark.parametrize(
    "recipe, more",
    [
        ("sfedpo", []),
        ("ode", []),
        ("feddrift", []),
        ("dpcs", []),
        ("fedavg", ["secure_aggregation=masked"]),
    ],
)
def test_a_live_run_trains_on_what_its_devices_receive(
    recipe: str, more: list[str], tmp_path: Path
) -> None:
    plan = tiny_plan(recipe, "digits-partial", 4, "world=live", "world.num_clients=3", *more)
    folder = prepare_run(tmp_path / "run", plan, min_clients=3, live=True)
    with devices_in(tmp_path, 3, SOURCE) as devices:
        served = serve_run(FakeGrid(devices), folder)
        for device in devices.values():
            client(device).collector.stop()  # else numbers move while they are read
            status = client(device).status()
            assert status["trouble"] == ""
            assert status["kept"] <= plan.scenario.capacity
            there = status["kept"] + status["inbox"] + status["evicted"]
            # Whoever trained has marked what it had; the rest of that is in its memory, or gone.
            assert status["received"] >= there > 0
        assert sum(client(device).status()["rounds"] for device in devices.values()) > 0
    assert len(served.metrics) == 4


def test_samples_come_while_nobody_asks(tmp_path: Path) -> None:
    """A device that is joined but not chosen keeps on collecting, and what it keeps is what its memory can hold."""
    plan = tiny_plan("fedavg", "digits-partial", 1, "world=live", "world.num_clients=1")
    folder = prepare_run(tmp_path / "run", plan, min_clients=1, live=True)
    with devices_in(tmp_path, 1, SOURCE) as devices:
        serve_run(FakeGrid(devices), folder)
        ((_, device),) = devices.items()
        until(lambda: client(device).collector.has_ended)
        status = client(device).status()
        assert (status["kept"], status["rounds"], status["lost"]) == (16, 1, 0)
        assert status["received"] == status["kept"] + status["evicted"] + status["inbox"]
