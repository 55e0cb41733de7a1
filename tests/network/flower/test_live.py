"""Live runs on a grid without processes: each device has its own sample source."""

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
def test_live_run_trains_on_the_samples_of_its_devices(
    recipe: str, more: list[str], tmp_path: Path
) -> None:
    plan = tiny_plan(recipe, "digits-partial", 4, "world=live", "world.num_clients=3", *more)
    folder = prepare_run(tmp_path / "run", plan, min_clients=3, live=True)
    with devices_in(tmp_path, 3, SOURCE) as devices:
        served = serve_run(FakeGrid(devices), folder)
        for device in devices.values():
            client(device).collector.stop()  # otherwise the counts change while they are read
            status = client(device).status()
            assert status["trouble"] == ""
            assert status["kept"] <= plan.scenario.capacity
            there = status["kept"] + status["inbox"] + status["evicted"]
            # A client that trained has marked its samples; they are in its memory or evicted.
            assert status["received"] >= there > 0
        assert sum(client(device).status()["rounds"] for device in devices.values()) > 0
    assert len(served.metrics) == 4


def test_device_collects_samples_without_train_requests(tmp_path: Path) -> None:
    """After the run, the device still collects samples and keeps as many as its memory can hold."""
    plan = tiny_plan("fedavg", "digits-partial", 1, "world=live", "world.num_clients=1")
    folder = prepare_run(tmp_path / "run", plan, min_clients=1, live=True)
    with devices_in(tmp_path, 1, SOURCE) as devices:
        serve_run(FakeGrid(devices), folder)
        ((_, device),) = devices.items()
        until(lambda: client(device).collector.has_ended)
        status = client(device).status()
        assert (status["kept"], status["rounds"], status["lost"]) == (16, 1, 0)
        assert status["received"] == status["kept"] + status["evicted"] + status["inbox"]
