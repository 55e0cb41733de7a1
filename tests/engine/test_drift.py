"""Views of drifting clients: same results on both engines, in workers, resumed, and by bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import thalweg
from contracts.runs import Interruption, check_engines_agree, check_same_bits, interrupt_after
from engine.bytes_federation import BytesFederation, load
from thalweg.core.errors import ConfigError, DataError, RunError
from thalweg.core.types import Floats32, Ints
from thalweg.core.views import View
from thalweg.data.base import Targets
from thalweg.engine.builders import apply_views, make_client_pool, make_federation
from thalweg.engine.loop import Result, run_plan
from thalweg.engine.plan import Plan, make_plan, plan_from_toml, plan_to_toml
from thalweg.engine.simulated import SimulatedFederation
from thalweg.federation import new_server, run_server_round
from thalweg.streams import HasViews, RecurringDrift, Sudden

STEPS = [
    *("world.rounds_per_step=2", "world.num_clients=4", "world.concepts=[[0, 1], [1, 2]]"),
    *("world.rotations=[0, 120]", "net.hidden=[8]", "local.batch_size=60"),
    *("memory=fifo", "selection=uniform", "selection.fraction=0.5"),
]
SMALL = ["capacity=12", "ticks=2", "world.num_clients=5", "net.hidden=[6]", "local.passes=1"]
TURNS = [
    *("drift=gradual", "drift.start=0", "drift.until=3", "drift.to.labels=1"),
    *("drift.to.transform=rotated", "drift.to.transform.degrees=120"),
]
CASES = {
    "steps": ("drift-digits", STEPS),
    "a frozen world": ("digits-partial", [*SMALL, *TURNS]),
    "a collecting world": ("digits-partial", [*SMALL, *TURNS, "world.absent=collecting"]),
    "images that are changed": ("digits-partial", [*SMALL, *TURNS, "augment=standard"]),
    "a convolutional net": (
        "digits-partial",
        [*SMALL[:3], "net=cnn", "net.channels=[4, 4, 4]", "net.hidden=8", *TURNS],
    ),
    "features": (
        "gaussian-mixture",
        ["drift=staggered", "drift.at=1", "drift.to.transform=swapped", "drift.to.labels=2"],
    ),
}


def plan_of(case: str, recipe: str = "fedavg", engine: str = "fast") -> Plan:
    scenario, overrides = CASES[case]
    return make_plan(recipe, scenario, seed=3, rounds=5, engine=engine, overrides=overrides)


def play(plan: Plan, out: Path | None = None, **more: object) -> Result:
    data = load(plan.scenario.data, plan.seed)
    return run_plan(plan, out=out, data=data, workers=more.pop("workers", 1), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES)
def test_drifting_data_give_the_same_results_on_both_engines_and_resumed(
    case: str, tmp_path: Path
) -> None:
    plan = plan_of(case)
    whole = play(plan, tmp_path / "whole")
    check_engines_agree(whole, play(plan_of(case, engine="reference")))
    with pytest.raises(Interruption):
        play(plan, tmp_path / "cut", watch=interrupt_after(3))
    check_same_bits(whole, play(plan, tmp_path / "cut", resume=True))


@pytest.mark.parametrize("recipe", ["is", "ode", "feddrift", "fedcurv"])
def test_model_probes_use_the_views_of_the_clients(recipe: str) -> None:
    more = ["objective.fisher_samples=5"] if recipe == "fedcurv" else []
    fast, slow = (
        thalweg.run(
            recipe,
            "digits-partial",
            seed=1,
            rounds=3,
            engine=engine,
            overrides=[*SMALL, *TURNS, *more],
        )
        for engine in ("fast", "reference")
    )
    check_engines_agree(fast, slow)


def test_the_number_of_workers_changes_no_bit() -> None:
    plan = plan_of("a convolutional net")
    assert np.array_equal(play(plan).model, play(plan, workers=2).model)


def test_a_drift_after_the_last_round_changes_no_bit() -> None:
    late = ["drift=sudden", "drift.at=1000"]
    same = ["drift=recurring", "drift.period=1", "drift.views=[{}]"]
    plain, *others = (
        thalweg.run("fedavg", "digits-partial", seed=3, rounds=3, overrides=[*SMALL, *more])
        for more in ([], late, same)
    )
    for other in others:
        check_same_bits(plain, other)


def test_a_drift_changes_the_model_from_its_round_on() -> None:
    words = [*SMALL, "world.availability=1.0"]  # so that all clients have taken part in all rounds
    before, after = (
        [
            row["loss"]
            for row in thalweg.run(
                "fedavg", "digits-partial", seed=3, rounds=4, overrides=[*words, *more]
            ).metrics
        ]
        for more in ([], ["drift=sudden", "drift.at=2"])
    )
    assert before[:2] == after[:2]
    assert before[2] != after[2]


def test_drifting_data_give_the_same_bits_by_bytes() -> None:
    plan = plan_of("a frozen world", engine="reference")
    data = load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    start = np.zeros(net.num_params, dtype=np.float32)
    here, there = make_federation(plan, data, net, 1), BytesFederation(plan, data)
    servers = [new_server(plan.recipe, start, 5) for _ in range(2)]
    for _ in range(3):
        servers[0], _ = run_server_round(servers[0], here, plan.recipe, plan.seed)
        servers[1], _ = run_server_round(servers[1], there, plan.recipe, plan.seed)
    assert np.array_equal(servers[0].bank, servers[1].bank)


def predict_one(
    federation: SimulatedFederation, model: Floats32, rows: Ints | None
) -> tuple[Targets, Floats32]:
    predicted, losses = federation.predict_many(model[None], "test", rows)
    return predicted[0], losses[0]


def test_any_row_of_the_test_part_can_be_predicted() -> None:
    """A model's guess is of the input; whether it is right is of the label that the view gives."""
    for engine in ("fast", "reference"):
        plan = plan_of("steps", engine=engine)
        data = load(plan.scenario.data, plan.seed)
        net = plan.scenario.net.build(data.input_shape, data.num_classes)
        client_pool = make_client_pool(plan, data, net.num_params)
        seen = apply_views(data, client_pool.world)
        assert apply_views(seen, client_pool.world) is seen
        federation = make_federation(plan, data, net, 1, client_pool)
        model = net.init(np.random.default_rng(0))
        n = seen.num_samples("test")
        plain, losses = predict_one(federation, model, None)
        assert len(plain) == n
        names = [view.labels for view in seen.views if view.transform == View().transform]
        assert len(names) == 3, "as they are, and two other concepts"
        other, other_losses = predict_one(federation, model, n + np.arange(n))
        assert np.array_equal(plain, other)
        assert not np.allclose(losses, other_losses)
        turned, _ = predict_one(federation, model, seen.num_rows("test") - n + np.arange(n))
        assert not np.array_equal(plain, turned)
        federation.close()


