"""`thalweg doctor` says which code computes, and why."""

import json

import pytest

from native.kernel_cases import KERNEL, needs_kernel
from thalweg.engine import devices
from thalweg.native import library


def ask(thalweg, *words):
    done = thalweg("doctor", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_machine(thalweg):
    found = ask(thalweg)
    assert list(found) == [
        *("processor", "kernel", "instruction sets", "compiler", "torch", "gpu", "ray")
    ]
    text = thalweg("doctor").stdout
    for name, value in found.items():
        assert f"{name} " in text
        assert value in text


def test_a_machine_without_a_library(thalweg, monkeypatch, tmp_path):
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    found = ask(thalweg, "fedavg", "--on", "digits-partial")
    reason = library.find_kernel()
    assert found["kernel"] == found["training"] == found["prediction"] == f"torch: {reason}"
    assert found["instruction sets"].startswith("none (built)")


@needs_kernel
@pytest.mark.parametrize(
    ("words", "training", "prediction"),
    [
        (["fedavg"], "{kernel}", "{kernel}"),
        (
            ["moon"],
            "torch, with forward and backward passes by {kernel}: the objective Moon has no "
            "native code",
            "{kernel}",
        ),
        (
            ["fedavg", "--set", "local.optimizer=adam", "--set", "local.momentum=0"],
            "torch, with forward and backward passes by {kernel}: the optimizer adam has no "
            "native code",
            "{kernel}",
        ),
        (
            ["fedavg", "--set", "net=resnet10"],
            "torch: the layer Conv has no native code",
            "torch: the layer Conv has no native code",
        ),
        (["fedavg", "--engine", "torch"], "torch: engine=torch", "torch: engine=torch"),
        (
            ["majority"],
            "the classifier of the baseline, without a net",
            None,
        ),
    ],
)
def test_the_code_of_a_plan(thalweg, words, training, prediction):
    recipe, *more = words
    found = ask(thalweg, recipe, "--on", "digits-partial", *more)
    assert found["training"] == training.format(kernel=KERNEL.name)
    assert found.get("prediction") == (prediction and prediction.format(kernel=KERNEL.name))


def test_the_device_of_a_plan(thalweg, monkeypatch):
    words = ["fedavg", "--on", "digits-partial", "--engine", "torch"]
    monkeypatch.setattr(devices, "count_devices", lambda kind: 0)
    assert ask(thalweg, *words)["device"] == "cpu: PyTorch reports no accelerator"
    assert ask(thalweg, *words, "--device", "cpu")["device"] == "cpu: device=cpu"
    done = thalweg("doctor", *words, "--device", "mps")
    assert done.returncode == 2
    assert "reports no mps device" in " ".join(done.stderr.split())
    monkeypatch.setattr(devices, "count_devices", lambda kind: int(kind == "mps"))
    found = ask(thalweg, *words)
    assert found["gpu"] == "mps"
    assert found["device"] == "mps: PyTorch computes the net"
    assert found["training"] == found["prediction"] == "torch: the kernel does not compute on mps"


def test_options_of_a_plan_need_a_recipe(thalweg):
    done = thalweg("doctor", "--on", "digits-partial")
    assert done.returncode == 2
    assert "there is no recipe. Add the name of a recipe" in " ".join(done.stderr.split())
