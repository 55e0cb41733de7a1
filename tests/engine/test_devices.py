"""Which device a run uses, without an accelerator."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from thalweg.core.errors import ConfigError
from thalweg.engine import devices
from thalweg.engine.devices import (
    OutOfDeviceMemory,
    check_device_name,
    choose_actor_device,
    choose_device,
    estimate_stack_size,
    find_free_memory,
    report_exhaustion,
)
from thalweg.engine.plan import make_plan
from thalweg.engine.task import make_net
from thalweg.nets import Mlp

CPU = torch.device("cpu")


def choose(device, engine="auto", **settings):
    plan = make_plan("fedavg", "digits-partial", engine=engine, **settings)
    data = plan.scenario.data.load(None, 0)
    return choose_device(device, plan, data, make_net(plan.scenario, data))


@pytest.fixture
def report(monkeypatch):
    """Let PyTorch report some accelerators."""

    def report_counts(**counts):
        monkeypatch.setattr(devices, "count_devices", lambda kind: counts.get(kind, 0))

    return report_counts


@pytest.fixture
def no_kernel(monkeypatch):
    monkeypatch.setattr(devices, "find_parts", lambda net, data, loss: "there is no kernel")


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(devices, "find_parts", lambda net, data, loss: ("a kernel",))


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:12", "mps", "xpu"])
def test_names_of_devices(name):
    check_device_name(name)


@pytest.mark.parametrize("name", ["gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "mps:0", "meta", ""])
def test_other_names_are_rejected(name):
    with pytest.raises(ConfigError, match=r"\(--device\): expected auto, cpu, cuda, cuda:N"):
        check_device_name(name)


def test_auto_stays_on_the_cpu_without_an_accelerator(report, no_kernel):
    report()
    assert choose("auto") == ("cpu", "PyTorch reports no accelerator")


def test_auto_leaves_small_nets_to_the_kernel_and_does_not_ask_pytorch(monkeypatch, kernel):
    monkeypatch.setattr(devices, "count_devices", lambda kind: pytest.fail("PyTorch was asked"))
    name, reason = choose("auto", net={"kind": "mlp", "hidden": (7,)})
    assert name == "cpu"
    assert reason.endswith("which is small (518 multiplications per sample)")  # 64 * 7 + 7 * 10


def test_auto_uses_an_accelerator_for_nets_of_pytorch(report, no_kernel):
    report(xpu=1, mps=1)
    assert choose("auto") == ("xpu", "PyTorch computes the net")
    report(mps=1)
    assert choose("auto").name == "mps"


def test_auto_uses_an_accelerator_with_the_engine_torch(report, kernel):
    report(cuda=2)
    assert choose("auto", engine="torch") == ("cuda", "PyTorch computes the net")


def test_auto_uses_an_accelerator_for_large_nets(report, kernel):
    report(cuda=1)
    name, reason = choose("auto", net={"kind": "mlp", "hidden": (20_000,)})  # 64 and 10 * 20,000
    assert (name, reason) == ("cuda", "the net is large (1,480,000 multiplications per sample)")


def test_the_reference_engine_computes_on_the_cpu(report):
    report(cuda=1)
    assert choose("auto", engine="reference").name == "cpu"
    with pytest.raises(ConfigError, match="engine=reference computes on the CPU"):
        choose("cuda", engine="reference")


def test_a_device_that_is_given_is_used(report):
    report(cuda=2, mps=1)
    assert [choose(name).name for name in ("cpu", "cuda", "cuda:1", "mps")] == [
        *("cpu", "cuda", "cuda:1", "mps")
    ]


class WithTable(nn.Sequential):
    """A module with a tensor that is no buffer."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 10))
        self.table = torch.ones(64)

    def forward(self, x):
        return self[1](self[0](x) * self.table)


class WithBuffer(WithTable):
    def __init__(self):
        super().__init__()
        del self.table
        self.register_buffer("table", torch.ones(64))


class WithBranch(WithBuffer):
    """A module that needs values."""

    def forward(self, x):
        return super().forward(x) if x.abs().sum() >= 0 else super().forward(-x)


def weigh_classes(outputs, targets):
    weight = torch.arange(1.0, 11.0)
    return cross_entropy(outputs, targets, reduction="none") * weight[targets]


def test_a_model_or_a_loss_that_stays_on_the_cpu_is_found(report):
    report(cuda=1)
    for settings in ({"model": WithTable}, {"loss": weigh_classes}):
        name, reason = choose("auto", **settings)
        assert name == "cpu"
        assert reason.startswith("the model or the loss uses tensors of the CPU: ")
        assert choose("cpu", **settings).name == "cpu"
        with pytest.raises(ConfigError, match=r"mix it with the CPU: .*device=x\.device"):
            choose("cuda", **settings)
    for model in (WithBuffer, WithBranch):
        assert choose("auto", model=model) == ("cuda", "PyTorch computes the net")


def test_a_device_that_cannot_be_used_is_an_error(report):
    report(cuda=2)
    with pytest.raises(ConfigError, match=r"PyTorch .* reports no mps device.*device=cpu"):
        choose("mps")
    with pytest.raises(ConfigError, match="reports 2 cuda devices, whose numbers start at 0"):
        choose("cuda:2")


def test_this_build_of_pytorch_has_no_accelerator():
    if not torch.__version__.endswith("+cpu"):
        pytest.skip("this build may have one")
    assert [devices.count_devices(kind) for kind in devices.KINDS] == [0, 0, 0]
    assert devices.describe_accelerator() == "none"


def test_actors_use_the_gpu_that_ray_reserves():
    assert choose_actor_device("auto", 0.0).name == "cpu"
    assert choose_actor_device("auto", 0.25).name == "cuda"
    assert choose_actor_device("cpu", 1.0).name == "cpu"
    assert choose_actor_device("xpu", 1.0).name == "xpu"
    with pytest.raises(ConfigError, match=r"num_gpus is 0.*--num-gpus"):
        choose_actor_device("cuda", 0.0)
    with pytest.raises(ConfigError, match="Expected device=cuda"):
        choose_actor_device("cuda:1", 1.0)


def test_memory_of_the_cpu_is_not_limited():
    net = Mlp(hidden=(3,)).build((2,), 2)
    assert find_free_memory(CPU) is None
    assert estimate_stack_size(net, 8, None) >= 1_000_000
    assert estimate_stack_size(net, 8, 0) == 1, "at least one client is tried"


def test_only_errors_about_memory_are_converted():
    with (
        pytest.raises(OutOfDeviceMemory, match=r"for 3 clients\..*local\.batch_size.*: too much$"),
        report_exhaustion(CPU, "3 clients"),
    ):
        raise torch.OutOfMemoryError("too much\nmore")
    with pytest.raises(OutOfDeviceMemory), report_exhaustion(CPU, "3 clients"):
        raise RuntimeError("MPS backend out of memory (MPS allocated: ...)")
    with pytest.raises(RuntimeError, match="shapes"), report_exhaustion(CPU, "3 clients"):
        raise RuntimeError("shapes cannot be multiplied")
