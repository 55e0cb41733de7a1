"""``thalweg doctor``"""

from __future__ import annotations

import platform
import shutil
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from thalweg.cli.progress import print_json
from thalweg.cli.run import load_data, plan_from_options
from thalweg.core.errors import ConfigError
from thalweg.data import Dataset
from thalweg.engine.builders import apply_views, make_world
from thalweg.engine.devices import DeviceChoice, choose_device, describe_accelerator
from thalweg.engine.plan import AnyPlan, Plan
from thalweg.engine.processes import count_cores
from thalweg.engine.task import get_loss, make_net
from thalweg.native.library import VARIABLE, find_kernel, list_built
from thalweg.native.trainer import find_parts, find_training_obstacle
from thalweg.nets import Net

COMPILERS = ("cc", "gcc", "clang")


def doctor_command(
    recipe: str | None,
    *,
    on: str | None,
    sets: list[str],
    engine: str,
    device: str,
    as_json: bool,
    data_dir: Path | None,
) -> None:
    """Print what this machine computes with, and which code a plan uses."""
    plan = None
    if recipe is not None:
        plan, _, _ = plan_from_options(recipe, on, sets, None, None, engine, data_dir=data_dir)
    elif on is not None or sets or engine != "auto" or device != "auto":
        raise ConfigError(
            "--on, --set, --engine and --device describe a run, but there is no recipe. Add the "
            "name of a recipe, such as thalweg doctor fedavg --on digits-partial."
        )
    found = describe_machine() | ({} if plan is None else describe_paths(plan, device, data_dir))
    if as_json:
        print_json(found)
        return
    width = max(map(len, found)) + 2
    lines = [f"{name:<{width}}{value}" for name, value in found.items()]
    Console().print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def describe_machine() -> dict[str, str]:
    """Return the kernel, the compiler, cores, PyTorch, GPU and Ray, each in a phrase."""
    kernel, built = find_kernel(), ", ".join(list_built()) or "none"
    compilers = [path for name in COMPILERS if (path := shutil.which(name))]
    return {
        "processor": f"{platform.machine()}, {count_cores()} cores",
        "kernel": f"torch: {kernel}" if isinstance(kernel, str) else kernel.name,
        "instruction sets": f"{built} (built); {VARIABLE} chooses another one than the best",
        "compiler": compilers[0] if compilers else "none; it is needed only at installation",
        "torch": metadata.version("torch"),
        "gpu": describe_accelerator(),
        "ray": metadata.version("ray")
        if find_spec("ray")
        else "not installed (pip install 'thalweg[ray]')",
    }


def describe_paths(plan: AnyPlan, device: str, data_dir: Path | None) -> dict[str, str]:
    """Return which code trains and predicts in a plan, on which device, and why."""
    if not isinstance(plan, Plan):
        return {"training": "the classifier of the baseline, without a net"}
    data = load_data(plan, data_dir)
    data = apply_views(data, make_world(plan.scenario, data, plan.seed))
    net = make_net(plan.scenario, data)
    choice = choose_device(device, plan, data, net)
    return _describe_code(plan, data, net, choice) | {"device": f"{choice.name}: {choice.reason}"}


def _describe_code(plan: Plan, data: Dataset, net: Net, choice: DeviceChoice) -> dict[str, str]:
    both = ["training", "prediction"]
    if choice.name != "cpu":
        return dict.fromkeys(both, f"torch: the kernel does not compute on {choice.name}")
    if plan.engine != "fast":
        return dict.fromkeys(both, f"torch: engine={plan.engine}")
    parts = find_parts(net, data, get_loss(plan.scenario, data))
    if isinstance(parts, str):
        return dict.fromkeys(both, f"torch: {parts}")
    name, recipe = parts.kernel.name, plan.recipe
    obstacle = find_training_obstacle(
        recipe.objective, plan.local, recipe.geometry, plan.scenario.augment
    )
    passes = f"torch, with forward and backward passes by {name}: {obstacle}"
    return {"training": name if obstacle is None else passes, "prediction": name}
