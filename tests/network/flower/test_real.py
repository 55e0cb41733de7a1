"""Runs with the real Flower processes on loopback; a slow test takes half a minute or more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from nets import user_modules
from network.flower.loopback import Loopback, loopback
from network.flower.runs import prepare_run, run_simulated, tiny_plan, write_windows
from network.flower.test_equality import RECIPES
from network.flower.test_modules import MODULES
from network.flower.test_regression import REGRESSIONS, regression_plan
from thalweg.engine.loop import Result
from thalweg.engine.plan import Plan
from thalweg.engine.run_folder import RunFolder
from thalweg.network.flower.project import ProjectOptions, write_project


def check_equals_simulation(deployment: Loopback, folder: Path, simulated: Result) -> None:
    deployment.await_finish(folder, len(simulated.metrics))
    model = load_file(folder / "model.safetensors")
    for name, value in simulated.net.named_parameters(simulated.model).items():
        assert np.array_equal(model[name], value), name
    for served, ours in zip(RunFolder(folder).metrics(), simulated.metrics, strict=True):
        times = {"seconds": 0, "core_seconds": 0}
        assert {**served, **times} == {**ours, **times}


@pytest.mark.slow
def test_project_with_a_module_on_one_device_equals_the_simulated_run(tmp_path: Path) -> None:
    """The smallest run with real processes. The server imports the copy in the project."""
    path, one = f"{user_modules.__file__}:group_norm_resnet", "world.num_clients=1"
    more = ("net=module", f"net.path={path}", one, "world.availability=1")
    plan = tiny_plan("fedavg", "digits-partial", 2, *more)
    run, app = tmp_path / "run", tmp_path / "app"
    write_project(app, plan, ProjectOptions(run, deadline_s=120))
    with loopback(tmp_path / "deployment") as deployment:
        deployment.start_daemon(0, None, "--model", path)
        deployment.start_node(0)
        deployment.submit(run, app)
        check_equals_simulation(deployment, run, run_simulated(plan))


@pytest.mark.slow
def test_killed_processes_do_not_change_the_results(tmp_path: Path) -> None:
    """Kills a daemon and the ServerApp; the results equal those of a simulation, bit by bit."""
    plan = tiny_plan("sfedpo", "digits-partial", 6, "world.num_clients=2", "world.availability=1")
    run = prepare_run(tmp_path / "run", plan, min_clients=2, deadline_s=120)
    with loopback(tmp_path / "deployment") as deployment:
        for number in range(2):
            deployment.start_device(number)
        deployment.submit(run)
        deployment.await_rounds(run, 1)
        deployment.kill("daemon0")
        deployment.start_daemon(0)
        deployment.await_rounds(run, 3)
        deployment.kill_server_app()
        deployment.submit(run)
        check_equals_simulation(deployment, run, run_simulated(plan))
    joined = (run / "events.jsonl").read_text().count('"joined"')
    assert joined == 4, "both clients join before and after the kill of the server"


@pytest.fixture(scope="module")
def five_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """A SuperLink and five SuperNodes that are shared by several runs."""
    with loopback(tmp_path_factory.mktemp("deployment") / "deployment") as deployment:
        for number in range(5):
            deployment.start_node(number)
        yield deployment


@pytest.mark.slow
@pytest.mark.parametrize("recipe, more", RECIPES)
def test_run_with_real_processes_equals_the_simulated_run(
    recipe: str, more: list[str], five_nodes: Loopback, tmp_path: Path
) -> None:
    rounds = 4 if "secure_aggregation=masked" in more else 10  # of five exchanges instead of one
    run_on_five_nodes(tiny_plan(recipe, "digits-partial", rounds, *more), five_nodes, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name, more", [*MODULES, ("digit_transformer", [])])
def test_module_with_real_processes_equals_the_simulated_run(
    name: str, more: list[str], five_nodes: Loopback, tmp_path: Path
) -> None:
    if name == "digit_transformer":
        pytest.importorskip("transformers", reason="install it with pip install '.[dev]'")
    path = f"{user_modules.__file__}:{name}"
    is_window = name.startswith("Window")
    data = str(write_windows(tmp_path / "windows.npz")) if is_window else "digits-partial"
    plan = tiny_plan("fedavg", data, 3, "net=module", f"net.path={path}", *more)
    source = f"replay:{data}" if is_window else "replay"
    run_on_five_nodes(plan, five_nodes, tmp_path, "--model", path, "--data", source)


@pytest.mark.slow
@pytest.mark.parametrize("recipe, more", REGRESSIONS[:-1])  # masks take long; see RECIPES
def test_regression_with_real_processes_equals_the_simulated_run(
    recipe: str, more: list[str], five_nodes: Loopback, tmp_path: Path
) -> None:
    plan = regression_plan(tmp_path, recipe, more)
    source = f"replay:{tmp_path / 'numbers.npz'}"
    run_on_five_nodes(plan, five_nodes, tmp_path, "--data", source)


def run_on_five_nodes(plan: Plan, nodes: Loopback, folder: Path, *options: str) -> None:
    """Run a plan with five new clients, and compare it with the simulated run."""
    run = prepare_run(folder / "run", plan, min_clients=5, deadline_s=120)
    names = [f"daemon{number}" for number in range(5)]
    try:
        for number in range(5):
            nodes.start_daemon(number, folder, *options)
        nodes.submit(run)
        check_equals_simulation(nodes, run, run_simulated(plan))
    finally:
        for name in names:
            nodes.kill(name)


@pytest.mark.slow
def test_supernode_can_start_one_process_per_message(tmp_path: Path) -> None:
    plan = tiny_plan("fedavg", "digits-partial", 2, "world.num_clients=1", "world.availability=1")
    run = prepare_run(tmp_path / "run", plan, min_clients=1, deadline_s=120)
    with loopback(tmp_path / "deployment") as deployment:
        deployment.start_device(0, is_quick=False)
        deployment.submit(run)
        check_equals_simulation(deployment, run, run_simulated(plan))
