"""Optimizers that clients keep between rounds, over Flower: the same bits as a simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from contracts.runs import check_same_bits
from network.flower.fake_grid import FakeGrid, devices_in
from network.flower.runs import prepare_run, run_simulated, tiny_plan, write_regression
from network.flower.test_served import Killed, RequestFates
from thalweg.network.edge.device_client import DeviceOptions
from thalweg.network.edge.socket import Frame
from thalweg.network.flower.server_app import serve_run

SETTINGS = ["local.lr=0.01", "world.availability=1"]


@pytest.mark.parametrize("recipe", ["fedavg", "ifca"])
@pytest.mark.parametrize("optimizer", ["adam", pytest.param("RMSprop", marks=pytest.mark.slow)])
def test_kept_optimizer_survives_restarts_of_server_and_devices(
    recipe: str, optimizer: str, tmp_path: Path
) -> None:
    file = str(write_regression(tmp_path / "numbers.npz"))
    more = [f"local.optimizer={optimizer}", *SETTINGS]
    plan = tiny_plan(recipe, file, 4, "local.optimizer_state=keep", *more)
    folder = prepare_run(tmp_path / "run", plan, min_clients=5)
    requests = RequestFates()

    def fate(node: int, frame: Frame) -> str:
        if requests(node, frame) and requests.count == 13:  # not in the first round
            raise Killed
        return "arrives"

    with devices_in(tmp_path, 5, DeviceOptions(f"replay:{file}")) as devices:
        with pytest.raises(Killed):
            serve_run(FakeGrid(devices, fate), folder)
        for device in devices.values():  # the devices are killed too
            device.stop()
            device.start()
        served = serve_run(FakeGrid(devices), folder)
    check_same_bits(run_simulated(plan), served)
    reset = tiny_plan(recipe, file, 4, "local.optimizer_state=reset", *more)
    assert not np.array_equal(run_simulated(reset).model, served.model), "the kept state matters"
