"""Optimizers of clients: numbers by hand, and comparison with torch.optim."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contracts.optimizer import check_optimizer
from thalweg.core.config import from_dict, to_dict, with_overrides, with_settings
from thalweg.core.errors import ConfigError
from thalweg.local import (
    OPTIMIZERS,
    Adam,
    AdamW,
    LocalTraining,
    Optimizer,
    Sgd,
    StepSettings,
    TorchOptimizer,
)
from thalweg.local.optimizers import list_torch_optimizers, try_optimizer

LOCAL = LocalTraining(lr=0.1, momentum=0.9, weight_decay=0.01, steps=1)


def take_steps(
    optimizer: Optimizer,
    settings: StepSettings,
    start: torch.Tensor,
    gradients: torch.Tensor,
    scale: torch.Tensor | None = None,
) -> torch.Tensor:
    params = start.clone()
    state = optimizer.init(params, settings, [(start.shape[1],)])
    for gradient in gradients:
        optimizer.step(params, gradient, state, settings, scale)
    return params


@pytest.mark.parametrize("gradient", [1e-4, 0.3, -7.0, 1e4])
@pytest.mark.parametrize("optimizer", [Adam(), AdamW()])
def test_the_first_adam_step_has_the_length_of_the_learning_rate(
    optimizer: Optimizer, gradient: float
) -> None:
    start = torch.tensor([[2.0]])
    moved = take_steps(optimizer, StepSettings(lr=0.1), start, torch.tensor([[[gradient]]]))
    assert moved.item() == pytest.approx(2 - 0.1 * np.sign(gradient), abs=2e-5)


def test_two_adam_steps_by_hand() -> None:
    # m = 0.5 * 0.5 + 0.5 * 3 = 1.75 after m = 0.5; v = 0.75 * 0.25 + 0.25 * 9 = 2.4375.
    # With bias: 1.75 / 0.75 = 2.33333, sqrt(2.4375 / 0.4375) = 2.36039; the first step is 0.1.
    adam, gradients = Adam(betas=(0.5, 0.75), eps=0.0), torch.tensor([[[1.0]], [[3.0]]])
    moved = take_steps(adam, StepSettings(lr=0.1), torch.tensor([[1.0]]), gradients)
    assert moved.item() == pytest.approx(1 - 0.1 - 0.1 * 2.3333333 / 2.3603874, abs=1e-6)


def test_weight_decay_is_part_of_the_gradient_of_adam_but_not_of_adamw() -> None:
    settings, start = StepSettings(lr=0.1, weight_decay=0.5), torch.tensor([[2.0]])
    gradients = torch.tensor([[[-3.0]]])
    # Adam: the gradient is -3 + 0.5 * 2 = -2; the step has length 0.1 all the same.
    assert take_steps(Adam(), settings, start, gradients).item() == pytest.approx(2.1)
    # AdamW: 2 * (1 - 0.1 * 0.5) + 0.1
    assert take_steps(AdamW(), settings, start, gradients).item() == pytest.approx(2.0)


def test_two_sgd_steps_with_momentum_follow_the_formula() -> None:
    settings, params = StepSettings(lr=0.5, momentum=0.5), torch.tensor([[1.0]])
    state = Sgd().init(params, settings, [(1,)])
    Sgd().step(params, torch.tensor([[2.0]]), state, settings)  # v = 2, w = 1 - 1
    Sgd().step(params, torch.tensor([[2.0]]), state, settings)  # v = 3, w = 0 - 1.5
    assert (params.item(), state["velocity"].item()) == (-1.5, 3.0)


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0, 0), (0.9, 0), (0, 0.1), (0.9, 0.01)])
def test_sgd_steps_equal_torch_optim_bit_for_bit(momentum: float, weight_decay: float) -> None:
    torch.manual_seed(0)
    settings, params = StepSettings(0.3, momentum, weight_decay), torch.randn(2, 50)
    theirs = torch.nn.Parameter(params.clone())
    optimizer = torch.optim.SGD(
        [theirs], lr=0.3, momentum=momentum, weight_decay=weight_decay, foreach=False
    )
    state = Sgd().init(params, settings, [(50,)])
    for _ in range(6):
        gradient = torch.randn(2, 50)
        theirs.grad = gradient.clone()
        optimizer.step()
        Sgd().step(params, gradient, state, settings)
        assert torch.equal(params, theirs)


@given(
    kind=st.sampled_from(["adam", "adamw"]),
    betas=st.tuples(st.floats(0, 0.99), st.floats(0, 0.9999)),
    eps=st.sampled_from([1e-8, 1e-4, 0.1]),
    weight_decay=st.sampled_from([0.0, 0.01, 1.0]),
    lr=st.floats(1e-5, 0.5),
    num_steps=st.integers(1, 12),
    seed=st.integers(0, 2**31),
)
def test_adam_steps_equal_torch_optim(
    kind: str,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    lr: float,
    num_steps: int,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    start = torch.tensor(rng.normal(size=(3, 7)), dtype=torch.float32)
    gradients = torch.tensor(rng.normal(size=(num_steps, 3, 7)), dtype=torch.float32)
    scale = torch.tensor([[1.0], [0.3], [0.01]])
    ours = {"adam": Adam, "adamw": AdamW}[kind](betas, eps)
    moved = take_steps(ours, StepSettings(lr, 0.0, weight_decay), start, gradients, scale)
    theirs = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
    for k in range(3):
        params = torch.nn.Parameter(start[k].clone())
        optimizer = theirs(
            [params], lr=lr * scale[k].item(), betas=betas, eps=eps, weight_decay=weight_decay
        )
        for gradient in gradients:
            params.grad = gradient[k].clone()
            optimizer.step()
        torch.testing.assert_close(moved[k], params.detach(), rtol=2e-5, atol=2e-6)


def named_optimizers() -> list[Optimizer]:
    names = list(list_torch_optimizers().keys() - {"muon"})  # muon accepts matrices only
    special = [TorchOptimizer("rmsprop", {"centered": True}), Adam(betas=(0.5, 0.6), eps=0.01)]
    return [Sgd(), Adam(), AdamW(), *special, *(TorchOptimizer(name) for name in sorted(names))]


@pytest.mark.parametrize("optimizer", named_optimizers(), ids=repr)
def test_each_optimizer_fulfils_the_contract(optimizer: Optimizer) -> None:
    check_optimizer(optimizer)


def test_optimizers_that_depend_on_shapes_get_the_tensors_of_the_net() -> None:
    adafactor = TorchOptimizer("adafactor")
    state = adafactor.init(torch.zeros(1, 9), StepSettings(lr=0.1), [(3, 2), (3,)])
    adafactor.step(torch.ones(1, 9), torch.ones(1, 9), state, StepSettings(lr=0.1))
    exported = state["clients"][0].export()
    assert exported["0.row_var"].shape == (3, 1)
    assert exported["0.col_var"].shape == (1, 2)
    assert exported["1.variance"].shape == (3,)


@pytest.mark.parametrize(
    ("given_as", "expected"),
    [
        ("adam", Adam()),
        ("Adam", Adam()),
        (Adam, Adam()),
        (Adam(eps=0.1), Adam(eps=0.1)),
        ({"kind": "adam", "betas": [0.5, 0.6]}, Adam(betas=(0.5, 0.6))),
        (torch.optim.AdamW, AdamW()),
        (torch.optim.RMSprop, TorchOptimizer("rmsprop")),
        ("RMSprop", TorchOptimizer("rmsprop")),
        ({"kind": "rmsprop", "alpha": 0.9}, TorchOptimizer("rmsprop", {"alpha": 0.9})),
        ({"kind": "rmsprop", "options": {"alpha": 0.9}}, TorchOptimizer("rmsprop", {"alpha": 0.9})),
    ],
)
def test_an_optimizer_may_be_a_name_a_class_or_a_mapping(
    given_as: object, expected: Optimizer
) -> None:
    assert LocalTraining(lr=0.1, steps=1, optimizer=given_as).optimizer == expected  # type: ignore[arg-type]
    local = with_settings(LOCAL, {"optimizer": given_as})
    assert local.optimizer == expected
    assert from_dict(LocalTraining, to_dict(local)) == local


def test_options_are_settings() -> None:
    local = with_overrides(LOCAL, ["optimizer=adam", "optimizer.betas=0.8,0.9"])
    assert local.optimizer == Adam(betas=(0.8, 0.9))
    local = with_overrides(LOCAL, ["optimizer=nadam", "optimizer.betas=0.8,0.9"])
    assert local.optimizer == TorchOptimizer("nadam", {"betas": (0.8, 0.9)})
    local = with_overrides(local, ["optimizer.momentum_decay=0.1"])
    assert local.optimizer == TorchOptimizer("nadam", {"betas": (0.8, 0.9), "momentum_decay": 0.1})


def test_a_new_optimizer_resets_the_momentum_of_the_scenario() -> None:
    assert with_overrides(LOCAL, ["optimizer=adam"]).momentum == 0
    assert with_overrides(LOCAL, ["optimizer=adam"]).weight_decay == 0.01
    assert with_overrides(LOCAL, ["optimizer=rprop"]).weight_decay == 0
    assert with_overrides(LOCAL, ["optimizer=rmsprop", "momentum=0.5"]).momentum == 0.5
    assert with_overrides(LOCAL, ["optimizer=sgd"]).momentum == 0.9
    with pytest.raises(ConfigError, match=r"momentum=0.5 has no effect with local.optimizer=adam"):
        with_overrides(LOCAL, ["optimizer=adam", "momentum=0.5"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optimizer=adan"], r"unknown local.optimizer 'adan'; known: .*Did you mean 'adam"),
        (["optimizer=lbfgs"], "lbfgs cannot train clients: it evaluates the loss several times"),
        (["optimizer=SparseAdam"], "sparseadam cannot train clients: it needs sparse gradients"),
        (["optimizer=torch"], "optimizer needs name"),
        (["optimizer=adam", "optimizer.alpha=1"], "unknown field of optimizer 'alpha'"),
        (["optimizer=adam", "optimizer.betas=1,2"], r"betas must be two numbers in \[0, 1\)"),
        (["optimizer=adam", "optimizer.eps=-1"], "eps must not be negative"),
        (["optimizer=rmsprop", "optimizer.alpah=0.9"], "Did you mean 'alpha'"),
        (["optimizer=rmsprop", "optimizer.lr=0.9"], "set local.lr instead"),
        (["optimizer=adamw", "optimizer.weight_decay=0.1"], "set local.weight_decay instead"),
        (["optimizer=rmsprop", "optimizer.alpha=-1"], "rejects its options"),
        (["optimizer=rmsprop", "optimizer.maximize=true"], "unknown option"),
        (["optimizer.betas=0.8,0.9"], "unknown field of optimizer 'betas'"),
    ],
)
def test_invalid_optimizers_are_rejected(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_overrides(LOCAL, overrides)


def test_each_class_of_torch_optim_is_accepted_or_rejected_with_a_reason() -> None:
    classes = [
        name
        for name, cls in vars(torch.optim).items()
        if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and name != "Optimizer"
    ]
    assert len(classes) >= 15
    for name in classes:
        if name.lower() in list_torch_optimizers():
            assert TorchOptimizer(name).name == name.lower()
        else:
            with pytest.raises(ConfigError, match=r"cannot train clients: .*such as adam"):
                TorchOptimizer(name)


def test_the_tensors_of_a_net_are_tried_before_a_run() -> None:
    settings = StepSettings(lr=0.1)
    try_optimizer(TorchOptimizer("muon"), settings, [(3, 2), (4, 3)])
    with pytest.raises(ConfigError, match=r"muon does not accept the parameters .*such as adam"):
        try_optimizer(TorchOptimizer("muon"), settings, [(3, 2), (3,)])


def test_each_optimizer_of_the_table_has_a_test() -> None:
    assert {type(each) for each in named_optimizers()} == set(OPTIMIZERS.values())
