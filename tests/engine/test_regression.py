"""Regression: runs with numbers as targets, in both engines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import thalweg
from thalweg.core.errors import ConfigError
from thalweg.core.types import Ints, MemoryContext
from thalweg.data import Arrays
from thalweg.engine.plan import make_plan, plan_from_toml, plan_to_toml
from thalweg.local import LocalTraining
from thalweg.memory import Balanced
from thalweg.nets import Mlp
from thalweg.recipes import get_recipe
from thalweg.scenarios import Scenario
from thalweg.selection import BalancedCohort
from thalweg.streams import Replay

N = 240


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x, group = rng.normal(size=(N, 3)), np.arange(N) % 3
    y = x @ [1.0, -2.0, 0.5] + group
    folder = tmp_path_factory.mktemp("regression")
    np.savez(folder / "one.npz", x=x, y=y, client=group, time=np.arange(N))
    np.savez(folder / "two.npz", x=x, y=np.column_stack([y, -y]), client=group)
    np.savez(folder / "classes.npz", x=x, y=(y > 0).astype(int), client=group)
    return folder / "one.npz"


def scenario(file: Path, **changes: Any) -> Scenario:
    parts: dict[str, Any] = {
        "data": Arrays(str(file)),
        "net": Mlp(hidden=(4,)),
        "world": Replay(arrivals=16, availability=1.0, at_end="restart"),
        "rounds": 2,
        "ticks": 2,
        "capacity": 32,
        "evaluate_every": 1,
    }
    return Scenario("toy", LocalTraining(lr=0.05, steps=3, batch_size=8), **(parts | changes))


def absolute(outputs: Any, targets: Any) -> Any:
    return (outputs - targets).abs()


@dataclass(frozen=True)
class Newest:
    """Keep the newest samples; reads no labels, but does not say so."""

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(self, state: None, context: MemoryContext, rng: Any) -> tuple[None, Ints]:
        both = np.arange(context.held + context.num_new)
        return None, both[-context.capacity :]


@dataclass(frozen=True)
class DeclaredNewest(Newest):
    needs_class_labels: ClassVar[bool] = False


REGRESSION_RECIPES = [
    *("fedavg", "fedewc", "moon", "feddrift", "is", "powd"),
    *("local-only", "fine-tuned", "centralised", "auto"),
]


@pytest.mark.parametrize("recipe", REGRESSION_RECIPES)
def test_engines_agree_on_a_regression(file: Path, recipe: str) -> None:
    fast, reference = (
        thalweg.run(recipe, scenario(file), engine=engine, seed=1, workers=1)
        for engine in ("fast", "reference")
    )
    np.testing.assert_allclose(fast.model, reference.model, atol=1e-4)
    for ours, theirs in zip(fast.metrics, reference.metrics, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ("mae", "rmse", "r2", "test_loss", "client_mae", "prequential_mae"):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-4)
    assert "accuracy" not in fast.final


def test_engines_agree_on_a_memory_with_quotas_per_quantile_bin(file: Path) -> None:
    runs = [
        thalweg.run(
            "fedavg", scenario(file), memory=Balanced(bins=bins), engine=engine, seed=1, workers=1
        )
        for bins, engine in ((3, "fast"), (3, "reference"), (1, "fast"))
    ]
    np.testing.assert_allclose(runs[0].model, runs[1].model, atol=1e-4)
    assert np.abs(runs[0].model - runs[2].model).max() > 1e-3, "the bins change the memory"


@pytest.mark.parametrize("loss", ["mae", "huber", {"kind": "quantile", "q": 0.9}, absolute])
def test_engines_agree_on_other_losses(file: Path, loss: Any) -> None:
    fast, reference = (
        thalweg.run("fedavg", scenario(file.with_name("two.npz"), loss=loss), engine=engine)
        for engine in ("fast", "reference")
    )
    np.testing.assert_allclose(fast.model, reference.model, atol=1e-4)
    assert fast.net.shapes[-1] == (2,)


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_two_classes_can_be_learnt_with_one_logit(file: Path, engine: str) -> None:
    result = thalweg.run(
        "fedavg",
        scenario(file.with_name("classes.npz")),
        engine=engine,
        loss="binary_cross_entropy",
    )
    assert result.net.shapes[-1] == (1,)
    assert 0.5 < result.final["accuracy"] <= 1.0


def test_regression_learns_and_reports_its_errors(file: Path) -> None:
    result = thalweg.run("fedavg", scenario(file), rounds=12)
    first, last = result.metrics[0], result.final
    assert last["mae"] < first["mae"]
    assert last["mae"] <= last["rmse"]
    assert last["client_mae"] <= last["worst_client_mae"]
    assert last["r2"] > 0.5
    assert last["prequential_mae"] < first["prequential_mae"]


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"memory": "drsr"}, "memory=Drsr needs class labels.*memory=reservoir"),
        ({"memory": "ode"}, "memory=Ode needs class labels"),
        ({"selection": "dpcs"}, "selection=Dpcs needs class labels"),
        ({"objective": "not-true"}, "objective=NotTrue needs class labels.*objective=loss"),
        ({"bank": "fedrc"}, "bank=FedRc needs class labels.*bank=feddrift"),
        ({"alarm": "ddm"}, "alarm=Ddm needs class labels.*alarm=page-hinkley or window-test"),
        ({"memory": Newest}, "memory=Newest receives class labels and does not declare"),
        ({"world": "latent-states"}, "world=LatentStates needs class labels.*world=replay"),
        ({"world": "inflow"}, "world=Inflow needs class labels.*partition=even"),
        ({"drift": "sudden"}, "a view with other labels needs classes"),
        ({"loss": "cross_entropy"}, "loss=CrossEntropy is for classification"),
    ],
)
def test_components_that_need_class_labels_are_rejected(
    file: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        thalweg.run("fedavg", scenario(file), **settings)


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_a_balanced_cohort_is_chosen_by_losses(file: Path, engine: str) -> None:
    rule = BalancedCohort(participation=0.7, patience=100.0, loss_weight=100.0)
    plan = scenario(file, rounds=6)
    result = thalweg.run("fedavg", plan, engine=engine, selection=rule, workers=1)
    assert [row["cohort"] for row in result.metrics] == [2] * 6
    assert "cohort_mix" not in result.final
    up = 2 * (4 * result.model.size)  # two updates; surveys without values
    assert all(row["bytes_up"] == up for row in result.metrics)


def test_a_balanced_cohort_without_labels_and_losses_is_rejected(file: Path) -> None:
    settings = {"selection": {"kind": "balanced-cohort", "loss_weight": 0.0}}
    with pytest.raises(ConfigError, match=r"no classes.*Set selection\.loss_weight to more than 0"):
        thalweg.run("fedavg", scenario(file), **settings)


def test_fields_for_regressions_are_rejected_with_classes(file: Path) -> None:
    classes = scenario(file.with_name("classes.npz"))
    with pytest.raises(ConfigError, match=r"memory\.bins has an effect in a regression only.*3"):
        thalweg.run("fedavg", classes, overrides=["memory=balanced", "memory.bins=3"])


def test_auto_uses_parts_for_numbers_and_those_that_the_user_has_chosen(file: Path) -> None:
    plan = make_plan("auto", scenario(file))
    assert (type(plan.recipe.bank).__name__, type(plan.recipe.alarm).__name__) == (
        "OneModel",
        "WindowTest",
    )
    assert plan_from_toml(plan_to_toml(plan), "plan.toml") == plan
    plan = make_plan("auto", scenario(file), overrides=["bank=feddrift", "alarm=none"])
    assert (type(plan.recipe.bank).__name__, plan.recipe.alarm) == ("FedDrift", None)
    with pytest.raises(ConfigError, match="bank=TwoMixtures needs class labels"):
        thalweg.run("auto", scenario(file), overrides=["bank.max_models=3"])
    classes = make_plan("auto", scenario(file.with_name("classes.npz")))
    assert classes.recipe == get_recipe("auto")


def test_auto_drops_numbers_from_before_a_change() -> None:
    """After the middle the targets are the opposite: alarms follow, and errors fall sooner."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 2))
    y = np.where(np.arange(1200) < 600, 1, -1) * x[:, 0]
    data = thalweg.Dataset.from_arrays(x, y, client=np.arange(1200) % 3, time=np.arange(1200.0))
    rows, without = (
        [row for row in thalweg.run("auto", data, **change).metrics if row.get("tested")]
        for change in ({}, {"alarm": None})
    )
    first_alarm = next(n for n, row in enumerate(rows) if row.get("alarms"))
    assert [row["prequential_mae"] for row in rows[:first_alarm]] == [
        row["prequential_mae"] for row in without[:first_alarm]
    ]
    errors, others = (
        np.mean([row["prequential_mae"] for row in each[first_alarm + 1 :]])
        for each in (rows, without)
    )
    assert errors < 0.8 * others, (errors, others)


