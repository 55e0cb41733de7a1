"""The recipe `auto` on the benchmark of each specialist, with baselines and without its parts.

The worlds are small versions of those of the other studies, so that a run takes seconds. Every row
has the settings that these studies use for it in that kind of world, and every federated method
trains the same share of the clients. The criteria are on the page ``docs/results/auto.md``, and
``report.auto_table`` compares the rows by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from thalweg.scenarios.studies.base import Column, Row, Study
from thalweg.scenarios.studies.sfedpo import SMALL

NAME = "auto-table"
SEEDS = (30, 31, 32, 33, 34)  # constants are chosen on 0 to 2; 10 to 14 and 20 to 24 were seen
AUTO, FEDAVG = "auto", "fedavg"
BY_ALARM = "feddaa by alarm"
SPECIALISTS = (
    "sfedpo",
    "stream-ours",
    "warmstart",
    "dpcs",
    "feddaa",
    BY_ALARM,
    "fedrc",
    "feddrift",
)
BASELINES = (FEDAVG, "fedntd", "fedexp", "local-only", "fine-tuned", "centralised")
ABLATIONS = {  # the part that is replaced, and its replacement
    "memory": "memory=uniform-ratio",
    "server": "server=step",
    "selection": "selection=uniform",
    "weights": "weights=by-samples",
    "bank": "bank=one-model,weights=equal,alarm.action.recluster=false",
    "session start": "session_start=previous",
    "serving": "serving=none",
    "alarm": "alarm=none",
}
NO_SESSIONS = "the world has no sessions"
NO_DRIFT = "it is for concept drift, of which the world has none"
GIVEN_STEPS = "the time steps are given"
EMPTY_MEMORIES = "clients that have just arrived hold no samples, and are not drawn"
# What columns show.
ACCURACY, WHOLE, WORST = "accuracy", "whole test set", "worst"
ARRIVALS = "test-then-train"
MEGABYTES, CORE_SECONDS = "MB", "core-seconds"


def name_ablation(part: str) -> str:
    """Return the row of `auto` without a part."""
    return f"{AUTO} without {part}"


ROWS = (*SPECIALISTS, *BASELINES, AUTO, *map(name_ablation, ABLATIONS))


@dataclass(frozen=True)
class Benchmark:
    """A world, what is measured in it, and the settings of the methods in it."""

    scenario: str
    metric: str
    """The headline: held-out data at the clients' current distribution, or else test-then-train."""
    note: str = ""
    """Distinguishes this world from others of the same scenario."""
    overrides: tuple[str, ...] = ()
    share: float | None = None
    """Share of the present clients that train in a round; None: all."""
    worst: str = "worst_client_accuracy"
    """Metric of the worst client or state; empty: not measured."""
    whole: str = ""
    """Accuracy on the whole test set, if the paper of this benchmark reports it."""
    has_arrivals: bool = True
    """Whether samples arrive during the run, so that there is a test-then-train accuracy."""
    has_concept_drift: bool = True
    """Whether one model cannot be right for all clients and rounds."""
    session: int | None = None
    """Session in which the headline is measured; None: there are no sessions, or all count."""
    after: int | None = None
    """The headline leaves out the rounds up to this one; None: none."""
    memory: str = "uniform-ratio"
    """Memory of FedAvg and its variants in the studies of this kind of world."""
    weights: str = "equal"
    """Their weights."""
    recipes: Mapping[str, str] = field(default_factory=dict)
    """Recipes of rows with settings for this kind of world, without the selection of clients."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Rows that cannot run in this world, with the reasons."""
    untested: Mapping[str, str] = field(default_factory=dict)
    """Rows whose clients predict no arriving samples in this world, with the reasons."""

    @property
    def label(self) -> str:
        return f"{self.scenario} {self.note}".strip()

    def reasons(self, what: str) -> Mapping[str, str]:
        """Return the rows without a cell in the column that shows `what`, with the reasons."""
        return {**self.left_out, **(self.untested if what == ARRIVALS else {})}


