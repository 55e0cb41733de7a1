"""Runs with Flower's own processes on loopback; each test takes half a minute or more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from network.flower.loopback import Loopback, await_true, loopback
from network.flower.runs import prepare_run, run_simulated, tiny_plan
from network.flower.test_equality import RECIPES
from thalweg.engine.loop import Result
from thalweg.engine.run_folder import RunFolder


def await_rounds(folder: Path, rounds: int) -> None:
    await_true(lambda: len(RunFolder(folder).metrics()) >= rounds, 240)


def check_is_the_same(folder: Path, whole: Result) -> None:
    rounds = len(whole.metrics)
    await_true(lambda: RunFolder(folder).is_finished(rounds), 240)
    model = load_file(folder / "model.safetensors")
    for name, value in whole.net.named_parameters(whole.model).items():
        assert np.array_equal(model[name], value), name
    for served, ours in zip(RunFolder(folder).metrics(), whole.metrics, strict=True):
        assert {**served, "seconds": 0} == {**ours, "seconds": 0}


@pytest.mark.slow
def test_killed_processes_do_not_change_the_results(tmp_path: Path) -> None:
    """Kills a daemon and the ServerApp; the results equal those of a simulation, bit by bit."""
    plan = tiny_plan("sfedpo", "digits-partial", 6, "world.num_clients=2", "world.availability=1")
    run = prepare_run(tmp_path / "run", plan, min_clients=2, deadline_s=120)
    with loopback(tmp_path / "park") as park:
        for number in range(2):
            park.start_device(number)
        park.submit(run)
        await_rounds(run, 1)
        park.kill("daemon0")
        park.start_daemon(0)
        await_rounds(run, 3)
        park.kill_loop()
        park.submit(run)
        check_is_the_same(run, run_simulated(plan))
    joined = (run / "events.jsonl").read_text().count('"joined"')
    assert joined == 4, "both clients, in both lives of the server"


@pytest.fixture(scope="module")
def five_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """A SuperLink and five SuperNodes, which stay for run after run."""
    with loopback(tmp_path_factory.mktemp("park") / "park") as park:
        for number in range(5):
            park.start_node(number)
        yield park


@pytest.mark.slow
@pytest.mark.parametrize("recipe, more", RECIPES)
def test_five_clients_and_ten_rounds_give_the_same_bits_over_processes(
    recipe: str, more: list[str], five_nodes: Loopback, tmp_path: Path
) -> None:
    plan = tiny_plan(recipe, "digits-partial", 10, *more)
    run = prepare_run(tmp_path / "run", plan, min_clients=5, deadline_s=120)
    for number in range(5):
        five_nodes.start_daemon(number, tmp_path)
    five_nodes.submit(run)
    check_is_the_same(run, run_simulated(plan))
    for number in range(5):
        five_nodes.kill(f"daemon{number}")


@pytest.mark.slow
def test_a_supernode_may_also_start_a_process_for_every_message(tmp_path: Path) -> None:
    plan = tiny_plan("fedavg", "digits-partial", 2, "world.num_clients=1", "world.availability=1")
    run = prepare_run(tmp_path / "run", plan, min_clients=1, deadline_s=120)
    with loopback(tmp_path / "park") as park:
        park.start_device(0, is_quick=False)
        park.submit(run)
        check_is_the_same(run, run_simulated(plan))
