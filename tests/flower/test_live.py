"""A live run on Flower: clients bring their own samples, and the server only has some to test on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from flower.fake_grid import Device, FakeGrid
from flower.runs import plan_of, prepared
from thalweg.edge.live_client import LiveClient
from thalweg.edge.resident import Means
from thalweg.edge.socket import Parcel
from thalweg.flower.server_app import serve_run

PLAN = plan_of("fedavg", "digits-full", 4, "world=live", "world.num_clients=3", "evaluate_every=1")


def sensor(file: Path, first: int) -> str:
    """Forty samples of the digits, in a file that could grow."""
    data = PLAN.scenario.data.load(None, 3)
    rows = range(first, first + 40)
    lines = [json.dumps({"x": data.x[n].tolist(), "y": int(data.y[n])}) + "\n" for n in rows]
    file.write_text("".join(lines))
    return str(file)


def test_clients_with_samples_of_their_own_learn_together(tmp_path: Path) -> None:
    folder = prepared(tmp_path / "run", PLAN, min_clients=2)
    devices = {
        100 + n: Device(
            tmp_path / f"state{n}", None, Means(sensor(tmp_path / f"{n}.jsonl", 40 * n))
        )
        for n in range(2)
    }

    def fate(node: int, parcel: Parcel) -> str:
        client = devices[node].daemon._resident
        if parcel.kind == "errand":  # not before something has come
            assert isinstance(client, LiveClient)
            until = time.monotonic() + 30
            while client.status()["received"] < 40 and time.monotonic() < until:
                time.sleep(0.02)
        return "arrives"

    try:
        served = serve_run(FakeGrid(devices, fate), folder)
    finally:
        for device in devices.values():
            device.stop()
    assert [row["cohort"] for row in served.metrics] == [2, 2, 2, 2]
    assert served.metrics[-1]["accuracy"] > 0
    assert np.isfinite(served.model).all()
    assert all(row["loss"] > 0 for row in served.metrics)
    status = json.loads((tmp_path / "state0" / "status.json").read_text())
    assert (status["received"], status["kept"]) == (40, 16)