WITHOUT_DRIFT = dict.fromkeys((BY_ALARM, "fedrc", "feddrift"), NO_DRIFT)
WITHOUT_BOTH = {"warmstart": NO_SESSIONS, **WITHOUT_DRIFT}
KEEP_ALL = "world.capacity_of=scenario,capacity=10000"  # the samples of all clients and rounds
STREAM_RECIPES = {
    "fine-tuned": "stream-uniform+fine-tuned",
    "centralised": f"centralised,memory=fifo,{KEEP_ALL}",
}
STEP_LENGTH = 15  # as in feddaa-detector
STEPS = (
    f"world.rounds_per_step={STEP_LENGTH}",
    f"rounds={6 * STEP_LENGTH}",
    f"evaluate_every={STEP_LENGTH}",
    "prequential=50",
    "tasks=false",  # not shown; they take most of the time
)
STEP_RECIPES = {
    "feddaa": f"feddaa,bank.every={STEP_LENGTH},weights.basis=explained",
    "fedrc": "fedrc,local.lr=0.1",
    "feddrift": f"feddrift,bank.initial_models=2,bank.every={STEP_LENGTH},bank.reassign=true",
}


def _streams(share: str, note: str) -> Benchmark:
    return Benchmark(
        "streams-synthetic",
        "client_accuracy",
        note,
        (f"world.historical_data={share}",),
        memory="fifo",
        has_concept_drift=False,
        weights="by-samples",
        recipes=STREAM_RECIPES,
        left_out=WITHOUT_BOTH,
        untested={"dpcs": EMPTY_MEMORIES},
    )


def _churn(note: str, session: int, *overrides: str, share: float | None = None) -> Benchmark:
    return Benchmark(
        "churn-digits",
        "transition_accuracy",
        note,
        overrides,
        share,
        worst="",
        has_arrivals=False,
        has_concept_drift=False,
        session=session,
        left_out=WITHOUT_DRIFT,
    )


def _steps(scenario: str, *overrides: str) -> Benchmark:
    return Benchmark(
        scenario,
        "mean_client_accuracy",  # evaluated at the ends of steps
        overrides=(*STEPS, *overrides),
        share=0.5,
        memory="replace",
        weights="by-samples",
        recipes=STEP_RECIPES,
        left_out={"warmstart": NO_SESSIONS, BY_ALARM: GIVEN_STEPS},
    )


def _alarms(note: str, *drift: str, after: int) -> Benchmark:
    return Benchmark(
        "alarms-digits",
        "mean_client_accuracy",
        note,
        drift,
        after=after,
        memory="fifo",
        left_out={"warmstart": NO_SESSIONS},
    )


def _stream(scenario: str) -> Benchmark:
    return Benchmark(
        scenario,
        "prequential_accuracy",
        worst="",
        memory="fifo",
        left_out={"warmstart": NO_SESSIONS},
    )


def _states(scenario: str, *overrides: str) -> Benchmark:
    return Benchmark(
        scenario,
        "client_accuracy",
        overrides=overrides,
        worst="worst_state_accuracy",
        whole="accuracy",
        has_concept_drift=False,
        left_out=WITHOUT_BOTH,
    )


WORLDS = (
    _states("digits-full"),
    _states("digits-partial"),
    _states("fashion-mnist-partial", *SMALL),
    _streams("0.05", "5%"),
    _streams("0.2", "20%"),
    _streams("0.5", "50%"),
    _churn("all", 5),
    _churn("tenth", 5, "world.num_clients=40", share=0.1),
    _churn(
        "unseen group",
        3,
        "world.num_clients=18",
        "sessions=recurring",
        "sessions.pattern=ABAC",
        "sessions.length=10",
        "rounds=40",
    ),
    Benchmark(
        "dpcs-fashion-mnist",
        "client_accuracy",
        overrides=("net=mlp", "net.hidden=[64]", "rounds=100"),
        share=0.3,
        whole="accuracy",
        has_concept_drift=False,
        memory="fifo",
        weights="by-samples",
        left_out=WITHOUT_BOTH,
    ),
    _steps("drift-digits"),
    _steps("drift-fashion-mnist-mlp", "net.hidden=[64]"),
    _alarms("staggered", "drift=staggered", "drift.at=20", "drift.lag=2", after=20),
    _alarms(
        "gradual",
        "drift=gradual",
        "drift.start=30",
        "drift.until=45",
        "drift.share=0.5",
        after=30,
    ),
    _stream("elec2"),
    _stream("weather"),
    _stream("flights"),
    Benchmark("mixed-digits", "mean_client_accuracy", memory="fifo"),
)


