"""Responses that are sent in part do not stop the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from network.flower import dying_node
from network.flower.faults import events_of
from network.flower.loopback import Loopback
from network.flower.runs import prepare_run, tiny_plan
from thalweg.engine.run_folder import RunFolder

DEADLINE_S = 15


class OneDies(Loopback):
    def may_end(self, name: str, code: int) -> bool:
        return name in ("node1", "runner1")


@pytest.mark.slow
def test_client_that_dies_while_it_sends_its_response_is_absent_after_the_deadline(
    tmp_path: Path,
) -> None:
    """The second request of client 1 is the one of round 2."""
    plan = tiny_plan("fedavg", "digits-partial", 4, "world.num_clients=2", "world.availability=1")
    options = {"min_clients": 1, "deadline_s": DEADLINE_S, "share": 1.0}
    run = prepare_run(tmp_path / "run", plan, **options)
    deployment = OneDies(tmp_path / "deployment")
    try:
        deployment.start_link()
        deployment.start_device(0)
        deployment.start_daemon(1)
        deployment.start_node(1, program=(str(dying_node.__file__), "4"))
        deployment.submit(run)
        deployment.await_finish(run, 4)
    finally:
        deployment.end()
    assert events_of(run, "late")[0]["client"] == 1
    assert [row["cohort"] for row in RunFolder(run).metrics()][:3] == [2, 1, 1]
