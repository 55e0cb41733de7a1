"""A study of drift detectors and of the actions that follow an alarm."""

from __future__ import annotations

from thalweg.scenarios.studies.base import Column, Row, Study

SEEDS = (0, 1, 2)
SCENARIO = "alarms-fashion-mnist"
# First in, first out: clients train on samples of the last ten rounds.
KEPT = "memory=fifo"
DETECTORS = {
    "page-hinkley": "alarm=page-hinkley",
    "ddm": "alarm=ddm",
    "window-test": "alarm=window-test",
    "window-test of means": "alarm=window-test,alarm.test=mean",
    "river ADWIN": "alarm=river,alarm.name=ADWIN,alarm.settings=clock=1;delta=0.1",
    "river KSWIN": "alarm=river,alarm.name=KSWIN,alarm.settings=window_size=20;stat_size=7",
}
ACTIONS = {
    "shrink": "alarm.action=shrink,alarm.action.keep=0.1",
    "scale-lr": "alarm.action=scale-lr",
}


def _rows() -> tuple[Row, ...]:
    """Detectors without an action, then the actions of the first detector, then banks of models."""
    first = DETECTORS["page-hinkley"]
    by_alarm = f"bank.every=none,{first},alarm.action=recluster"
    return (
        Row("fedavg", f"fedavg,{KEPT}"),
        *(Row(name, f"fedavg,{KEPT},{alarm}") for name, alarm in DETECTORS.items()),
        *(
            Row(f"page-hinkley, {name}", f"fedavg,{KEPT},{first},{a}")
            for name, a in ACTIONS.items()
        ),
        Row("feddrift", f"feddrift,{KEPT}"),
        Row("feddrift, by alarm", f"feddrift,{KEPT},{by_alarm}"),
        Row("feddrift-eager, by alarm", f"feddrift-eager,{KEPT},{by_alarm}"),
    )


def studies() -> list[Study]:
    gradual = ("drift=gradual", "drift.start=30", "drift.until=45", "drift.share=0.5")
    return [
        Study(
            name="alarms-table",
            title="Alarms: drift detectors and the actions that follow them",
            description=(
                "Each client receives 50 new images per round. The accuracy is prequential: images "
                "are predicted when they arrive, before any client trains on them. In round 30 all "
                "labels of some clients are reversed: of no client, of all clients, of half of "
                "them, or of half of them gradually until round 45. Detectors without an action do "
                "not change the training, so their rows equal the row of fedavg; the tables called "
                "Alarms show what they detected. 'shrink' keeps the newest tenth of the memory; "
                "'scale-lr' doubles the learning rate for five rounds. 'feddrift' collects losses "
                "in every round; with 'by alarm' it opens models at an alarm instead, one for each "
                "client that drifted or (eager) one for all of them."
            ),
            rows=_rows(),
            columns=(
                Column(SCENARIO, ("drift=none",), "no drift"),
                Column(SCENARIO, ("drift.share=1.0",), "all"),
                Column(SCENARIO, (), "half"),
                Column(SCENARIO, gradual, "half, gradual"),
            ),
            seeds=SEEDS,
            reference="fedavg",
            metric="prequential_accuracy",
            quick=("rounds=36",),  # drifts begin in round 30
        )
    ]