def make_recipe(row: str, world: Benchmark) -> str:
    """Return the recipe of a row in a world, with its settings.

    >>> make_recipe("fedexp", Benchmark("digits-full", "accuracy", share=0.3))
    'fedexp,memory=uniform-ratio,weights=equal,selection=uniform,selection.fraction=0.3'
    """
    if row.startswith(AUTO):
        part = next((part for part in ABLATIONS if row == name_ablation(part)), None)
        return _make_auto(part, world)
    known = {
        "warmstart": (
            f"warmstart,memory={world.memory},session_start.first_start=random,"
            "session_start.scale=10.0"
        ),
        "feddaa": "feddaa,bank.every=10",
        BY_ALARM: "feddaa,bank.every=none,alarm=page-hinkley,alarm.action=recluster",
        "fedrc": "fedrc,memory=fifo",
        "feddrift": "feddrift,memory=fifo",
        "local-only": f"local-only,memory={world.memory}",
        "centralised": f"centralised,memory={world.memory}",
        **{
            name: f"{name},memory={world.memory},weights={world.weights}"
            for name in (FEDAVG, "fedntd", "fedexp", "fine-tuned")
        },
        **world.recipes,
    }
    recipe = known.get(row, row)
    if row in ("local-only", "centralised"):  # all clients, in every round
        return recipe
    if row == "dpcs":
        return f"dpcs,selection.participation={world.share or 1.0}"
    if world.share is None:
        return f"{recipe},selection=available"
    return f"{recipe},selection=uniform,selection.fraction={world.share}"


def _make_auto(part: str | None, world: Benchmark) -> str:
    """Return the recipe auto, without one of its parts if it is given."""
    changes = [AUTO] if part is None else [AUTO, ABLATIONS[part]]
    if part == "selection":
        changes.append(f"selection.fraction={world.share or 1.0}")
    elif world.share is not None:
        changes.append(f"selection.participation={world.share}")
    return ",".join(changes)


def make_columns(world: Benchmark) -> dict[str, Column]:
    """Return the columns of a world by what they show; all of them show the same runs."""
    shown = {ACCURACY: Column("", metric=world.metric, session=world.session, after=world.after)}
    if world.whole:
        shown[WHOLE] = Column("", metric=world.whole)
    if world.worst:
        shown[WORST] = Column("", metric=world.worst)
    if world.has_arrivals and world.metric != "prequential_accuracy":
        shown[ARRIVALS] = Column("", metric="prequential_accuracy")
    shown[MEGABYTES] = Column("", metric="megabytes")
    shown[CORE_SECONDS] = Column("", metric="core_seconds")
    return {
        what: replace(
            column,
            scenario=world.scenario,
            overrides=world.overrides,
            note=f"{world.note} {what}".strip(),
        )
        for what, column in shown.items()
    }


def studies() -> list[Study]:
    found = [
        (world, column, world.reasons(what))
        for world in WORLDS
        for what, column in make_columns(world).items()
    ]
    return [
        Study(
            name=NAME,
            title="The recipe auto, the specialists, baselines, and auto without its parts",
            description=(
                "Small versions of the worlds of the other studies. 'accuracy': test accuracy on "
                "data like those of the clients at that time, or test-then-train accuracy where "
                "there are no held-out data. The criteria are in docs/results/auto.md."
            ),
            rows=tuple(map(Row, ROWS)),
            columns=tuple(column for _, column, _ in found),
            seeds=SEEDS,
            reference=FEDAVG,
            recipes={
                (row, column.label): make_recipe(row, world)
                for world, column, reasons in found
                for row in ROWS
                if row not in reasons
            },
            left_out={
                (row, column.label): reason
                for _, column, reasons in found
                for row, reason in reasons.items()
            },
            metric="client_accuracy",
        )
    ]
