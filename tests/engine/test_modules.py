"""Runs with modules of users: engines agree, any number of workers, resumed runs, saved weights."""

from __future__ import annotations

import hashlib
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import nets.user_modules
import thalweg
from contracts.runs import Interruption, check_engines_agree, check_same_bits, interrupt_after
from nets.user_modules import (
    DigitMlp,
    DropoutMlp,
    Tied,
    UnusedLayer,
    WindowCnn,
    WindowGru,
    batch_norm_resnet,
    digit_transformer,
    group_norm_resnet,
)
from thalweg.core.errors import ConfigError, RunError
from thalweg.core.types import Job
from thalweg.data.base import Dataset
from thalweg.engine.builders import make_client_pool, make_federation
from thalweg.engine.fast import stack
from thalweg.engine.gather import Gather
from thalweg.engine.loop import Result, run_plan
from thalweg.engine.plan import make_plan, plan_from_toml, plan_to_toml, read_plan
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import StackedTrainer
from thalweg.engine.workers import can_send_to_worker
from thalweg.federation import MiniBatch
from thalweg.local import LocalTraining, TaskLoss
from thalweg.nets import Mlp, Module, build_net

TINY: dict[str, Any] = {"capacity": 16, "ticks": 2, "evaluate_every": 2, "rounds": 4}


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of windows (n, T, C) of four classes and six clients."""
    rng = np.random.default_rng(3)
    y = rng.integers(4, size=300)
    x = rng.normal(y[:, None, None] * [1.0, -1.0, 0.5], 1.0, (300, 12, 3))
    file = tmp_path_factory.mktemp("data") / "windows.npz"
    np.savez(file, x=x, y=y, client=np.arange(300) % 6, time=np.arange(300.0))
    return str(file)


def run(model: Any, on: str = "digits-partial", recipe: str = "fedavg", **settings: Any) -> Result:
    settings = {**TINY, "workers": 1, "seed": 3, **settings}
    if on == "digits-partial":
        settings = {"world": {"num_clients": 6}, **settings}
    return thalweg.run(recipe, on, model=model, **settings)


MODELS = [DigitMlp, DropoutMlp, group_norm_resnet, batch_norm_resnet, WindowCnn, WindowGru]


@pytest.mark.parametrize("model", [*MODELS, digit_transformer])
def test_engines_agree_and_interrupted_runs_have_the_same_bits(
    model: Any, windows: str, tmp_path: Path
) -> None:
    if model is digit_transformer:
        pytest.importorskip("transformers", reason="install it with pip install '.[dev]'")
    on = windows if model in (WindowCnn, WindowGru) else "digits-partial"
    whole = run(model, on, local={"weight_decay": 0.01, "momentum": 0.5})
    settings = {"local": {"weight_decay": 0.01, "momentum": 0.5}}
    check_engines_agree(whole, run(model, on, engine="reference", **settings))
    with pytest.raises(Interruption):
        run(model, on, out=tmp_path / "run", watch=interrupt_after(2), **settings)
    check_same_bits(whole, run(model, on, out=tmp_path / "run", resume=True, **settings))


@pytest.mark.parametrize(
    "model",
    [pytest.param(batch_norm_resnet, marks=pytest.mark.slow), batch_norm_resnet()],
    ids=["path", "object"],
)
def test_workers_do_not_change_the_bits(model: Any) -> None:
    one, two = (run(model, workers=workers) for workers in (1, 2))
    check_same_bits(one, two)


def test_a_module_equal_to_a_built_in_net_gives_the_same_model(tmp_path: Path) -> None:
    built_in = run(Mlp((16,)), rounds=1, out=tmp_path / "start").net
    start = built_in.init(np.random.default_rng(0))
    pieces = {name: torch.from_numpy(v) for name, v in built_in.named_parameters(start).items()}
    save_file(pieces, tmp_path / "start.safetensors")
    module = DigitMlp()
    nn.utils.vector_to_parameters(torch.from_numpy(start), module.parameters())
    expected = run(Mlp((16,)), start_from=str(tmp_path / "start.safetensors"))
    np.testing.assert_allclose(run(module).model, expected.model, rtol=1e-3, atol=1e-5)


def test_statistics_of_batch_norm_are_averaged() -> None:
    result = run(batch_norm_resnet)
    named = result.net.named_parameters(result.model)
    assert named["1.norm.running_mean"].any()
    assert (named["1.norm.running_var"] != 1).all()
    assert (named["1.norm.running_var"] > 0).all()


LOCAL_NORMS = Module("nets.user_modules:batch_norm_resnet", buffers="local")


def test_clients_continue_from_their_own_normalisation_layers(tmp_path: Path) -> None:
    whole = run(LOCAL_NORMS)
    check_engines_agree(whole, run(LOCAL_NORMS, engine="reference"))
    check_engines_agree(
        *(run(LOCAL_NORMS, recipe="sfedpo", engine=engine) for engine in ("fast", "reference"))
    )
    with pytest.raises(Interruption):
        run(LOCAL_NORMS, out=tmp_path / "run", watch=interrupt_after(2))
    check_same_bits(whole, run(LOCAL_NORMS, out=tmp_path / "run", resume=True))
    assert not np.array_equal(whole.model, run(batch_norm_resnet).model)


class NormedMlp(nn.Module):
    """BatchNorm over rows, which needs two samples in training."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.norm, self.out = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.out(torch.relu(self.norm(self.hidden(x))))
        return outputs


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file of 40 rows of two clients; by default one row arrives at a time."""
    rng = np.random.default_rng(5)
    y = rng.integers(2, size=40)
    file = tmp_path_factory.mktemp("data") / "rows.npz"
    x = rng.normal(y[:, None], 1.0, (40, 3))
    np.savez(file, x=x, y=y, client=np.arange(40) % 2, time=np.arange(40.0))
    return str(file)


@pytest.mark.parametrize("recipe", ["fedavg", "sfedpo", "local-only", "centralised"])
def test_batch_norm_trains_on_rows_that_arrive_one_at_a_time(recipe: str, rows: str) -> None:
    # With five rows in the memory, the mini-batches of four and one are joined.
    settings: dict[str, Any] = {
        "rounds": 8,
        "ticks": 1,
        "world": {"availability": 1.0, "arrivals": 1},
        "local": {"batch_size": 4, "passes": 1, "lr": 0.1},
    }
    fast = run(NormedMlp, rows, recipe, **settings)
    check_engines_agree(fast, run(NormedMlp, rows, recipe, engine="reference", **settings))
    if recipe == "fedavg":
        assert "loss" not in fast.metrics[0], "no step with one sample in the memory"
        assert all("loss" in row for row in fast.metrics[1:])
    assert np.isfinite(fast.model).all()


def test_batch_norm_runs_with_the_default_number_of_arrivals(rows: str) -> None:
    plan = make_plan("fedavg", rows, model=NormedMlp)
    assert plan.scenario.world.arrivals == 1
    assert np.isfinite(thalweg.run("fedavg", rows, model=NormedMlp, workers=1).model).all()


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("fedavg", {"local": {"batch_size": 1}}, "got local.batch_size=1.*GroupNorm"),
        ("fedavg", {"capacity": 1}, r"memory of a client holds 1\. Set capacity=500.*GroupNorm"),
        (
            "fedogd",
            {"world": {"arrivals": 1}},
            "world.arrivals=1 and memory=replace.*'arrivals': 8",
        ),
    ],
)
def test_batch_norm_without_a_batch_of_two_samples_is_rejected(
    recipe: str, settings: dict[str, Any], message: str, rows: str
) -> None:
    with pytest.raises(ConfigError, match=f"at least 2 samples per mini-batch.*{message}"):
        run(NormedMlp, rows, recipe, **settings)
    assert np.isfinite(run(NormedMlp, rows, "fedogd", world={"arrivals": 2}).model).all()


def test_the_server_has_the_average_of_local_normalisation_layers() -> None:
    plan = make_plan(
        "fedavg",
        "digits-partial",
        model=LOCAL_NORMS,
        rounds=3,
        engine="reference",
        overrides=["world.num_clients=3", "world.availability=1", "weights=equal", "capacity=16"],
    )
    data = plan.scenario.data.load(None, 0)
    net = build_net(plan.scenario.net, data.input_shape, data.num_classes)
    own = net.own_positions
    assert own is not None
    assert len(own) == 4 * 8  # weight, bias, mean and variance of eight channels
    pool = make_client_pool(plan, data, net.num_params, own)
    federation = make_federation(plan, data, net, 1, pool)
    bank = net.init(np.random.default_rng(0))[None]
    jobs = [Job(client, 0) for client in range(3)]
    for rnd in range(3):
        updates = federation.train(jobs, bank, rnd)
        bank = bank + updates.deltas.mean(axis=0)
        values = np.stack([pool.states[client].own for client in range(3)])
        np.testing.assert_allclose(bank[0, own], values.mean(axis=0), atol=1e-5)
        assert values.std(axis=0).max() > 0.001


def test_the_module_of_the_user_does_not_change() -> None:
    module = batch_norm_resnet()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    was_training, state = module.training, torch.get_rng_state()
    run(module, rounds=1)
    assert module.training == was_training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_saved_weights_load_into_the_plain_module_and_back(tmp_path: Path) -> None:
    result = run(batch_norm_resnet, out=tmp_path / "run")
    plain = batch_norm_resnet()
    plain.load_state_dict(load_file(tmp_path / "run" / "model.safetensors"))
    x = torch.randn(5, 1, 8, 8)
    assert torch.equal(plain.eval()(x), result.net.apply(torch.from_numpy(result.model), x))
    save_file(plain.state_dict(), tmp_path / "plain.safetensors")
    again = run(batch_norm_resnet, rounds=1, start_from=str(tmp_path / "plain.safetensors"))
    assert again.metrics[0]["round"] == 1


# --- mini-batches ---


def toy_digits() -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
    y = rng.integers(0, 10, 40)
    return Dataset("toy", x, y, x[:0], y[:0], 10, (0.4,), (0.3,))


@pytest.mark.parametrize("model", [batch_norm_resnet, DropoutMlp, Tied])
def test_engines_train_modules_on_the_same_samples(model: Any) -> None:
    """Samples of weight zero belong to a mini-batch. Padding of other clients does not."""
    data = toy_digits()
    net = build_net(Module(f"python:{model.__name__}", source=model), (1, 8, 8), 10)
    local = LocalTraining(lr=0.1, momentum=0.5, steps=2)
    rows = np.arange(40, dtype=np.int32)
    none = np.array([0.5, 0.5, 0, 0, 0], dtype=np.float32)
    batches = [
        [MiniBatch(rows[:6], None), MiniBatch(rows[6:11], none)],
        [MiniBatch(rows[20:23], None), MiniBatch(rows[23:27], 0 * none[:4])],
    ]
    task = stack(np.zeros(2, dtype=np.int64), batches, noise=np.array([5, 9]))
    bank = net.init(np.random.default_rng(1))[None]
    deltas, losses = StackedTrainer(net, TaskLoss(), local, Gather(data)).train(bank, [task])
    for k, (mine, noise) in enumerate(zip(batches, [5, 9], strict=True)):
        training = SingleTrainer(net, TaskLoss(), local, data).begin(bank[0], noise)
        for batch in mine:
            training.step(batch, {}, 1.0)
        np.testing.assert_allclose(deltas[k], training.delta, rtol=1e-3, atol=1e-5)
        assert losses[k] == pytest.approx(training.mean_loss, rel=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "rmsprop"])
def test_weight_decay_leaves_parameters_without_a_gradient(optimizer: str) -> None:
    """As in torch.optim, which skips parameters whose gradient is None."""
    module, local = UnusedLayer(), {"weight_decay": 0.1, "lr": 0.01}
    fast, slow = (
        run(module, engine=engine, optimizer=optimizer, local=local, rounds=2)
        for engine in ("fast", "reference")
    )
    assert fast.net.can_stack
    start = {name: value.detach().numpy() for name, value in module.named_parameters()}
    for result in (fast, slow):
        named = result.net.named_parameters(result.model)
        for name in ("unused.weight", "unused.bias"):
            assert np.array_equal(named[name], start[name])
        assert not np.array_equal(named["1.weight"], start["1.weight"])


# --- plans ---


def test_a_plan_records_the_digest_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    shutil.copy(nets.user_modules.__file__, file)
    with pytest.raises(Interruption):
        run(f"{file}:DigitMlp", out=tmp_path / "run", watch=interrupt_after(2))
    plan = read_plan(tmp_path / "run")
    assert isinstance(plan.scenario.net, Module)
    before = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    assert plan.scenario.net.digest == before
    text = file.read_text()
    file.write_text(text + "# a change\n")
    after = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    message = f"has changed since the plan was made: expected the digest {before}, got {after}. R"
    with pytest.raises(ConfigError, match=message):
        run_plan(plan, out=tmp_path / "run", resume=True)
    with pytest.raises(RunError, match=rf"scenario.net.digest: {before} -> {after}\nRestore these"):
        run(f"{file}:DigitMlp", out=tmp_path / "run", resume=True)
    file.write_text(text)
    assert run_plan(plan, out=tmp_path / "run", resume=True, workers=1).metrics[-1]["round"] == 4


def test_a_run_of_an_object_is_not_resumed_with_other_tensors(tmp_path: Path) -> None:
    with pytest.raises(Interruption):
        run(DigitMlp(16), out=tmp_path / "run", watch=interrupt_after(2))
    with pytest.raises(RunError, match=r"scenario.net.digest: \w{16} -> \w{16}\nRestore these"):
        run(DigitMlp(8), out=tmp_path / "run", resume=True)


def test_a_plan_records_the_path_of_a_class() -> None:
    plan = make_plan("fedavg", "digits-partial", model=DigitMlp, overrides=["net.options.width=8"])
    assert plan.scenario.net == Module("nets.user_modules:DigitMlp", {"width": 8})
    assert plan_from_toml(plan_to_toml(plan), "a test") == plan


def test_a_run_of_an_instance_is_resumed_with_the_same_instance(tmp_path: Path) -> None:
    module = DigitMlp()
    whole = run(module)
    with pytest.raises(Interruption):
        run(module, out=tmp_path / "run", watch=interrupt_after(2))
    plan = plan_from_toml((tmp_path / "run" / "plan.toml").read_text(), "a test")
    with pytest.raises(ConfigError, match=r"passed as an object from Python.*resume=True"):
        thalweg.engine.loop.run_plan(plan, out=tmp_path / "run", resume=True)
    check_same_bits(whole, run(module, out=tmp_path / "run", resume=True))


def test_local_buffers_need_one_model_per_client() -> None:
    with pytest.raises(ConfigError, match=r"net.buffers=local needs one model per client, but "):
        run(LOCAL_NORMS, recipe="fedrc")


def test_model_and_net_cannot_be_given_together() -> None:
    with pytest.raises(ConfigError, match="model and net are the same setting"):
        make_plan("fedavg", "digits-partial", model=DigitMlp, net="mlp")


def test_compare_accepts_a_model() -> None:
    found = thalweg.compare(
        ["fedavg", "majority"],
        "digits-partial",
        model=lambda: DigitMlp(8),
        seeds=1,
        world={"num_clients": 6},
        **TINY,
    )
    assert [cell.status for cell in found.cells] == ["done", "done"]


def test_a_model_with_the_wrong_number_of_outputs_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"outputs of shape \(B, 10\)"):
        run(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 7)), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# --- processes and policies ---


class Local(nn.Linear):
    """A class that other processes cannot import."""

    __module__ = "__main__"

    def __init__(self) -> None:
        super().__init__(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))


def test_a_model_that_cannot_be_sent_to_workers_is_reported() -> None:
    with pytest.warns(UserWarning, match="the model Local cannot be sent to worker processes"):
        two = run(Local(), workers=2, rounds=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = run(two.net.spec.source, workers=1, rounds=1)  # type: ignore[attr-defined]
    check_same_bits(one, two)
    assert not can_send_to_worker(two.net)


@pytest.mark.parametrize("recipe", ["moon", "feddrift", "sfedpo"])
@pytest.mark.parametrize("model", [DigitMlp, batch_norm_resnet])
def test_other_recipes_train_modules(recipe: str, model: Any) -> None:
    fast, slow = (run(model, recipe=recipe, engine=engine) for engine in ("fast", "reference"))
    check_engines_agree(fast, slow)
