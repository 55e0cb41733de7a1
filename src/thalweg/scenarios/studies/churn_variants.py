"""Tables 12 to 14 of Chang et al. 2025: unseen labels, the scale R, and a random pilot.

Most numbers of these tables are from SVHN and CIFAR-100 with large nets. The studies make the same
comparisons with the settings of Tables 8 and 9 (`churn_labels`).
"""

from __future__ import annotations

from thalweg.core.published import Published
from thalweg.scenarios.studies.base import Column, Row, Study
from thalweg.scenarios.studies.churn_labels import (
    COUNTED_ROUNDS,
    HOSTS,
    LENGTH,
    QUICK,
    RATES,
    STARTS,
    make_overrides,
)

SEEDS = (0, 1, 2)
CLIENTS = 10
TRANSITIONS = (4, 5, 6)  # sessions that start at the three transitions
SCALES = (0, 10, 50, 80, 100, 120, 140)  # those from 50 on are the paper's on SVHN
PATTERNS = {"8 and 9": "ABABE", "0 and 1": "CDCDA", "4 and 5": "ABABC"}  # by unseen labels
CIFAR_LENGTH = 40  # rounds per session of the reduced scenario
FEDPROX = ("objective=proximal", "objective.strength=1.0")
METRIC = (
    "Accuracy on the labels of a session's clients, averaged over the first ten rounds of the "
    "session."
)
SETTINGS = "Learning rates are constant, as in the studies of Tables 8 and 9."


def unseen_labels() -> Study:
    """Table 12 on Fashion-MNIST; the paper's second row is MOON on SVHN."""
    last = 4
    columns = tuple(
        Column(
            "churn-fashion-mnist",
            (
                f"rounds={last * LENGTH + COUNTED_ROUNDS}",
                *make_overrides("fashion-mnist", "distinct", CLIENTS)[1:],
                "sessions=recurring",
                f"sessions.length={LENGTH}",
                f"sessions.pattern={pattern}",
                "sessions.groups=5",
            ),
            f"labels {labels}",
            session=last,
        )
        for labels, pattern in PATTERNS.items()
    )
    numbers = {"proposed": 94.98, "previous": 94.75, "average": 95.89}
    return Study(
        name="churn-unseen-table",
        paper="churn",
        table="Table 12",
        curves=("session_accuracy",),
        title="Clients that come and go, Table 12: labels that no session had before",
        description=(
            f"{METRIC} Ten clients with one label each form five pairs, A to E. Two pairs "
            "alternate in sessions 0 to 3; in session 4, whose accuracy is shown, there is a pair "
            f"with new labels. {SETTINGS} The paper introduces unseen labels in the last session, "
            "but does not state which labels or how many; its number, the same in all columns, "
            "is for labels that are not known."
        ),
        rows=tuple(
            Row(start, f"fedavg{guest},{changes}") for start, (guest, changes) in STARTS.items()
        ),
        columns=columns,
        seeds=SEEDS,
        reference="previous",
        published={
            (start, column.label): Published(number, cell=start)
            for column in columns
            for start, number in numbers.items()
        },
        metric="transition_accuracy",
        quick=(f"rounds={(last + 1) * 5}", "sessions.length=5"),
    )


def scales() -> Study:
    """Table 13 on other data: FedAvg with labels Half and FedProx with Partial-Overlap."""
    hosts = {"fedavg half": ("half",), "fedprox overlap": ("partial-overlap", *FEDPROX)}
    return Study(
        name="churn-scale-table",
        paper="churn",
        table="Table 13",
        title="Clients that come and go, Table 13: scale R of the warm start",
        description=(
            f"{METRIC} FedAvg has the labels of Table 9 (Half), FedProx those of Table 8 "
            "(Partial-Overlap), because the paper's numbers for R=100 are those of these tables. "
            f"R=0 is the plain mean of past models. {SETTINGS} The paper has numbers for SVHN and "
            "CIFAR-100, which these data sets do not have."
        ),
        rows=tuple(
            Row(
                f"R={scale}",
                f"fedavg+warmstart,session_start.first_start=random,session_start.scale={scale}.0",
            )
            for scale in SCALES
        ),
        columns=tuple(
            Column(
                f"churn-{data}",
                (*make_overrides(data, partition, CLIENTS), *changes),
                f"{host} session {session}",
                session=session,
            )
            for data in RATES
            for host, (partition, *changes) in hosts.items()
            for session in TRANSITIONS
        ),
        seeds=SEEDS,
        reference="R=10",
        metric="transition_accuracy",
        quick=QUICK,
    )


def random_pilot() -> Study:
    """Table 14: fingerprints from a trained pilot, or from the initial model."""
    columns = tuple(
        Column(
            f"churn-{data}",
            make_overrides(data, "partial-overlap", CLIENTS),
            f"session {session}",
            session=session,
        )
        for data in RATES
        for session in TRANSITIONS
    )
    cifar = tuple(
        Column(
            "churn-cifar10",
            (
                f"rounds={TRANSITIONS[-1] * CIFAR_LENGTH + COUNTED_ROUNDS}",
                f"evaluate_every={CIFAR_LENGTH}",
                "world.partition=partial-overlap",
                f"world.num_clients={CLIENTS}",
            ),
            f"session {session}",
            rows=("fedprox proposed", "fedprox random pilot"),
            session=session,
            is_reduced=True,
        )
        for session in TRANSITIONS
    )
    printed = ((81.50, 79.47), (86.99, 86.80), (81.69, 79.62))
    rows = tuple(
        Row(f"{host} {pilot}", f"{host}{guest},{changes}{more}{HOSTS[host]}", f"{host} proposed")
        for host in ("fedprox", "moon")
        for (guest, changes) in (STARTS["proposed"],)
        for pilot, more in (("proposed", ""), ("random pilot", ",session_start.random_pilot=true"))
    )
    return Study(
        name="churn-pilot-table",
        paper="churn",
        table="Table 14",
        title="Clients that come and go, Table 14: pilot with random parameters",
        description=(
            f"{METRIC} Labels Partial-Overlap. 'random pilot': the probe rounds of warm start "
            "begin with the run's initial model instead of the final model of session 0; nothing "
            f"else differs. {SETTINGS} Reduced scale: on CIFAR-10 a small net with random initial "
            "parameters, sessions of 40 rounds and batches of 64, with a decaying learning rate; "
            "the paper has a ResNet-18 pretrained on ImageNet. Its other three rows are on SVHN."
        ),
        rows=rows,
        columns=(*columns, *cifar),
        seeds=SEEDS,
        reference="fedprox proposed",
        published={
            (f"fedprox {pilot}", column.label): Published(number)
            for column, pair in zip(cifar, printed, strict=True)
            for pilot, number in zip(("proposed", "random pilot"), pair, strict=True)
        },
        metric="transition_accuracy",
        quick=QUICK,
    )


def studies() -> list[Study]:
    return [unseen_labels(), scales(), random_pilot()]
