"""The baselines local-only, fine-tuned and centralised, with numbers that are known in advance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from contracts.runs import Interruption, check_engines_agree, check_same_bits, interrupt_after
from engine.recipe_runs import small_plan
from thalweg.core.errors import ConfigError
from thalweg.data import Dataset, GaussianMixture
from thalweg.engine.builders import check_can_be_served, make_client_pool
from thalweg.engine.loop import Result, run_plan
from thalweg.engine.plan import Plan, make_plan
from thalweg.local import LocalTraining
from thalweg.nets import Linear
from thalweg.recipes import fine_tuned, local_only
from thalweg.scenarios import Scenario
from thalweg.streams import Replay, Unreliable

BASELINES = ["local-only", "fine-tuned", "centralised"]
NUM_SAMPLES = 40


def opposite_data() -> Dataset:
    """Return samples of two clients: x = 1 has label 1 at client 0, and label 0 at client 1."""
    x = np.tile(np.array([1.0, 1.0, -1.0, -1.0], dtype=np.float32), NUM_SAMPLES // 4)[:, None]
    group = np.tile(np.array([0, 1]), NUM_SAMPLES // 2)
    y = np.where(group == 0, x[:, 0] > 0, x[:, 0] < 0).astype(np.int64)
    return Dataset("opposite", x, y, x[:8], y[:8], 2, client=group, client_test=group[:8])


def opposite_plan(recipe: str, engine: str = "fast", **settings: Any) -> Plan:
    """Return a plan with 2 clients, 2 arrivals per tick, 2 ticks, 5 rounds and large steps."""
    scenario = Scenario(
        "opposite",
        data=GaussianMixture(),
        net=Linear(),
        world=Replay(arrivals=2, availability=1.0, at_end="stop"),
        local=LocalTraining(0.5, batch_size=2, steps=3),
        rounds=5,
        ticks=2,
        capacity=8,
        evaluate_every=1,
    )
    return make_plan(recipe, scenario, engine=engine, **settings)


def run_opposite(recipe: str, engine: str = "fast", **settings: Any) -> Result:
    return run_plan(opposite_plan(recipe, engine, **settings), workers=1, data=opposite_data())


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_clients_with_opposite_labels_need_their_own_models(engine: str) -> None:
    alone = run_opposite("local-only", engine).metrics[-1]
    assert alone["client_accuracy"] == alone["prequential_accuracy"] == 1.0
    assert alone["accuracy"] == 0.5, "each model is wrong about all samples of the other client"
    assert (alone["bytes_down"], alone["bytes_up"], alone["models"]) == (0, 0, 2)
    shared = run_opposite("fedavg", engine).metrics[-1]
    assert shared["client_accuracy"] == shared["prequential_accuracy"] == 0.5
    together = run_opposite("centralised", engine).final
    assert together["client_accuracy"] == 0.5
    tuned = run_opposite("fine-tuned", engine).metrics[-1]
    assert tuned["client_accuracy"] == tuned["prequential_accuracy"] == 1.0
    assert tuned["bytes_up"] == shared["bytes_up"] > 0


def test_fine_tuned_has_the_global_model_of_fedavg() -> None:
    plain, tuned = run_opposite("fedavg"), run_opposite("fine-tuned")
    assert np.array_equal(plain.model, tuned.model)
    assert [row["loss"] for row in plain.metrics] == [row["loss"] for row in tuned.metrics]


def test_a_fine_tuned_client_tests_arrivals_with_the_result_of_its_last_round() -> None:
    first, second = run_opposite("fine-tuned").metrics[:2]
    assert first["prequential_accuracy"] == 0.5, "the initial model is the same for both clients"
    assert second["prequential_accuracy"] == 1.0


def test_the_models_of_local_only_are_those_of_runs_with_one_client() -> None:
    both = run_plan(opposite_plan("local-only"), workers=1, data=opposite_data())
    data = opposite_data()
    mine = data.client == 0
    x, y = data.x[mine], data.y[mine]
    one = Dataset("one", x, y, data.x_test, data.y_test, 2, client=np.zeros_like(y))
    alone = run_plan(opposite_plan("fedavg"), workers=1, data=one)
    np.testing.assert_allclose(both.model, alone.model, rtol=1e-6)


def test_the_centralised_learner_takes_the_steps_of_all_clients_and_counts_samples() -> None:
    plan, data = opposite_plan("centralised"), opposite_data()
    pool = make_client_pool(plan, data, 4)
    assert pool.roster(0).present.tolist() == [0]
    assert pool.clients.local_in(0).steps == 2 * 3
    assert pool.clients.stream.capacity(0) == 2 * 8
    by_passes = opposite_plan("centralised", local=LocalTraining(0.5, passes=2.0))
    assert make_client_pool(by_passes, data, 4).clients.local_in(0).passes == 2.0
    row = run_plan(plan, workers=1, data=data).metrics[0]
    assert row["cohort"] == 1
    assert row["bytes_down"] == 0
    assert row["bytes_up"] == 2 * 2 * 2 * (1 + 1) * 4, "clients, ticks, arrivals; x and y, 4 bytes"


def test_all_arrivals_of_all_clients_are_tested_before_the_learner_trains() -> None:
    plan, data = opposite_plan("centralised", prequential=1), opposite_data()
    row = run_plan(plan, workers=1, data=data).final
    assert row["prequential_accuracy"] == 0.5, "one sample of each client per tick"


@pytest.mark.parametrize("recipe", BASELINES)
@pytest.mark.parametrize(
    "sessions", [[], ["sessions=alternating", "sessions.length=1"]], ids=["all", "sessions"]
)
@pytest.mark.parametrize("absent", ["frozen", "collecting"])
def test_baselines_resume_and_agree_on_both_engines_in_a_world_with_absent_clients(
    recipe: str, sessions: list[str], absent: str, tmp_path: Path
) -> None:
    def plan(engine: Literal["fast", "reference"]) -> Plan:
        settings = [f"world.absent={absent}", *sessions]
        return replace(small_plan(recipe, *settings, rounds=4), engine=engine)

    data = plan("fast").scenario.data.load(None, plan("fast").seed)
    whole = run_plan(plan("fast"), workers=1, data=data)
    with pytest.raises(Interruption):
        run_plan(plan("fast"), workers=1, data=data, out=tmp_path, watch=interrupt_after(2))
    check_same_bits(whole, run_plan(plan("fast"), workers=1, data=data, out=tmp_path, resume=True))
    check_engines_agree(whole, run_plan(plan("reference"), workers=1, data=data))


@pytest.mark.parametrize("recipe", ["local-only", "centralised"])
def test_faults_have_no_effect_without_messages(recipe: str) -> None:
    plain, faulty = run_opposite(recipe), run_opposite(recipe, faults=Unreliable(lost=0.8))
    assert np.array_equal(plain.model, faulty.model)


@pytest.mark.parametrize(
    "settings",
    [
        {"selection": "uniform"},
        {"weights": "by-samples"},
        {"staleness": "polynomial"},
        {"robust": "median"},
        {"server": "fedexp"},
        {"session_start": "average"},
        {"privacy": {"kind": "gaussian"}},
        {"sample_weights": "early"},
        {"objective": "scaffold"},
        {"memory": "ode"},
    ],
    ids=str,
)
@pytest.mark.parametrize("recipe", ["local-only", "centralised"])
def test_parts_of_the_server_are_rejected(recipe: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"bank=(OnePerClient|Centralised|one-model)"):
        run_opposite(recipe, **settings)


def test_the_centralised_learner_rejects_alarms_and_objectives_of_single_clients() -> None:
    with pytest.raises(ConfigError, match=r"watches single clients, but with bank=Centralised"):
        run_opposite("centralised", alarm="page-hinkley")
    with pytest.raises(ConfigError, match=r"objective=Elastic uses the latent state of a client"):
        run_opposite("centralised", objective="elastic")


def test_a_bank_that_is_not_shared_rejects_alarms_that_recluster() -> None:
    with pytest.raises(ConfigError, match="with bank=OnePerClient models are not shared"):
        run_opposite("local-only", overrides=["alarm=page-hinkley", "alarm.action=recluster"])


def test_baselines_are_not_served_on_a_network() -> None:
    with pytest.raises(ConfigError, match=r"has no updates to send over a network. Simulate it"):
        check_can_be_served(local_only())
    with pytest.raises(ConfigError, match="evaluates the models that clients keep"):
        check_can_be_served(fine_tuned())


def test_each_stage_of_a_client_combines_with_the_baselines() -> None:
    for recipe in BASELINES:
        for settings in ({"memory": "reservoir"}, {"objective": "proximal"}, {"memory": "dds"}):
            assert run_opposite(recipe, rounds=2, **settings).final["round"] == 2
