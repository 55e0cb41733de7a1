"""Combinations of all policies on small worlds: they run, resume, and agree on both engines.

Stages and policies are read from the package, so that new policies are covered. Any two choices of
two factors occur together in some row. Settings of policies are in `TUNED` and `VARIANTS`.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from contracts.runs import Interruption, check_engines_agree, check_same_bits, interrupt_after
from covering import covering_array
from thalweg.data import Augment, Dataset, DataSource, Digits, GaussianMixture, SyntheticLogistic
from thalweg.engine.loop import Result, run_plan
from thalweg.engine.plan import Plan, make_plan
from thalweg.local import LocalTraining
from thalweg.nets import HamCnn, Linear, Mlp
from thalweg.recipes import Recipe, fedavg
from thalweg.scenarios import Scenario
from thalweg.streams import WORLDS, Groups, Inflow, LatentStates, Live, Replay, Steps

SGD = LocalTraining(lr=0.05, batch_size=6, passes=1)
SCENARIOS = {
    "latent": Scenario(
        name="latent",
        data=Digits(),
        net=Mlp(hidden=(6,)),
        world=LatentStates(
            num_clients=6,
            clusters=(0.1, 10.0),
            states_per_cluster=3,
            reachable=3,
            availability=0.9,
            arrivals=5,  # seldom the same sample twice: rounding would choose between copies
        ),
        local=SGD,
    ),
    "inflow": Scenario(  # six of eleven have their samples from the start
        name="inflow",
        data=SyntheticLogistic(num_samples=220, num_test=44, num_features=5),
        net=Linear(),
        world=Inflow(
            partition=Groups(),
            historical=6 / 11,
            historical_data=0.5,
            capacity_of="own",
            availability=0.9,
        ),
        local=SGD,
    ),
    "replay": Scenario(  # rows are used up in the second round
        name="replay",
        data=GaussianMixture(num_samples=110, num_test=40),
        net=Linear(),
        world=Replay(num_clients=6, arrivals=5, availability=0.9, at_end="stop"),
        local=SGD,
    ),
    "images": Scenario(  # by a convolutional net with dropout, on images that are changed
        name="images",
        data=Digits(),
        net=HamCnn(channels=(2, 2, 2), hidden=4),
        world=Inflow(num_clients=4, historical=0.5, samples=80, availability=0.9),
        augment=Augment(padding=1),
        local=SGD,
    ),
    "steps": Scenario(  # in the second of three rounds there is nothing new
        name="steps",
        data=GaussianMixture(num_samples=110, num_test=40),
        net=Linear(),
        world=Steps(num_clients=6, rounds_per_step=2, concepts=((0, 1), (1, 2)), rotations=(0.0,)),
        local=SGD,
    ),
}
TINY = ["capacity=12", "ticks=2", "evaluate_every=1"]

# With their defaults these have no effect in three rounds with five clients.
TUNED = {
    "session_start=warm-start": "session_start.pilot_sessions=0",
    "session_start=judged": "session_start.pilot_sessions=0 session_start.agreement=0.9",
    "session_trigger=presence": "session_trigger.tolerance=0.0 session_trigger.risk=0.4",
    "bank=feddrift": "bank.drift_threshold=0.0 bank.merge_threshold=0.001",
    "bank=feddaa": "bank.every=2 bank.missing=impute",
    "bank=two-mixtures": (
        "bank.every=2 bank.max_conflict=0.0 bank.sufficient_loss=0.0 bank.significance=1.0"
    ),
    "selection=uniform": "selection.fraction=0.6",
    "selection=dpcs": "selection.participation=0.6",
    "selection=power-of-choice": "selection.participation=0.6",
    "selection=balanced-cohort": "selection.participation=0.6",
    "objective=elastic": "objective.strength=1.0 objective.fisher_samples=4",
    "objective=curvature": "objective.fisher_samples=4",
    "geometry=p-norm": "geometry.p=1.7",
    "server=flash": "server.lr=0.001",
    "server=fedavgm": "server.lr=0.1",
    "server=fedadam": "server.lr=0.001",
    "server=buffered": "server.size=5",
    "server=averaged": "server.rule=fedexp server.models=after server.power=3",
    "stopping=gain-threshold": "stopping.gain=0.2",
    "alarm=page-hinkley": "alarm.min_values=1 alarm.threshold=0.0 alarm.slack=0.0"
    " alarm.action=drop-outdated alarm.action.margin=0",
    "alarm=ddm": "alarm.min_values=1 alarm.level=0.5 alarm.action=scale-lr",
    "alarm=window-test": "alarm.reference=2 alarm.recent=2 alarm.action=shrink",
    "alarm=excess-errors": "alarm.threshold=0.5 alarm.slack=0.0 alarm.recovery=0.1"
    " alarm.action=shrink",
    "alarm=river": "alarm.name=DummyDriftDetector alarm.settings=t_0=1 alarm.action=shrink",
}
TRIGGER = "session_trigger=presence"
# Policies with several modes.
VARIANTS = {
    "memory": ["memory=drsr memory.mode=match"],
    "sample_weights": ["sample_weights=old-and-new sample_weights.ratio=0.5"],
    "selection": [
        "selection=dpcs selection.participation=0.6 selection.counter=window"
        " selection.counter.size=9 selection.privacy.epsilon=1.0 selection.goal=pooled_counts",
        "selection=power-of-choice selection.participation=0.6 selection.form=rpow-d",
        "selection=balanced-cohort selection.participation=0.4 selection.patience=1.0"
        " selection.counter=window selection.counter.size=9 selection.privacy.epsilon=1.0",
    ],
    "objective": ["objective=scaffold objective.variant=as_released"],
    "alarm": [
        "alarm=river alarm.name=DummyDriftDetector alarm.settings=t_0=1 alarm.watch=loss"
        " alarm.action=combined alarm.action.keep=0.5 alarm.action.factor=0.5",
    ],
    "weights": ["weights=shift-aware weights.normalise=all weights.mismatch=kme"],
}

NOT_FEDERATED = ("bank=one-per-client", "bank=centralised")
# Policies whose clients send vectors beside their updates.
UPLOADING = {
    "memory=ode",
    "objective=scaffold",
    "objective=curvature",
    "bank=fedrc",
    "bank=feddaa",
    "bank=two-mixtures",
    "bank=oracle",
}


def choices(stage: str, kinds: list[str]) -> list[str]:
    """Return the overrides of all policies of a stage."""
    plain = [f"{stage}={kind}" for kind in kinds]
    return [f"{each} {TUNED.get(each, '')}".strip() for each in plain] + VARIANTS.get(stage, [])


STAGES = {
    field.name: [*(["none"] if field.default is None else []), *field.metadata["table"]]
    for field in fields(Recipe)
    if "table" in field.metadata
}
EACH = {stage: choices(stage, kinds) for stage, kinds in STAGES.items()}
# Banks without updates reject the parts of a server; test_local_models.py tests them.
EACH["bank"] = [each for each in EACH["bank"] if each not in NOT_FEDERATED]
# These have the same code as FedAdam up to one line; test_every_recipe.py runs them.
EACH["server"] = [
    each for each in EACH["server"] if each not in ("server=fedyogi", "server=fedadagrad")
]
# Session starts need a bank of one model: the two stages are one factor.
EACH["bank"] += [each for each in EACH.pop("session_start") if each != "session_start=previous"]
# Secure aggregation is compatible with few policies; test_secure_sum.py tests them.
del EACH["secure_aggregation"]
# An alarm on errors needs predictions: the two settings are one factor.
EACH["alarm"] = [f"{each} prequential=3" for each in EACH["alarm"]] + ["alarm=none prequential=0"]
FACTORS = {
    **EACH,
    "scenario": list(SCENARIOS),
    "sessions": [
        "sessions=none",
        "sessions=alternating sessions.length=1",
        "sessions=random-churn sessions.join=0.6 sessions.leave=0.3 sessions.tolerance=0.2",
    ],
    "absent": ["world.absent=frozen", "world.absent=collecting"],
    "drift": ["drift=none", "drift=gradual drift.start=0 drift.until=3 drift.share=0.6"],
    "faults": [
        "faults=none",
        "faults=unreliable faults.lost=0.2 faults.late=0.4 faults.delay=1.0",
        "faults=hostile faults.share=0.4",
    ],
    "local": [
        "local.momentum=0.9",
        "local.passes=none local.steps=2 local.decay=polynomial local.decay.rounds=2",
    ],
}
ROWS = covering_array(FACTORS)
NUM_QUICK = 36  # rows in `make test`


def choose_rows(rows: list[dict[str, str]], number: int) -> list[int]:
    """Choose rows one by one, each with the most pairs that no chosen row contains."""
    left = {index: set(combinations(row.items(), 2)) for index, row in enumerate(rows)}
    chosen: list[int] = []
    while len(chosen) < number:
        best = max(left, key=lambda index: len(left[index]))
        covered = left.pop(best)
        for pairs in left.values():
            pairs -= covered
        chosen.append(best)
    return chosen


QUICK = choose_rows(ROWS, NUM_QUICK)


def named(row: dict[str, str]) -> str:
    return "-".join(value.split()[0].partition("=")[2] or value for value in row.values())


def plan_of(row: dict[str, str], engine: str = "fast") -> Plan:
    # The world `steps` has its own drift and treats absent clients alike.
    left_out = {"scenario", "absent", "drift"} if row["scenario"] == "steps" else {"scenario"}
    if row["objective"].startswith("objective=scaffold") and not has_one_model(row):
        left_out.add("objective")  # SCAFFOLD has one mean gradient
    if row["bank"].startswith("session_start=") and row["sessions"] == "sessions=none":
        # Session starts need sessions.
        row = {**row, "session_trigger": f"session_trigger=presence {TUNED[TRIGGER]}"}
    if any(row[stage].split()[0] in UPLOADING for stage in ("memory", "objective", "bank")):
        left_out.add("privacy")  # uploads would not be private
    if row["weights"] == "weights=label-balanced":
        left_out.add("privacy")  # reports of labels would not be private
    if row["server"].startswith("server=buffered") and row["robust"] != "robust=norm-clip":
        left_out.add("robust")  # most robust rules merge the updates that the server rule counts
    if "prequential=0" in row["alarm"] or row["bank"] == "bank=fine-tuned":
        left_out.add("serving")  # it needs predictions, and a bank without personal models
    if not isinstance(SCENARIOS[row["scenario"]].world, LatentStates) and row["forecast"].split()[
        0
    ] in ("forecast=exact", "forecast=noisy", "forecast=bayesian"):
        left_out.add("forecast")  # these need known latent states
    overrides = [
        word for name, value in row.items() if name not in left_out for word in value.split()
    ]
    return make_plan(
        fedavg(),
        SCENARIOS[row["scenario"]],
        seed=2,
        rounds=3,
        engine=engine,
        overrides=[*TINY, *overrides],
    )


def has_one_model(row: dict[str, str]) -> bool:
    """Return whether there is one model; session starts are among the banks."""
    return row["bank"].startswith(("bank=one-model", "bank=fine-tuned", "session_start="))


@cache
def data_of(source: DataSource) -> Dataset:
    return source.load(None, 2)


def play(plan: Plan, **options: object) -> Result:
    return run_plan(plan, workers=1, data=data_of(plan.scenario.data), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "row",
    [
        row if index in QUICK else pytest.param(row, marks=pytest.mark.slow)
        for index, row in enumerate(ROWS)
    ],
    ids=named,
)
def test_a_combination_runs_resumes_and_is_the_same_on_both_engines(
    row: dict[str, str], tmp_path: Path
) -> None:
    plan = plan_of(row)
    whole = play(plan, out=tmp_path / "whole")
    with pytest.raises(Interruption):
        play(plan, out=tmp_path / "cut", watch=interrupt_after(2))
    check_same_bits(whole, play(plan, out=tmp_path / "cut", resume=True))
    check_engines_agree(whole, play(plan_of(row, "reference")))


def test_every_stage_of_a_recipe_is_a_factor_and_every_world_has_a_scenario() -> None:
    assert {
        "memory",
        "sample_weights",
        "selection",
        "objective",
        "weights",
        "server",
    } < STAGES.keys()
    assert {"bank", "geometry", "forecast", "stopping", "alarm"} < STAGES.keys()

    assert {type(scenario.world) for scenario in SCENARIOS.values()} == set(WORLDS.values()) - {
        Live
    }


def test_every_policy_is_in_a_row_that_is_not_slow() -> None:
    for factor, values in FACTORS.items():
        assert {ROWS[index][factor] for index in QUICK} == set(values)


def test_the_settings_of_this_file_belong_to_existing_policies() -> None:
    there = {f"{stage}={kind}" for stage, kinds in STAGES.items() for kind in kinds}
    assert TUNED.keys() <= there
    assert {each.split()[0] for variants in VARIANTS.values() for each in variants} <= there


def test_the_number_of_rows_is_close_to_the_minimum() -> None:
    two_largest = sorted(len(values) for values in FACTORS.values())[-2:]
    assert len(ROWS) <= 1.3 * two_largest[0] * two_largest[1]
