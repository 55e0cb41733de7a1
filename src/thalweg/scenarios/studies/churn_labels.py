"""Tables 8, 9 and 11 of Chang et al. 2025: other distributions of labels, MNIST and Fashion-MNIST.

They were made with an earlier version of the code, whose learning rates and numbers of rounds were
not released. With the settings of Table 3 and a constant learning rate, one rate per data set fits
all numbers within about two points; the rates here were chosen by the first number of FedAvg.
"""

from __future__ import annotations

from typing import NamedTuple

from thalweg.core.published import Published
from thalweg.scenarios.studies import churn_numbers as printed
from thalweg.scenarios.studies.base import Column, Row, Study

LENGTH = 50  # rounds per session
COUNTED_ROUNDS = 10
LAST_SESSION = 7
QUICK = (f"rounds={(LAST_SESSION + 1) * 5}", "sessions.length=5")
RATES = {"mnist": "0.0025", "fashion-mnist": "0.0035"}
STARTS = {
    "proposed": ("+warmstart", "session_start.first_start=random"),
    "previous": ("", "session_start=reset,session_start.session=1"),
    "average": ("+average-start", "session_start.first_start=random"),
}
HOSTS = {"fedavg": "", "fedprox": ",objective.strength=1.0", "moon": ""}
ABOUT = (
    "Accuracy on the labels of a session's clients, averaged over the first ten rounds of the "
    "session. Two groups of clients alternate every 50 rounds; session 0 produces the pilot model, "
    "and all methods start session 1 from the initial model. The paper gives neither the sessions "
    "of its three transitions nor learning rates: the sessions follow from the level of the "
    "accuracies, and the constant learning rates (0.0025 for MNIST, 0.0035 for Fashion-MNIST) were "
    "chosen by FedAvg's first number. The paper has no standard deviations here."
)


class LabelTable(NamedTuple):
    """What differs between the three tables."""

    name: str
    table: str  # number in the paper
    title: str
    partition: str
    clients: int  # of both groups
    numbers: str


TABLES = (
    LabelTable(
        "churn-partial-overlap-table",
        "Table 8",
        "labels Partial-Overlap",
        "partial-overlap",
        10,
        printed.PARTIAL_OVERLAP,
    ),
    LabelTable("churn-half-table", "Table 9", "labels Half", "half", 10, printed.HALF),
    LabelTable(
        "churn-partial-overlap-100-table",
        "Table 11",
        "labels Partial-Overlap, 100 clients",
        "partial-overlap",
        100,
        printed.PARTIAL_OVERLAP_100,
    ),
)


def studies() -> list[Study]:
    return [table(each) for each in TABLES]


def table(spec: LabelTable) -> Study:
    """Three hosts with every session start, at the sessions that the paper shows."""
    published = _parse_published(spec)
    shown = {label for _, label in published}
    columns = [_column(spec, data, s) for data in RATES for s in range(3, LAST_SESSION + 1)]
    return Study(
        name=spec.name,
        paper="churn",
        table=spec.table,
        curves=("session_accuracy",),
        title=f"Clients that come and go, {spec.table}: {spec.title}",
        description=ABOUT,
        rows=tuple(
            Row(f"{host} {start}", f"{host}{guest},{changes}{more}", against=f"{host} previous")
            for host, more in HOSTS.items()
            for start, (guest, changes) in STARTS.items()
        ),
        columns=tuple(column for column in columns if column.label in shown),
        seeds=(0, 1, 2),
        reference="fedavg previous",
        published=published,
        metric="transition_accuracy",
        quick=QUICK,
    )


def make_overrides(data: str, partition: str, clients: int) -> tuple[str, ...]:
    """Settings of a run with one of these distributions of labels."""
    return (
        f"rounds={LAST_SESSION * LENGTH + COUNTED_ROUNDS}",
        f"evaluate_every={LENGTH}",
        f"world.partition={partition}",
        f"world.num_clients={clients}",
        f"local.lr={RATES[data]}",
        "local.decay=none",
    )


def _column(spec: LabelTable, data: str, session: int) -> Column:
    overrides = make_overrides(data, spec.partition, spec.clients)
    return Column(f"churn-{data}", overrides, f"session {session}", session=session)


def _parse_published(spec: LabelTable) -> dict[tuple[str, str], Published]:
    found = {}
    for line in spec.numbers.strip().splitlines():
        host, data, sessions, *entries = line.split()
        for place, session in enumerate(sessions.split(",")):
            label = _column(spec, data, int(session)).label
            for start, entry in zip(STARTS, entries[3 * place : 3 * place + 3], strict=True):
                found[f"{host} {start}", label] = Published(float(entry))
    return found
