"""Modules of users over Flower: the same bits as a simulation, and only files of the device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from contracts.runs import check_same_bits
from network.flower.fake_grid import FakeGrid, devices_in
from network.flower.runs import prepare_run, run_simulated, tiny_plan, write_windows
from thalweg.core.errors import BadMessage
from thalweg.engine.plan import plan_to_toml
from thalweg.nets import Module, build_net
from thalweg.network.edge.device_client import DeviceOptions, check_tensors
from thalweg.network.edge.invitations import read_server_plan
from thalweg.network.flower.server_app import serve_run
from thalweg.network.handshake import Invitation

HERE = "nets.user_modules"


MODULES: list[tuple[str, list[str]]] = [
    ("group_norm_resnet", []),
    ("batch_norm_resnet", []),
    ("batch_norm_resnet", ["net.buffers=local"]),
    ("WindowCnn", []),
    ("WindowGru", []),
]


@pytest.mark.parametrize(
    "name, more",
    [
        *MODULES,
        ("DropoutMlp", []),
        pytest.param("digit_transformer", [], marks=pytest.mark.slow),
    ],
)
def test_run_on_a_fake_grid_equals_the_simulated_run(
    name: str, more: list[str], tmp_path: Path
) -> None:
    if name == "digit_transformer":
        pytest.importorskip("transformers", reason="install it with pip install '.[dev]'")
    is_window = name.startswith("Window")
    data = str(write_windows(tmp_path / "windows.npz")) if is_window else "digits-partial"
    plan = tiny_plan("fedavg", data, 4, "net=module", f"net.path={HERE}:{name}", *more)
    folder = prepare_run(tmp_path / "run", plan, min_clients=5)
    options = DeviceOptions(f"replay:{data}" if is_window else "replay", model=f"{HERE}:{name}")
    with devices_in(tmp_path, 5, options) as devices:
        served = serve_run(FakeGrid(devices), folder)
    check_same_bits(run_simulated(plan), served)


@pytest.mark.parametrize(
    "path, model, message",
    [
        ("a b/evil.py:Net", None, r"imports nothing that a server names.*--model FILE.py:Net"),
        ("evil.py:Net", "own.py:Other", "trains the module Net, but this client has --model"),
    ],
)
def test_a_path_of_the_server_is_never_used(path: str, model: str | None, message: str) -> None:
    text = plan_to_toml(tiny_plan("fedavg", "digits-partial", 2, "net=module", f"net.path={path}"))
    with pytest.raises(BadMessage, match=message):
        read_server_plan(text, DeviceOptions(model=model))


def test_the_file_of_the_device_replaces_that_of_the_server(tmp_path: Path) -> None:
    """The file of the device has another path and another text, thus another digest."""
    code = "import torch\n\ndef make():\n    return torch.nn.Linear(4, 3)\n"
    theirs, ours = tmp_path / "theirs.py", tmp_path / "ours.py"
    theirs.write_text(code)
    ours.write_text(f"# A comment of the device.\n{code}")
    plan = tiny_plan("fedavg", "digits-partial", 2, "net=module", f"net.path={theirs}:make")
    assert isinstance(plan.scenario.net, Module)
    assert plan.scenario.net.digest != ""
    net = read_server_plan(plan_to_toml(plan), DeviceOptions(model=f"{ours}:make")).scenario.net
    assert net == Module(f"{ours}:make")
    assert build_net(net, (4,), 3).num_params == 4 * 3 + 3


def test_a_model_for_a_run_without_module_is_rejected() -> None:
    text = plan_to_toml(tiny_plan("fedavg", "digits-partial", 2))
    with pytest.raises(BadMessage, match=r"Join without --model"):
        read_server_plan(text, DeviceOptions(model="own.py:Net"))


def test_models_with_other_tensors_are_rejected_by_name() -> None:
    theirs, ours = (
        build_net(Module(f"{HERE}:DigitMlp", {"width": width}), (1, 8, 8), 10) for width in (16, 8)
    )
    invitation = Invitation("0" * 32, 0, "", (1, 8, 8), 10, theirs.num_params, live=False)
    invitation = replace(invitation, tensors=theirs.describe_tensors())
    check_tensors(invitation, theirs)
    with pytest.raises(BadMessage, match=r"server's model has 1.weight 16x64, .*has 1.weight 8x64"):
        check_tensors(invitation, ours)
