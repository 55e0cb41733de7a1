"""Accelerators of PyTorch: their names, the choice for a run, and their memory.

This module imports torch only when an accelerator may be used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thalweg.core.errors import RunError, require
from thalweg.engine.task import get_loss
from thalweg.losses import Loss
from thalweg.native.trainer import find_parts
from thalweg.nets import Net

if TYPE_CHECKING:
    import torch

    from thalweg.data import Dataset
    from thalweg.engine.plan import Plan

KINDS = ("cuda", "xpu", "mps")  # in the order in which `auto` looks for them
LARGE_NET = 1_000_000  # multiplications per sample; smaller nets stay on the native kernel
BYTES_PER_PARAM = 32  # start, parameters, gradient, velocity and temporary copies of a client
BYTES_PER_OUTPUT = 32  # of a layer, per sample: the output, its gradient and temporary copies


class DeviceWarning(UserWarning):
    """The memory of a device does not suffice for a stack of clients."""


class OutOfDeviceMemory(RunError):
    """The memory of a device does not suffice."""


class DeviceChoice(NamedTuple):
    """The device that trains and predicts in a run, and why."""

    name: str
    reason: str


def check_device_name(name: str) -> None:
    """Reject a name that is not one of a device."""
    require(
        name in ("auto", "cpu", *KINDS) or re.fullmatch(r"cuda:\d{1,3}", name) is not None,
        f"device={name!r} (--device): expected auto, cpu, cuda, cuda:N (N is the number of a GPU), "
        "mps or xpu. Leave it out to use an accelerator where it is worth it.",
    )


def choose_device(name: str, plan: Plan, data: Dataset, net: Net) -> DeviceChoice:
    """Return the device of a run; raises an error if it is unknown or cannot be used.

    ``auto`` is an accelerator if PyTorch reports one, and PyTorch computes the net anyway or the
    net is large. PyTorch is not imported for other nets.
    """
    check_device_name(name)
    if plan.engine == "reference":
        require(
            name in ("auto", "cpu"),
            f"device={name} (--device): engine=reference computes on the CPU. Expected device=cpu, "
            "or another engine.",
        )
        return DeviceChoice("cpu", "engine=reference computes on the CPU")
    loss = get_loss(plan.scenario, data)
    if name == "cpu":
        return DeviceChoice(name, "device=cpu")
    if name != "auto":
        check_usable(name)
        mixture = find_mixture(net, loss, data)
        require(
            mixture is None,
            f"device={name} (--device): expected a model and a loss that compute on the device of "
            f"their inputs, but they mix it with the CPU: {mixture} Create tensors with "
            "device=x.device, register tensors of a module as buffers, or use device=cpu.",
        )
        return DeviceChoice(name, f"device={name}")
    parts = find_parts(net, data, loss)
    work = sum(
        layer.multiply_adds(shape) for layer, shape in zip(net.layers, net.shapes, strict=False)
    )
    size = f"{work:,} multiplications per sample"
    if plan.engine == "torch" or isinstance(parts, str):
        reason = "PyTorch computes the net"
    elif work > LARGE_NET:
        reason = f"the net is large ({size})"
    else:
        return DeviceChoice("cpu", f"the native kernel computes the net, which is small ({size})")
    found = find_accelerator()
    if found is None:
        return DeviceChoice("cpu", "PyTorch reports no accelerator")
    if (mixture := find_mixture(net, loss, data)) is not None:
        return DeviceChoice("cpu", f"the model or the loss uses tensors of the CPU: {mixture}")
    return DeviceChoice(found, reason)


def find_mixture(net: Net, loss: Loss, data: Dataset) -> str | None:
    """Return how a model or a loss mixes another device with the CPU; None: no mixture is known.

    They are called with tensors of the device "meta", which have no values, so that a function
    that needs values is not examined further.
    """
    import torch

    from thalweg.engine.gather import Gather

    x, targets = Gather(data).get_single("train", np.arange(min(2, data.num_samples("train"))))
    params = torch.empty(net.num_params, device="meta")
    try:
        with torch.no_grad():
            losses = loss(net.apply(params, x.to("meta")), targets.to("meta"))
    except (RuntimeError, TypeError) as error:
        text = str(error).partition("\n")[0]
        return text if re.search("expected device|to numpy", text) else None
    return None if losses.is_meta else "the losses are on the CPU."


def choose_actor_device(name: str, num_gpus: float) -> DeviceChoice:
    """Return the device of the actors of a Ray cluster, each of which reserves GPUs."""
    check_device_name(name)
    if name == "auto":
        reason = "Ray reserves GPUs" if num_gpus else "Ray reserves no GPU for an actor"
        return DeviceChoice("cuda" if num_gpus else "cpu", reason)
    require(
        ":" not in name,
        f"device={name} (--device): an actor uses the GPU that Ray reserves for it, so that it has "
        "no other number. Expected device=cuda.",
    )
    require(
        name == "cpu" or num_gpus > 0,
        f"device={name} (--device): an actor uses the GPU that Ray reserves for it, but num_gpus "
        "is 0. Expected the number of GPUs, or the fraction of one, for each actor (--num-gpus).",
    )
    return DeviceChoice(name, f"device={name}")


def check_usable(name: str) -> None:
    """Reject a known device that PyTorch cannot use on this machine."""
    obstacle = None if name in ("auto", "cpu") else find_obstacle(name)
    require(
        obstacle is None,
        f"device={name} (--device): expected an accelerator that PyTorch can use, but {obstacle}. "
        "Install a build of PyTorch for it and its driver, or use device=cpu or device=auto.",
    )


def find_obstacle(name: str) -> str | None:
    """Return why PyTorch cannot use an accelerator; None: it can."""
    kind, _, number = name.partition(":")
    count = count_devices(kind)
    if count == 0:
        return f"PyTorch {version('torch')} reports no {kind} device"
    if number and int(number) >= count:
        return f"PyTorch reports {count} {kind} devices, whose numbers start at 0"
    return None


def find_accelerator() -> str | None:
    """Return an accelerator that PyTorch reports; None: there is none."""
    return next((kind for kind in KINDS if count_devices(kind)), None)


def count_devices(kind: str) -> int:
    """Return the number of accelerators of a kind that PyTorch can use."""
    if version("torch").endswith("+cpu"):  # this build has none
        return 0
    import torch

    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module = torch.cuda if kind == "cuda" else torch.xpu
    return module.device_count() if module.is_available() else 0


def describe_accelerator() -> str:
    """Return the accelerator of this machine in a phrase."""
    kind = find_accelerator()
    if kind is None:
        return "none"
    if kind == "mps":
        return kind
    import torch

    module = torch.cuda if kind == "cuda" else torch.xpu
    return f"{kind}: {module.get_device_name(0)}"


def open_device(name: str) -> torch.device:
    """Return a device of PyTorch."""
    import torch

    return torch.device(name)


def find_free_memory(device: torch.device) -> int | None:
    """Return the free bytes of an accelerator; None: it is none."""
    import torch

    if device.type in ("cuda", "xpu"):
        module = torch.cuda if device.type == "cuda" else torch.xpu
        return int(module.mem_get_info(device)[0])
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return None


def estimate_stack_size(net: Net, batch_size: int, free: int | None) -> int:
    """Return how many clients half of the free bytes hold; at least one. None: any number.

    It is an estimate: what a layer needs depends on its implementation.

    >>> from thalweg.nets import Linear
    >>> net = Linear().build((9,), 10)  # 100 parameters and 10 outputs
    >>> estimate_stack_size(net, batch_size=10, free=2 * 7 * (32 * 100 + 10 * 32 * 10))
    7
    """
    if free is None:
        return 1 << 31
    outputs = sum(prod(shape) for shape in net.shapes[1:])
    each = BYTES_PER_PARAM * net.num_params + BYTES_PER_OUTPUT * batch_size * outputs
    return max(1, free // 2 // each)


@contextmanager
def report_exhaustion(device: torch.device, what: str) -> Iterator[None]:
    """Convert an error of PyTorch about too little memory."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfDeviceMemory(
            f"the memory of the device {device} does not suffice for {what}. Use smaller "
            "mini-batches (local.batch_size) or another device (device=cpu, --device cpu). "
            f"PyTorch reports: {str(error).partition(chr(10))[0]}"
        ) from None


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether the memory of a device is exhausted; MPS raises a plain error."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or "MPS backend out of memory" in str(error)


def release_memory(device: torch.device) -> None:
    """Return memory to the device that PyTorch keeps for later use."""
    import torch

    if device.type in KINDS:
        getattr(torch, device.type).empty_cache()
