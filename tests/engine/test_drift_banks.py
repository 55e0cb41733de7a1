"""Banks in a world whose concepts change: engines agree, runs resume, concepts are found."""

from pathlib import Path

import numpy as np
import pytest

import thalweg
from contracts.runs import Interruption, check_engines_agree, check_same_bits, interrupt_after
from thalweg.core.rng import Draw, rng_for
from thalweg.engine.builders import make_federation, make_model_factory
from thalweg.engine.plan import make_plan
from thalweg.federation import new_server, run_server_round
from thalweg.report.explain import explain_rows

SMALL = ["world.num_clients=12", "world.rounds_per_step=2", "evaluate_every=2", "net=linear"]
BANKS = {
    "fedavg-retrain": [],
    "feddrift": ["bank.initial_models=2", "bank.every=2", "bank.drift_threshold=0.1"],
    "feddrift-eager": ["bank.drift_threshold=0.1"],
    "fedrc": [],
    "feddaa": ["bank.every=2"],
    "oracle": [],
    "fedavg": [
        *("bank=two-mixtures", "bank.every=2", "memory=fifo"),
        *("weights=by-weight", "weights.basis=explained"),
    ],
}


@pytest.mark.parametrize("recipe", BANKS)
def test_the_engines_agree_and_a_resumed_run_has_the_same_bits(recipe, tmp_path: Path):
    def run(**options):
        overrides = [*SMALL, *BANKS[recipe]]
        return thalweg.run(
            recipe, "drift-digits", seed=1, rounds=5, overrides=overrides, workers=1, **options
        )

    whole = run()
    check_engines_agree(whole, run(engine="reference"))
    with pytest.raises(Interruption):
        run(out=tmp_path / "cut", watch=interrupt_after(3))
    check_same_bits(whole, run(out=tmp_path / "cut", resume=True))


def test_a_run_resumed_within_a_time_step_has_the_same_detection_metrics(tmp_path: Path):
    """The concepts at the start of the step are restored: the next step is compared with them."""

    def run(**options):
        overrides = [*SMALL, "world.rounds_per_step=3", "bank.every=3"]
        overrides += ["bank.output=probabilities", "evaluate_every=3"]
        return thalweg.run(
            "feddaa", "drift-digits", seed=1, rounds=7, overrides=overrides, workers=1, **options
        )

    whole = run()
    assert [row["round"] for row in whole.metrics if "drift_recall" in row] == [4, 7]
    with pytest.raises(Interruption):
        run(out=tmp_path / "cut", watch=interrupt_after(5))  # the second of the step's three rounds
    check_same_bits(whole, run(out=tmp_path / "cut", resume=True))


def test_metrics_contain_models_purity_and_concept_accuracies():
    overrides = [*SMALL, "bank.every=2", "bank.output=probabilities"]
    rows = thalweg.run("feddaa", "drift-digits", seed=1, rounds=4, overrides=overrides).metrics
    assert ["clusters_found" in row for row in rows] == [False, False, True, True]
    assert ["drifts_found" in row for row in rows] == [False, False, True, False]
    assert 0 <= rows[2]["drift_recall"] <= 1
    assert rows[2]["models"] == rows[2]["clusters_found"]


def played(recipe, rounds, *overrides):
    """The server after some rounds on digits with two concepts, and who has which."""
    plan = make_plan(
        recipe, "drift-digits", seed=0, overrides=["world.rounds_per_step=40", *overrides]
    )
    data = plan.scenario.data.load(None, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    federation = make_federation(plan, data, net, 1)
    start, num_clients = (
        net.init(rng_for(plan.seed, Draw.NET)),
        federation.client_pool.world.num_clients,
    )
    server = new_server(plan.recipe, start, num_clients, num_classes=data.num_classes)
    for _ in range(rounds):
        draw = make_model_factory(plan, net)
        server, _ = run_server_round(server, federation, plan.recipe, plan.seed, draw)
    mixtures = plan.recipe.bank.mixtures(server.bank_state, len(server.bank))
    return mixtures, federation.client_pool.world.concepts_at(rounds - 1)


def test_fedrc_separates_two_concepts_with_the_same_images_and_labels():
    mixtures, concepts = played("fedrc", 25, "local.lr=0.1", "weights.basis=explained")
    uses = mixtures.argmax(axis=1)
    assert (mixtures.max(axis=1) > 0.9).all()
    assert len(np.unique(uses)) == len(np.unique(concepts)) == 2
    assert (uses == uses[0]).tolist() == (concepts == concepts[0]).tolist()


def test_the_oracle_separates_concepts_from_the_start():
    mixtures, concepts = played("oracle", 1)
    assert mixtures.tolist() == np.eye(2)[concepts].tolist()


TWO_MIXTURES = [
    *("bank=two-mixtures", "weights=by-weight", "weights.basis=explained", "memory=fifo"),
    *("alarm=page-hinkley", "alarm.action=recluster"),
]


@pytest.mark.parametrize("scenario", ["digits-partial", "digits-full"])
@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_two_mixtures_without_drift_give_the_bits_and_the_cost_of_one_model(scenario, engine):
    one, two = (
        thalweg.run(
            *("fedavg", scenario), seed=1, rounds=6, engine=engine, workers=1, overrides=overrides
        )
        for overrides in (["memory=fifo"], TWO_MIXTURES)
    )
    for row, other in zip(one.metrics, two.metrics, strict=True):
        for name in row.keys() - {"seconds", "core_seconds", "bytes_up"}:
            assert row[name] == other[name], name
    more = [b["bytes_up"] - a["bytes_up"] for a, b in zip(one.metrics, two.metrics, strict=True)]
    reports = [8 * row["cohort"] for row in one.metrics]  # weights=by-weight
    surveyed = [rnd for rnd in range(6) if more[rnd] > reports[rnd]]
    assert surveyed == [0, 1, 2, 4], "only the surveys are added"
    assert [more[rnd] for rnd in (3, 5)] == [reports[rnd] for rnd in (3, 5)]


def test_two_mixtures_open_one_model_after_the_drift_of_a_group_and_explain_it():
    rows = thalweg.run(
        "fedavg", "alarms-digits", seed=1, rounds=50, workers=1, overrides=TWO_MIXTURES
    ).metrics
    assert [row.get("models", 1) for row in rows] == [1] * 31 + [2] * 19
    lines = explain_rows(rows)
    assert lines[0].startswith("Round 31: Alarms at clients")
    assert lines[1].startswith(
        "Round 32: The labels of 4 clients contradict those of other clients"
    )
    assert lines[1].endswith("Opened model 1.")
    assert len(lines) == 2
    assert rows[-1]["purity"] == 1.0
    assert rows[-1]["accuracy"] > 0.9, "one model reaches 48 %"
