"""Live runs on a grid without processes: each device has its own sample source."""

from __future__ import annotations

from pathlib import Path

import pytest

from network.edge.test_collector import until
from network.flower.fake_grid import Device, FakeGrid, devices_in
from network.flower.runs import prepare_run, tiny_plan, write_regression
from thalweg.core.errors import ConfigError
from thalweg.network.edge.device_client import DeviceOptions
from thalweg.network.edge.live_client import LiveClient
from thalweg.network.edge.schema import describe_dataset
from thalweg.network.edge.sources import open_live_source
from thalweg.network.flower.server_app import serve_run
from thalweg.scenarios import find_scenario

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
        ("fedavg", ["selection=balanced-cohort", "selection.participation=0.6"]),
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


@pytest.mark.parametrize("recipe", ["fedavg", "feddrift"])
def test_live_regression_trains_and_tests_on_the_numbers_of_its_devices(
    recipe: str, tmp_path: Path
) -> None:
    file = write_regression(tmp_path / "numbers.npz", num_outputs=2)
    more = ("world=live", "world.num_clients=3", "local.lr=0.05")
    plan = tiny_plan(recipe, str(file), 4, *more)
    folder = prepare_run(tmp_path / "run", plan, min_clients=3, live=True)
    # Fewer samples than a batch between rounds, so that they wait for a request with a model.
    source = DeviceOptions(data=f"replay:{file}?client=1&rounds=10")
    with devices_in(tmp_path, 3, source) as devices:
        served = serve_run(FakeGrid(devices), folder)
        for device in devices.values():
            client(device).collector.stop()
            status = client(device).status()
            assert (status["trouble"], status["last_rejection"]) == ("", "")
            assert status["received"] > 0
    assert len(served.metrics) == 4
    assert all(row["mae"] > 0 for row in served.metrics[-1:])
    assert any("prequential_mae" in row for row in served.metrics)


def test_source_with_another_number_of_targets_is_rejected(tmp_path: Path) -> None:
    one, two = (write_regression(tmp_path / f"{n}.npz", num_outputs=n) for n in (1, 2))
    sample_format = describe_dataset(find_scenario(str(one)).data.load(None, 0)).sample_format
    reason = r"with targets of shape \(2,\), but the federation uses .* of shape \(\)"
    with pytest.raises(ConfigError, match=reason):
        open_live_source(f"replay:{two}", sample_format)
