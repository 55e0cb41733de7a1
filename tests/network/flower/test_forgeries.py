"""The server rejects invalid responses of a client with a reason and continues the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from network.flower.fake_grid import FakeGrid, devices_in
from network.flower.faults import live_plan
from network.flower.forger import FORGERIES, REASONS, Forger, ForgerServer
from network.flower.loopback import await_true
from network.flower.runs import prepare_run, tiny_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.network.edge.socket import Frame, Unreachable, send_request
from thalweg.network.flower.server_app import serve_run

ROUNDS = len(FORGERIES)


def test_forged_responses_are_rejected_with_a_reason_and_do_not_change_the_model(
    tmp_path: Path,
) -> None:
    plan = tiny_plan("fedavg", "digits-partial", ROUNDS, "world.availability=1")
    with devices_in(tmp_path / "with", 2) as devices:
        forger: Any = Forger(4)
        grid = FakeGrid({**devices, 104: forger})
        attacked = serve_run(grid, prepare_run(tmp_path / "attacked", plan, min_clients=3))
    with devices_in(tmp_path / "without", 2) as devices:
        undisturbed = serve_run(
            FakeGrid(devices), prepare_run(tmp_path / "undisturbed", plan, min_clients=2)
        )
    assert list(forger.sent.values()) == list(FORGERIES)
    rejections = RunFolder(tmp_path / "attacked").rejections()
    assert [row["round"] for row in rejections] == list(range(1, ROUNDS + 1))
    for row, name in zip(rejections, FORGERIES, strict=True):
        assert row["client"] == 4
        assert REASONS[name] in row["reason"], name
    assert all(row["rejected"] == 1 for row in attacked.metrics)
    assert np.array_equal(attacked.model, undisturbed.model), "the forger changed the model"


@pytest.mark.parametrize("others", ["lost", "error"])
def test_forged_response_without_other_responses_does_not_stop_the_run(
    others: str, tmp_path: Path
) -> None:
    """In the second round only the forger answers, and its numbers are not finite."""
    plan = tiny_plan("fedavg", "digits-partial", 3, "world.availability=1")
    requested: list[int] = []
    with devices_in(tmp_path, 2) as devices:
        forger: Any = Forger(4)

        def fate(node: int, frame: Frame) -> str:
            requested.extend([node] if frame.kind == "request" else [])
            is_second = frame.kind == "request" and requested.count(node) == 2
            return others if is_second and node != 104 else "arrives"

        run = prepare_run(tmp_path / "run", plan, min_clients=3, deadline_s=0.5)
        served = serve_run(FakeGrid({**devices, 104: forger}, fate), run)
    assert [row["round"] for row in served.metrics] == [1, 2, 3]
    assert served.metrics[1]["rejected"] == 1
    assert [row.get("cohort") for row in served.metrics] == [2, 0, 2]


def test_forger_takes_part_in_a_live_run(tmp_path: Path) -> None:
    forger: Any = Forger(3)
    run = prepare_run(tmp_path / "run", live_plan(2, 4), min_clients=1, live=True)
    served = serve_run(FakeGrid({103: forger}), run)
    assert [row["rejected"] for row in served.metrics] == [1, 1]
    assert list(forger.sent.values()) == list(FORGERIES)[:2]


def test_failure_of_the_forger_is_reported(tmp_path: Path) -> None:
    server = ForgerServer(Forger(3), path := tmp_path / "socket")
    try:
        await_true(path.exists, 30)
        with pytest.raises(Unreachable):
            send_request(path, "invitation", b"damaged", 30)
        await_true(lambda: not server.is_running, 30)
        with pytest.raises(AssertionError, match="the forger has failed"):
            server.check()
    finally:
        server.close()
