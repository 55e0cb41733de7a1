"""Runs with other optimizers than SGD: engines agree, and kept states survive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from contracts.runs import Interruption, check_engines_agree, check_same_bits, interrupt_after
from contracts.slow_cases import mark_slow_except
from engine.recipe_runs import bytes_federation, plan_of, play, reference
from thalweg.bank import BankAssignment
from thalweg.bank.base import require_cohort
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Roster, SurveyResponses
from thalweg.engine.loop import Result, run_plan
from thalweg.engine.plan import Plan, make_plan, plan_from_toml, plan_to_toml
from thalweg.local import (
    Adam,
    AdamW,
    CosineDecay,
    LocalTraining,
    StepSettings,
    TorchOptimizer,
    Warmup,
)
from thalweg.local.optimizers import list_torch_optimizers
from thalweg.nets import Module

SMALL = [
    *("capacity=16", "ticks=2", "rounds=3", "evaluate_every=1", "world.num_clients=8"),
    *("world.availability=0.8", "local.lr=0.002", "local.passes=1", "net.hidden=[6]"),
]
TINY = ["rounds=3", "capacity=12", "ticks=1", "world.num_clients=5", "world.availability=0.6"]
KEEP = "local.optimizer_state=keep"


@dataclass(frozen=True)
class Signs:
    """An optimizer of a user: steps of length lr against the sign of the gradient."""

    every: int = 2  # only every other step moves

    accepts_momentum = False
    accepts_weight_decay = False

    def init(self, params: torch.Tensor, settings: StepSettings, shapes: Any) -> dict[str, Any]:
        return {"count": torch.zeros(len(params), 1)}

    def step(
        self,
        params: torch.Tensor,
        gradient: torch.Tensor,
        state: dict[str, Any],
        settings: StepSettings,
        lr_scale: torch.Tensor | None = None,
    ) -> None:
        state["count"] += 1
        scale = 1.0 if lr_scale is None else lr_scale
        moves = (state["count"] % self.every == 0).float()
        params -= settings.lr * scale * moves * gradient.sign()


@dataclass(frozen=True)
class FixedSteps:
    """Steps of length lr in every coordinate, whatever the gradient."""

    accepts_momentum = False
    accepts_weight_decay = False

    def init(self, params: torch.Tensor, settings: StepSettings, shapes: Any) -> dict[str, Any]:
        return {}

    def step(
        self,
        params: torch.Tensor,
        gradient: torch.Tensor,
        state: dict[str, Any],
        settings: StepSettings,
        lr_scale: torch.Tensor | None = None,
    ) -> None:
        params -= settings.lr * (1.0 if lr_scale is None else lr_scale)


@dataclass(frozen=True)
class Alternating:
    """Two models; all clients train model 0 in even rounds and model 1 in odd rounds."""

    num_start_models = 2
    has_fixed_models = True

    def init(self, num_clients: int, num_classes: int) -> None:
        return None

    def assign(
        self, state: None, roster: Roster, answers: SurveyResponses, num_models: int
    ) -> BankAssignment:
        cohort = require_cohort(roster)
        models = np.full(len(cohort), roster.rnd % 2)
        return BankAssignment(None, np.eye(2), np.zeros(2, dtype=bool), cohort, models)

    def shares(self, state: None, num_models: int) -> Floats:
        return np.eye(num_models)[0]


def small_plan(
    *overrides: str, recipe: str = "fedavg", engine: str = "fast", **settings: Any
) -> Plan:
    return make_plan(
        recipe,
        "digits-partial",
        seed=2,
        engine=engine,
        overrides=[*SMALL, *overrides],
        **settings,
    )


def run_small(plan: Plan, workers: int = 1, **options: Any) -> Result:
    return run_plan(plan, workers=workers, **options)


OVERRIDES = {
    "adam": ["optimizer=adam"],
    "adam kept": ["optimizer=adam", KEEP],
    "adamw": ["optimizer=adamw", "local.decay=polynomial", "local.decay.rounds=3"],
    "adagrad": ["optimizer=adagrad", "local.decay=polynomial", "local.decay.rounds=3"],
    "nadam kept": ["optimizer=nadam", KEEP],
    "sgd kept": ["local.momentum=0.9", KEEP],
    "with state": ["optimizer=adam", KEEP, "objective=elastic"],
}


@pytest.mark.parametrize("name", OVERRIDES)
def test_engines_agree_and_resumed_runs_have_the_same_bits(name: str, tmp_path: Path) -> None:
    plan = small_plan(*OVERRIDES[name])
    whole = run_small(plan, out=tmp_path / "whole")
    with pytest.raises(Interruption):
        run_small(plan, out=tmp_path / "cut", watch=interrupt_after(2))
    check_same_bits(whole, run_small(plan, out=tmp_path / "cut", resume=True))
    slow = small_plan(*OVERRIDES[name], engine="reference")
    check_engines_agree(whole, run_small(slow))


COMBINATIONS = {
    "proximal, fedadam": "optimizer=adam objective=proximal server=fedadam server.lr=0.001",
    "sessions, decay": "optimizer=adamw sessions=alternating sessions.length=1 local.decay=cosine",
    "alarm, keep": "optimizer=nadam local.optimizer_state=keep alarm=page-hinkley"
    " alarm.min_values=1 alarm.threshold=0.0 alarm.slack=0.0",
    "late updates": "optimizer=adamax faults=unreliable faults.late=0.4 server=buffered"
    " server.size=5",
    "ifca, keep": "optimizer=adam local.optimizer_state=keep bank=ifca",
    "fedrc, keep": "optimizer=adam local.optimizer_state=keep bank=fedrc",
    "feddaa, keep in a step": "optimizer=adam local.optimizer_state=keep local.keep_rounds=2"
    " bank=feddaa bank.every=2 memory=fifo",
    "kept in a step, last batch dropped": "local.momentum=0.9 local.optimizer_state=keep"
    " local.keep_rounds=2 local.drop_last=true local.batch_size=6",
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_optimizers_in_combination_with_other_parts(name: str, tmp_path: Path) -> None:
    plan = small_plan(*COMBINATIONS[name].split())
    whole = run_small(plan, out=tmp_path / "whole")
    with pytest.raises(Interruption):
        run_small(plan, out=tmp_path / "cut", watch=interrupt_after(2))
    check_same_bits(whole, run_small(plan, out=tmp_path / "cut", resume=True))
    check_engines_agree(whole, run_small(replace(plan, engine="reference")))


NOT_SMOOTH = {"muon", "rprop"}  # muon needs matrices, rprop uses signs of gradients


@pytest.mark.parametrize("name", sorted(list_torch_optimizers().keys() - NOT_SMOOTH))
def test_both_engines_agree_with_each_class_of_torch_optim(name: str) -> None:
    local = {"optimizer": TorchOptimizer(name), "optimizer_state": "keep"}
    if TorchOptimizer(name).accepts_momentum:
        local["momentum"] = 0.9
    tiny = ["rounds=2", "ticks=1", "world.num_clients=4"]
    plan = small_plan(*tiny, local=local)
    check_engines_agree(run_small(plan), run_small(replace(plan, engine="reference")))


def test_muon_needs_a_net_of_matrices() -> None:
    local = {"optimizer": "muon", "momentum": 0.9}
    with pytest.raises(ConfigError, match=r"muon does not accept .* 2D parameters .* such as adam"):
        run_small(small_plan("rounds=1", local=local))
    matrix = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10, bias=False))
    plan = make_plan("fedavg", "digits-partial", overrides=TINY, local=local, model=matrix)
    fast, slow = run_small(plan), run_small(replace(plan, engine="reference"))
    # torch.optim.Muon orthogonalises updates in bfloat16, which has 8 bits.
    np.testing.assert_allclose(fast.model, slow.model, atol=2**-8)


def test_settings_that_a_class_rejects_are_found_before_the_run(tmp_path: Path) -> None:
    nesterov = TorchOptimizer("sgd", {"nesterov": True})
    plan = small_plan(local={"optimizer": nesterov, "momentum": 0.0})
    with pytest.raises(ConfigError, match=r"Nesterov momentum requires a momentum.*such as adam"):
        run_small(plan, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run_small(small_plan("rounds=1", local={"optimizer": nesterov, "momentum": 0.9}))


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_a_client_has_one_optimizer_state_per_model(engine: str) -> None:
    overrides = ["optimizer=adam", "world.availability=1.0"]

    def losses(rounds: int, *more: str) -> list[float]:
        plan = small_plan(*overrides, *more, f"rounds={rounds}", engine=engine, bank=Alternating())
        return [row["loss"] for row in run_small(plan).metrics]

    # Rounds 0 and 1 train other models, each with a new optimizer. Round 2 returns to model 0.
    reset, kept = losses(3), losses(3, KEEP)
    assert kept[:2] == reset[:2]
    assert kept[2] != reset[2]


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_all_clients_start_a_new_optimizer_after_some_rounds(engine: str) -> None:
    overrides = ["local.momentum=0.9", "world.availability=1.0", "rounds=4"]

    def losses(*more: str) -> list[float]:
        plan = small_plan(*overrides, *more, engine=engine)
        return [row["loss"] for row in run_small(plan).metrics]

    reset, kept, every_round, by_two = (
        losses(*more)
        for more in ([], [KEEP], [KEEP, "local.keep_rounds=1"], [KEEP, "local.keep_rounds=2"])
    )
    assert every_round == reset
    assert by_two[:2] == kept[:2]
    assert kept[1] != reset[1]
    assert by_two[2] != kept[2], "round 2 starts with a new optimizer"


def test_states_belong_to_models_and_not_to_rows_of_the_cohort() -> None:
    """With local buffers each job has its own row in the bank of the fast engine."""
    model = Module("nets.user_modules:batch_norm_resnet", buffers="local")
    settings: dict[str, Any] = {"model": model, "optimizer": "adam"}
    local = {"optimizer_state": "keep", "lr": 0.002}
    plan = make_plan("fedavg", "digits-partial", overrides=TINY, local=local, **settings)
    check_engines_agree(run_small(plan), run_small(replace(plan, engine="reference")))


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_learning_rates_of_rounds_by_hand(engine: str, tmp_path: Path) -> None:
    one_step = ["ticks=1", "rounds=4", "local.passes=none", "local.steps=1", "local.lr=0.5"]
    # Factors 0.5, 0.75, 1, 0.5: a sum of 2.75 instead of 4. Steps have length 0.5.
    decay = Warmup(rounds=2, start=0.5, then=CosineDecay(rounds=2))
    plan, constant = (
        small_plan(*one_step, engine=engine, local={"optimizer": FixedSteps(), "decay": each})
        for each in (decay, None)
    )
    whole = run_small(plan, out=tmp_path / "whole")
    shift = whole.model - run_small(constant).model
    np.testing.assert_allclose(shift, 0.5 * (4 - 2.75), atol=1e-6)
    with pytest.raises(Interruption):
        run_small(plan, out=tmp_path / "cut", watch=interrupt_after(2))
    check_same_bits(whole, run_small(plan, out=tmp_path / "cut", resume=True))


def test_a_learning_rate_of_zero_before_the_end_is_rejected() -> None:
    small_plan("rounds=5", "local.decay=cosine", "local.decay.rounds=5")  # round 4 is the last
    with pytest.raises(ConfigError, match=r"learning rate 0 before the last of 6 rounds"):
        small_plan("rounds=6", "local.decay=cosine", "local.decay.rounds=5")
    small_plan("rounds=6", "local.decay=cosine", "local.decay.rounds=5", "local.decay.floor=0.1")


@pytest.mark.parametrize("state", ["reset", "keep"])
def test_a_user_defined_optimizer_agrees_on_both_engines(state: str, tmp_path: Path) -> None:
    local = {"optimizer": Signs(), "optimizer_state": state}
    plan, slow = (small_plan(engine=engine, local=local) for engine in ("fast", "reference"))
    whole = run_small(plan, out=tmp_path / "whole")
    # A gradient near zero may have another sign on the other engine; a step is 0.002 long.
    assert np.mean(np.abs(whole.model - run_small(slow).model) > 1e-5) < 0.01


@pytest.mark.parametrize("name", mark_slow_except(["adam", "adam kept", "adagrad"], "adam kept"))
def test_the_number_of_workers_changes_no_bit(name: str) -> None:
    plan = small_plan(*OVERRIDES[name])
    check_same_bits(run_small(plan, workers=1), run_small(plan, workers=2))


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a_kept_state_changes_the_second_round_but_not_the_first(optimizer: str) -> None:
    overrides = [f"optimizer={optimizer}", "world.availability=1.0", "local.lr=0.01"]
    reset, kept = (run_small(small_plan(*overrides, *more)) for more in ([], [KEEP]))
    assert reset.metrics[0]["loss"] == kept.metrics[0]["loss"]
    assert reset.metrics[2]["loss"] != kept.metrics[2]["loss"]
    first = [run_small(small_plan(*overrides, *more, "rounds=1")).model for more in ([], [KEEP])]
    assert np.array_equal(*first)


@pytest.mark.parametrize("name", ["adam kept", "nadam kept", "sgd kept"])
def test_clients_keep_their_optimizer_over_bytes(name: str) -> None:
    plan = plan_of("fedavg", [*SMALL, *OVERRIDES[name]])
    ours, theirs = play(plan, bytes_federation(plan)), play(plan, reference(plan))
    assert ours[0].bank.tobytes() == theirs[0].bank.tobytes()


def test_our_adam_and_that_of_torch_agree_in_a_run() -> None:
    ours = run_small(small_plan("optimizer=adam"))
    theirs = run_small(small_plan(local={"optimizer": TorchOptimizer("adam")}))
    check_engines_agree(ours, theirs)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adam"},
        {"optimizer": Adam},
        {"optimizer": Adam()},
        {"optimizer": torch.optim.Adam},
        {"local": {"optimizer": "adam"}},
        {"optimizer": "adam", "local": {"batch_size": 16}},
        {"optimizer": "adam", "local": LocalTraining(lr=0.03, momentum=0.9, passes=2)},
        {"overrides": ["optimizer=adam"]},
        {"overrides": ["local.optimizer=adam"]},
    ],
    ids=repr,
)
def test_a_plan_accepts_an_optimizer(settings: dict[str, Any]) -> None:
    plan = make_plan("fedavg", "digits-partial", **settings)
    assert plan.local.optimizer == Adam()
    assert plan.local.momentum == 0
    assert plan_from_toml(plan_to_toml(plan), "plan") == plan


def test_a_plan_stores_the_options_of_an_optimizer() -> None:
    options = ["local.optimizer.betas=0.8,0.9", "local.optimizer.momentum_decay=0.01"]
    plan = make_plan("fedavg", "digits-partial", overrides=["optimizer=NAdam", *options])
    expected = TorchOptimizer("nadam", {"betas": (0.8, 0.9), "momentum_decay": 0.01})
    assert plan.local.optimizer == expected
    assert plan_from_toml(plan_to_toml(plan), "plan") == plan


def test_two_different_optimizers_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"got both optimizer and local.optimizer"):
        make_plan("fedavg", "digits-partial", optimizer="adam", local={"optimizer": AdamW()})


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("scaffold", [], "objective=Scaffold is incompatible with local.optimizer=adam"),
        ("fedomd", [], "geometry=PNorm is incompatible with local.optimizer=adam"),
        ("feddrift", [KEEP], "local.optimizer_state=keep is incompatible with bank=FedDrift"),
        ("feddaa", [KEEP], "this bank merges, closes or renumbers models.* bank=ifca"),
        ("feddaa", [KEEP], r"Use local\.keep_rounds=40, local\.optimizer_state=reset"),
        ("feddaa", [KEEP, "local.keep_rounds=30"], "a client keeps one state per model"),
        ("feddaa", [KEEP, "local.keep_rounds=5", "bank.every=none"], "Use local.optimizer_state"),
        ("feddrift", [KEEP, "local.keep_rounds=5", "bank.every=5", "bank.reassign=true"], "keeps"),
    ],
)
def test_parts_that_do_not_work_with_an_optimizer_are_rejected(
    recipe: str, overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_plan(recipe, "digits-partial", overrides=["optimizer=adam", *overrides])


@pytest.mark.parametrize("recipe", ["feddaa", "feddrift"])
def test_a_state_may_be_kept_within_the_steps_of_a_bank(recipe: str) -> None:
    kept = [KEEP, "local.keep_rounds=5", "optimizer=adam"]
    plan = make_plan(recipe, "drift-digits", overrides=[*kept, "bank.every=5"])
    assert plan.local.keep_rounds == 5