def test_client_labels_are_those_of_their_views() -> None:
    plan = plan_of("steps")
    data = load(plan.scenario.data, plan.seed)
    client_pool = make_client_pool(plan, data, 10)
    assert isinstance(client_pool.world, HasViews)
    for client in range(4):
        items = client_pool.world.emit(None, client, 0)[1][0].items
        view = client_pool.world.views[client_pool.world.views_at(0)[client]]
        n = len(data.y)
        assert np.array_equal(
            client_pool.clients.labels[items], view.label_map(10)[data.y[items % n]]
        )


def test_drift_is_chosen_by_name_and_written_to_toml() -> None:
    words = ["drift=recurring", "drift.period=4", "drift.views=[{}, {labels = 3}]"]
    plan = make_plan("fedavg", "digits-full", overrides=words)
    assert plan.scenario.drift == RecurringDrift(4, (View(), View(labels=3)))
    assert plan_from_toml(plan_to_toml(plan), "") == plan
    assert make_plan("fedavg", "digits-full", overrides=["drift=sudden"]).scenario.drift == Sudden()
    old = plan_to_toml(make_plan("fedavg", "digits-full")).replace('drift = "none"\n', "")
    assert "drift" not in old
    assert plan_from_toml(old, "old").scenario.drift is None


def test_a_run_is_not_resumed_with_another_table_of_drifts(tmp_path: Path) -> None:
    file = tmp_path / "drift.csv"
    file.write_text("client,from_round,concept,rotation\n*,1,1,0\n2,3,0,90\n")
    words = [*SMALL, "drift=table", f"drift.path={file}"]
    plan = make_plan("fedavg", "digits-partial", seed=3, rounds=4, overrides=words)
    whole = play(plan, tmp_path / "whole")
    with pytest.raises(Interruption):
        play(plan, tmp_path / "cut", watch=interrupt_after(2))
    text = file.read_text()
    for other in (text.replace("2,3,0,90", "1,3,0,90"), text.replace("90", "91")):
        file.write_text(other)
        with pytest.raises(RunError, match=r"contents of .*drift\.csv \(drift\) have changed"):
            play(plan, tmp_path / "cut", resume=True)
    file.write_text(text)
    check_same_bits(whole, play(plan, tmp_path / "cut", resume=True))


@pytest.mark.parametrize(
    ("scenario", "words", "error", "message"),
    [
        ("gaussian-mixture", ["drift=incremental"], ConfigError, "Rotated changes images"),
        (
            "digits-full",
            ["drift=sudden", "drift.to.transform=scaled"],
            ConfigError,
            "changes features",
        ),
        ("digits-full", ["drift=sudden", "drift.to.labels=[1, 0]"], ConfigError, "fit 10 classes"),
        ("digits-full", ["drift=sudden", "drift.to.labels=11"], ConfigError, "concepts 0 to 10"),
        ("digits-full", ["drift=table"], ConfigError, "needs a file"),
        ("digits-full", ["drift=table", "drift.path=nowhere.csv"], DataError, "cannot read"),
        ("drift-digits", ["drift=sudden"], ConfigError, "has views of its own"),
        ("digits-rotated", ["drift=sudden"], ConfigError, "has views of its own"),
        ("drift-digits", ["world.num_clients=2000"], ConfigError, "cannot be cut into 2000 shards"),
        (
            "drift-digits",
            ["world.concepts=[[0, 12]]", "world.rotations=[0]"],
            ConfigError,
            "got 12",
        ),
    ],
)
def test_an_impossible_drift_is_rejected_before_a_folder_is_created(
    scenario: str, words: list[str], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        thalweg.run("fedavg", scenario, rounds=30, overrides=words, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