def test_a_user_component_that_declares_to_need_no_labels_is_accepted(file: Path) -> None:
    result = thalweg.run("fedavg", scenario(file), memory=DeclaredNewest)
    assert result.final["mae"] > 0


@pytest.mark.parametrize("name", ["DDM", "EDDM", "HDDMA"])
def test_detectors_of_river_for_wrong_predictions_are_rejected(file: Path, name: str) -> None:
    pytest.importorskip("river")
    with pytest.raises(ConfigError, match=r"alarm=RiverAlarm needs class labels.*page-hinkley"):
        thalweg.run("fedavg", scenario(file), alarm={"kind": "river", "name": name})


def test_sfedpo_is_rejected_with_an_alternative(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"memory=Dds needs class labels.*reservoir"):
        thalweg.run("sfedpo", scenario(file))


def test_alarms_watch_the_absolute_error(file: Path) -> None:
    result = thalweg.run(
        "fedavg", scenario(file), rounds=6, alarm={"kind": "page-hinkley", "threshold": 0.001}
    )
    assert result.alarms is not None


def test_plan_records_a_loss_function_by_its_path(file: Path) -> None:
    mine = file.with_name("mine.py")
    mine.write_text("def half(outputs, targets):\n    return (outputs - targets).abs() / 2\n")
    plan = thalweg.run("fedavg", scenario(file), overrides=[f"loss={mine}:half"], rounds=1).plan
    text = plan_to_toml(plan)
    assert f'path = "{mine}:half"' in text
    assert plan_from_toml(text, "plan.toml") == plan


def test_unusable_loss_stops_the_run_before_the_first_round(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a tensor with one loss per sample"):
        thalweg.run(
            "fedavg", scenario(file), loss=lambda o, t: (o - t).abs().mean(), out=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_session_metrics_of_a_regression_are_errors_of_the_members(file: Path) -> None:
    result = thalweg.run(
        "fedavg",
        scenario(file),
        rounds=4,
        sessions={"kind": "alternating", "length": 2},
    )
    rows = result.metrics
    assert [row["session"] for row in rows] == [0, 0, 1, 1]
    for row in rows:
        assert 0 < row["session_mae"] <= row["worst_client_mae"]
        assert "session_accuracy" not in row
    assert "stayers_mae" not in rows[0]
