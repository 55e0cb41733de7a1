"""Tables of the paper on client arrival and departure (Chang et al. 2025) as studies.

The paper does not state which sessions its transitions T1 and T2 are. Sessions are counted from 0;
session 0 produces the pilot, and session 1 starts from the initial model with every method. At the
start of session 2 there is one past model, and all methods that use past models continue from it.
The methods first differ at the start of session 3, which is T1; T2 is the start of session 4. The
tables agree with this: at T1 the labels are those of the second group (easier than the first
group's on Fashion-MNIST and CIFAR-10, harder on MNIST), and the average of one model per group does
as well as the method; at T2 the average contains two models of the other group and one of the own
group, and does worse.
"""

from __future__ import annotations

from typing import NamedTuple

from thalweg.core.published import Published
from thalweg.scenarios.studies import churn_numbers as printed
from thalweg.scenarios.studies.base import Column, Row, Study

SEEDS = (0, 1, 2)
TRANSITIONS = {"T1": 3, "T2": 4}  # the session that starts at each transition
WHOLE_SESSIONS = 4  # later rounds do not appear in any table
COUNTED_ROUNDS = 10  # rounds of a session over which accuracy is averaged
CONCENTRATIONS = ("0.3", "0.7")
STARTS = ("proposed", "continuous", "previous", "average")
HOSTS = ("fedavg", "fedprox", "scaffold", "fedacg")
ABOUT = (
    "Accuracy on the labels of a session's clients, averaged over the first ten rounds of the "
    "session. Session 0 produces the pilot model. All methods start session 1 from the initial "
    "model, as in the paper's code (baselines: session_start=reset), and session 2 from the last "
    "model of session 1. T1 is the transition to session 3, T2 the transition to session 4. "
    "'scaffold' is what the paper's code implements under that name (scaffold-released); "
    "'true-scaffold' is SCAFFOLD. 'continuous' is FedAvg with distillation for every host, as in "
    "the code; its teacher in session 1 is the last model of session 0, where the code uses a "
    "model of zeros. Probe rounds are not counted."
)


class PaperTable(NamedTuple):
    """What differs between the tables of the paper."""

    data: str
    table: str
    title: str
    numbers: str
    length: int  # rounds per session of the scenario
    # Learning rate of 'scaffold': the square root of the usual one, because its server multiplies
    # by it a second time.
    released_lr: str
    overlaps: tuple[str, ...] = ("0.0", "0.2")
    scale: str = "10.0"  # scale of the warm start
    starts: tuple[str, ...] = STARTS
    fedacg_lr: str | None = None  # None: the learning rate of the scenario
    note: str = ""
    is_reduced: bool = False


TABLES = (
    PaperTable("mnist", "Table 3", "MNIST", printed.MNIST, 50, "0.03"),
    PaperTable(
        "fashion-mnist",
        "Table 3",
        "Fashion-MNIST",
        printed.FASHION_MNIST,
        50,
        "0.03",
        note="The learning rates are those for MNIST; the paper's are unknown.",
    ),
    PaperTable(
        "ag-news",
        "Table 2",
        "AG News",
        printed.AG_NEWS,
        100,
        "0.17",
        overlaps=("0.0", "0.6"),
        scale="800.0",
        starts=("proposed", "previous", "average"),
        note="The word vectors are smaller than the paper's; its learning rates are unknown.",
    ),
    PaperTable(
        "cifar10",
        "Table 1",
        "CIFAR-10, at reduced scale",
        printed.CIFAR10,
        40,
        "0.17",
        fedacg_lr="0.01",
        note=(
            "Reduced scale: 10 clients per group, sessions of 40 rounds and a small net with "
            "random initial parameters; the paper has 20 clients, 150 rounds and a ResNet-18 "
            "pretrained on ImageNet. The paper's accuracy is not reachable; the order of the "
            "methods can be compared. FedACG's learning rate is 0.01, because it does not learn "
            "with that of the others."
        ),
        is_reduced=True,
    ),
)


def table(spec: PaperTable) -> Study:
    """Every host method with every session start."""
    columns = {
        (overlap, concentration, transition): Column(
            f"churn-{spec.data}",
            (
                f"rounds={WHOLE_SESSIONS * spec.length + COUNTED_ROUNDS}",
                f"world.partition.overlap={overlap}",
                f"world.partition.concentration={concentration}",
            ),
            f"overlap {overlap} dir {concentration} {transition}",
            session=session,
            is_reduced=spec.is_reduced,
        )
        for overlap in spec.overlaps
        for concentration in CONCENTRATIONS
        for transition, session in TRANSITIONS.items()
    }
    short = max(2, spec.length // 10)
    return Study(
        name=f"churn-{spec.data}-table",
        paper="churn",
        table=spec.table,
        curves=("session_accuracy",),
        title=f"Clients that come and go, {spec.table}: {spec.title}",
        description=f"{ABOUT} {spec.note}".strip(),
        rows=_rows(spec),
        columns=tuple(columns.values()),
        seeds=SEEDS,
        reference="fedavg previous",
        published=_parse_published(spec, columns),
        metric="transition_accuracy",
        quick=(
            f"rounds={(WHOLE_SESSIONS + 1) * short}",
            f"sessions.length={short}",
            f"local.decay.rounds={short}",
        ),
    )


def studies() -> list[Study]:
    return [table(each) for each in TABLES]


def _rows(spec: PaperTable) -> tuple[Row, ...]:
    """The paper's rows, then the rows of SCAFFOLD as published."""
    released = (f"local.lr={spec.released_lr}", "local.decay.floor=0.9")
    hosts = {
        "fedavg": ("fedavg", ()),
        "fedprox": ("fedprox", ("objective.strength=1.0",)),
        "scaffold": ("scaffold-released", (f"server.lr={spec.released_lr}", *released)),
        "fedacg": ("fedacg", () if spec.fedacg_lr is None else (f"local.lr={spec.fedacg_lr}",)),
        "true-scaffold": ("scaffold", ()),
    }
    rows = []
    for label, (host, changes) in hosts.items():
        for start in spec.starts:
            parts = [*_recipe(host, start, spec.scale), *changes]
            if start == "continuous":
                parts = [*_recipe("continuous", "previous", spec.scale)]
                parts += released if label == "scaffold" else ()
            if start != "continuous" or label in HOSTS:
                rows.append(Row(f"{label} {start}", ",".join(parts), against=f"{label} previous"))
    return tuple(rows)


def _recipe(host: str, start: str, scale: str) -> list[str]:
    """A recipe whose session 1 starts from the initial model, with overrides."""
    if start == "proposed":
        return [
            f"{host}+warmstart",
            "session_start.first_start=random",
            f"session_start.scale={scale}",
        ]
    if start == "average":
        return [f"{host}+average-start", "session_start.first_start=random"]
    return [host, "session_start=reset", "session_start.session=1"]


def _parse_published(
    spec: PaperTable, columns: dict[tuple[str, str, str], Column]
) -> dict[tuple[str, str], Published]:
    found = {}
    for line in spec.numbers.strip().splitlines():
        overlap, concentration, host, *entries = line.split()
        middle = len(spec.starts)
        for transition, part in zip(TRANSITIONS, (entries[:middle], entries[middle:]), strict=True):
            label = columns[overlap, concentration, transition].label
            for start, entry in zip(spec.starts, part, strict=True):
                mean, spread = entry.split("±")
                found[f"{host} {start}", label] = Published(float(mean), float(spread))
    return found
