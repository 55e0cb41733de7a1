"""FedDAA and FedRC away from FedDAA's steps: other drifts, steps after alarms, real streams.

The paper has no such tables.
"""

from __future__ import annotations

from thalweg.scenarios.studies.alarms import KEPT, SCENARIO, SEEDS
from thalweg.scenarios.studies.base import Column, Row, Study

ALL = "selection=available"  # all clients take part in every round
ALARM = "bank.every=none,alarm=page-hinkley,alarm.action=recluster"
BANKS = (
    Row("fedavg", f"fedavg,{KEPT}"),
    Row("fedrc", f"fedrc,{KEPT},{ALL}"),
    Row("feddaa, every 10 rounds", f"feddaa,{ALL},bank.every=10"),
    Row("feddaa, by alarm", f"feddaa,{ALL},{ALARM}"),
    Row("feddrift", f"feddrift,{KEPT}"),
    Row("feddrift-eager, by alarm", f"feddrift-eager,{KEPT},{ALARM}"),
)
ORACLES = (
    Row("feddaa, by alarm, true drifts", f"feddaa,{ALL},{ALARM},bank.drift_flags=oracle"),
    Row("oracle", f"oracle,{ALL}"),
)
ABOUT = (
    "All clients take part in every round and keep the samples of the last ten rounds. The "
    "accuracy is prequential: samples are predicted when they arrive, before any client trains on "
    "them. fedrc has two models. feddaa starts a time step every ten rounds, or when Page-Hinkley "
    "raises an alarm ('by alarm', at most every ten rounds); feddrift surveys all clients in "
    "every round, feddrift-eager after an alarm."
)


def other_drifts() -> Study:
    gradual = ("drift=gradual", "drift.start=30", "drift.until=45", "drift.share=0.5")
    staggered = ("drift=staggered", "drift.at=20", "drift.lag=2")
    return Study(
        name="feddaa-other-drifts",
        title="FedDAA and FedRC with sudden, gradual and staggered drift",
        description=(
            f"{ABOUT} Half of the 20 clients have reversed labels from round 30 on, suddenly or "
            "gradually until round 45; staggered: client k has them from round 20 + 2 k on. The "
            "last two rows are oracles: they receive the true concepts."
        ),
        rows=(*BANKS, *ORACLES),
        columns=(
            Column(SCENARIO, ("drift=none",), "no drift"),
            Column(SCENARIO, (), "half"),
            Column(SCENARIO, gradual, "half, gradual"),
            Column(SCENARIO, staggered, "staggered"),
        ),
        seeds=SEEDS,
        reference="fedavg",
        metric="prequential_accuracy",
        quick=("rounds=36",),
    )


def real_streams() -> Study:
    return Study(
        name="feddaa-real-streams",
        title="FedDAA and FedRC on real streams",
        description=(
            f"{ABOUT} The net is linear. The true drifts of these streams are not known; see "
            "drifting-streams-table for other methods."
        ),
        rows=BANKS,
        columns=tuple(Column(scenario) for scenario in ("elec2", "weather", "flights")),
        seeds=SEEDS,
        reference="fedavg",
        metric="prequential_accuracy",
    )


def studies() -> list[Study]:
    return [other_drifts(), real_streams()]
