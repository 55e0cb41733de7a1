"""Tables of the FedDAA paper (Peng & Tang) as studies: concepts and rotations change in six steps.

Accuracy is measured at the end of a step: each client with its own models on the standard test set
in the client's current view; mean over clients, then over steps. The paper does not state on which
data it measures. Its released code (commit f79e616, `client.py`, `utils/utils.py`) uses a random
tenth of the client's own shard, and of the previous shard if the client was not found to have
drifted. Shards are passed on between clients and the tenth is drawn anew in every step, so that
most of these samples were used for training before; we do not measure this.

The released code of FedDAA receives the true number of models (2, 3, then 4) and only logs the
number of clusters that NCD finds. There are therefore two rows: ``feddaa given`` is what was run
for the paper, ``feddaa`` is what the paper describes; both are shown next to the paper's number. In
both a client counts with its number of samples for every model, as in the released code; in
``feddaa explained`` (no published number) it counts for a model by the share of samples that the
model explains. FedDrift has two rows as well: clients choose among the models at the start of a
step, or in every round (``feddrift reassigned``). The paper starts with two models and does not
state how they differ initially; there is no published number for the second row. Flash with the
paper's settings (server learning rate 1) does not learn here; ``flash, small strides`` uses the
settings of SFedPO's study.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thalweg.core.published import Published
from thalweg.evaluation import ASSIGNMENTS
from thalweg.scenarios.studies import drift_numbers as printed
from thalweg.scenarios.studies.base import Column, Row, Study

SEEDS = (0, 1, 2)
FASHION, SMALL, CIFAR = "drift-fashion-mnist", "drift-fashion-mnist-small", "drift-cifar10"
DENSE, CIFAR100, DIGITS = "drift-fashion-mnist-mlp", "drift-cifar100", "drift-digits"
RELEASED, RELEASED_SMALL = f"{FASHION}-released", f"{FASHION}-released-small"
REDUCED = (SMALL, DENSE, CIFAR, CIFAR100, RELEASED_SMALL)
# Column index of the data set in a table of published numbers.
SCENARIOS = {FASHION: 0, SMALL: 0, DENSE: 0, CIFAR: 1, CIFAR100: 2}
DATA_COLUMNS = {**SCENARIOS, RELEASED: 0, RELEASED_SMALL: 0}
ROTATIONS = (0, 120, 240)
STEPS = ("world.rounds_per_step=40", "rounds=240", "evaluate_every=40")  # also with --data
HALF = ("selection=uniform", "selection.fraction=0.5")
QUICK_STEP = 4  # rounds per step in a quick run
QUICK = ("rounds=24", f"world.rounds_per_step={QUICK_STEP}", f"evaluate_every={QUICK_STEP}")
QUICK_BANK = (f"bank.every={QUICK_STEP}",)
GIVEN = "bank.cluster_count=given"
EXPLAINED = "weights.basis=explained"
TRUE_DRIFTS = "bank.drift_flags=oracle"
ABOUT = (
    "60 clients, half of them in every round, six steps of 40 rounds. 'feddaa given' receives the "
    "true number of models (2, 3, then 4), as in the released code; 'feddaa' estimates it; "
    "'feddaa explained' estimates it, too, and weights a client for a model by the share of its "
    "samples that the model explains. 'feddaa, true drifts' is an oracle: it estimates the number "
    "of models, but the true drifts replace those of its detector. 'feddrift reassigned' lets "
    "clients choose among the models in every round, not only at the start of a step. 'flash, "
    "small strides' has the settings of SFedPO's study, because Flash does not learn here with "
    "the paper's. The paper reports 5 runs. Reduced scale: drift-fashion-mnist-small, "
    "drift-fashion-mnist-mlp, drift-cifar10 and drift-cifar100 have 20 clients with 500 images "
    "each; the paper has 60 clients with 1,000 and 833 images. drift-fashion-mnist-mlp has a "
    "dense net instead of two convolutions, and drift-cifar10 and drift-cifar100 have LeNet-5 "
    "instead of a ResNet-18 and a MobileNet."
)
WHERE = (
    "Accuracy at the end of a step, for each client on the test set in its current view; mean over "
    "clients, then over steps."
)


def _row(label: str, recipe: str, lr: str, *changes: str, quick: tuple[str, ...] = ()) -> Row:
    """A method with the paper's learning rate and half of the clients per round."""
    return Row(label, ",".join([recipe, *HALF, f"local.lr={lr}", *changes]), quick=quick)


def _feddaa(label: str, *changes: str) -> Row:
    return _row(label, "feddaa", "0.06", *changes, quick=QUICK_BANK)


def _feddrift(label: str, *changes: str) -> Row:
    return _row(
        label,
        "feddrift",
        "0.06",
        "bank.initial_models=2",
        "bank.every=40",
        *changes,
        quick=QUICK_BANK,
    )


def _column(scenario: str, note: str = "", *changes: str, **moment: Any) -> Column:
    """Six steps of 40 rounds on one of the scenarios."""
    return Column(scenario, (*STEPS, *changes), note, is_reduced=scenario in REDUCED, **moment)


METHODS = (
    _row("fedavg", "fedavg-retrain", "0.06"),
    _row("adaptive-fedavg", "adaptive-fedavg", "0.06", "server.decay=none"),
    _row(
        "flash",
        "flash",
        "0.03",
        "server.lr=1.0",
        "server.beta_mean=0.5",
        "server.beta_var=0.5",
        "server.adaptivity_floor=1e-9",
    ),
    _row("flash, small strides", "flash", "0.03"),
    _row("fedrc", "fedrc", "0.1"),
    _feddrift("feddrift"),
    _feddrift("feddrift reassigned", "bank.reassign=true"),
    _feddaa("feddaa"),
    _feddaa("feddaa given", GIVEN),
    _feddaa("feddaa explained", EXPLAINED),
    _feddaa("feddaa, true drifts", TRUE_DRIFTS),
    _row("oracle", "oracle", "0.1"),
)

BASELINES = (  # with the memory of the row fedavg
    Row("local-only", "local-only,memory=replace,local.lr=0.06"),
    _row("fine-tuned", "fedavg-retrain+fine-tuned", "0.06"),
    Row("centralised", "centralised,memory=replace,local.lr=0.06"),
)
ABOUT_BASELINES = (
    "The last three rows are not in the paper: with 'local-only' each client trains alone, in all "
    "rounds; with 'fine-tuned' each client is tested with the result of its own local steps from "
    "the model of 'fedavg'; 'centralised' trains one model on the samples of all clients."
)


def table_1() -> Study:
    columns = tuple(_column(scenario) for scenario in SCENARIOS)
    title = "FedDAA, Table 1: concepts that change in steps"
    return _study_of_table_1("feddaa-table-1", title, columns, columns)


def released() -> Study:
    """Table 1 with the net and the local training of the released code."""
    columns = tuple(_column(scenario) for scenario in (RELEASED, RELEASED_SMALL))
    # Clients keep a state for each model; with reassignment, models are renumbered in a step.
    methods = tuple(row for row in METHODS if row.label != "feddrift reassigned")
    return replace(
        _study_of_table_1(
            "feddaa-released", "FedDAA, Table 1, as in the released code", columns, columns
        ),
        rows=(*methods, *BASELINES),
        description=(
            f"{WHERE} The net and the local training are those of the released code: 32 and 64 "
            "maps of 5x5 and 2,048 hidden units, weight decay 0.0005, momentum that is kept within "
            "a time step, training on a random 90 % of a shard without the last mini-batch that is "
            f"not full. {RELEASED_SMALL} has 20 clients with 500 images each, {RELEASED} the "
            f"paper's 60 clients with 1,000. {ABOUT} {ABOUT_BASELINES}"
        ),
        quick=(*QUICK, f"local.keep_rounds={QUICK_STEP}"),
    )


def steps() -> Study:
    """The accuracies whose means are Table 1, step by step; the same runs."""
    means = tuple(_column(scenario, "all steps") for scenario in SCENARIOS)
    columns = tuple(
        column
        for mean in means
        for column in (
            mean,
            *(
                _column(mean.scenario, f"step {step}", step=step, metric="accuracy")
                for step in range(1, 7)
            ),
        )
    )
    return _study_of_table_1("feddaa-steps", "FedDAA, Table 1, step by step", columns, means)


def _study_of_table_1(
    name: str, title: str, columns: tuple[Column, ...], means: tuple[Column, ...]
) -> Study:
    """The runs of Table 1; the paper has numbers for the columns `means`."""
    return Study(
        name=name,
        paper="feddaa",
        table="Table 1",
        title=title,
        description=f"{WHERE} {ABOUT} {ABOUT_BASELINES}",
        rows=(*METHODS, *BASELINES),
        columns=columns,
        seeds=SEEDS,
        reference="feddaa",
        published=dict(_published_cells(_parse_lines(printed.TABLE_1), means)),
        metric="step_accuracy",
        quick=QUICK,
    )


def table_2() -> Study:
    """Accuracy on every task at the end; the paper has numbers for CIFAR-10."""
    columns = tuple(column for scenario in SCENARIOS for column in _tasks(scenario))
    published: dict[tuple[str, str], Published] = {}
    for line in printed.TABLE_2.strip().splitlines():
        concept, degrees, *entries = line.split()
        label = f"{CIFAR} ({concept}, {degrees}°) by labels"
        for method, entry in zip(printed.TABLE_2_METHODS, entries, strict=True):
            cell = _parse_number(entry)._replace(cell=f"{method} on ({concept}, {degrees})")
            published |= {(row, label): cell for row in _rows_for(method)}
    return Study(
        name="feddaa-table-2",
        paper="feddaa",
        table="Table 2",
        title="FedDAA, Table 2: accuracy on every task after the last step",
        description=(
            "Accuracy on the whole test set in each of four concepts and three rotations after the "
            "last step. The mixture of models for a task is found by labels (one E-step on its own "
            "labelled test samples; the released code makes one in every round, on nine tenths of "
            "the test set, and measures on the rest) or by oracle (the models that clients with "
            "its concept use). The paper has numbers for CIFAR-10, by labels; its column of FedRC "
            f"repeats that of FedAvg. {ABOUT}"
        ),
        rows=METHODS,
        columns=columns,
        seeds=SEEDS,
        reference="feddaa",
        published=published,
        metric="task_accuracy",
        quick=QUICK,
    )


def figure_4() -> Study:
    """Accuracy over the rounds; the paper draws that on training data."""
    often = (*STEPS[:-1], "evaluate_every=4", "tasks=false")
    return Study(
        name="feddaa-figure-4",
        paper="feddaa",
        table="Figure 4",
        title="FedDAA, Figure 4: accuracy over the rounds",
        description=(
            "The runs of Table 1, evaluated every four rounds: each client with its own models on "
            "the test set in its current view, mean over clients. The paper draws the accuracy on "
            f"training data, on CIFAR-10. {ABOUT}"
        ),
        rows=METHODS,
        columns=tuple(Column(name, often, is_reduced=True) for name in (CIFAR, DENSE)),
        seeds=SEEDS,
        reference="feddaa",
        metric="step_accuracy",
        quick=QUICK,
    )


PARTS = {
    "full": (),
    "without NCD": ("bank.use_ncd=false",),
    "without RDLD": ("bank.use_rdld=false",),
    "without DAA": ("bank.use_daa=false",),
    "true drifts": (TRUE_DRIFTS,),
}
ABOUT_PARTS = (
    "Without NCD there are two models; without RDLD no client counts as drifted; without DAA "
    "clients train on new data only. 'true drifts' is an oracle: the true drifts replace those of "
    "RDLD. 'two steps' is the mean accuracy on the data of a step and of the one before."
)


def ablation() -> Study:
    """Table 3. The paper does not define its rows."""
    columns = tuple(_column(scenario) for scenario in SCENARIOS)
    rows = (
        *(_feddaa(label, GIVEN, *changes) for label, changes in PARTS.items()),
        _feddaa("full, found"),
    )
    table = _parse_lines(printed.TABLE_3)
    numbers = {label.replace("-", " "): published for label, published in table.items()}
    return Study(
        name="feddaa-ablation",
        paper="feddaa",
        table="Table 3",
        title="FedDAA, Table 3: ablation",
        description=(
            f"{WHERE} {ABOUT_PARTS} The numbers of models are given, as in the released code; "
            f"'full, found' estimates them. {ABOUT}"
        ),
        rows=rows,
        columns=tuple(each for column in columns for each in (column, *_retention(column))),
        seeds=SEEDS,
        reference="full",
        published=dict(_published_cells(numbers, columns)),
        metric="step_accuracy",
        quick=QUICK,
    )


def detector() -> Study:
    """The ablation on data on which RDLD finds the drifts, and on data on which it does not."""
    short = ("world.rounds_per_step=15", "rounds=90", "evaluate_every=15", "bank.every=15")
    columns = (Column(DIGITS, short, "15 rounds"), _column(DENSE))
    return Study(
        name="feddaa-detector",
        title="FedDAA without one of its parts, where its detector works and where it does not",
        description=(
            f"{WHERE} {ABOUT_PARTS} The number of models is estimated, and a client counts for a "
            "model by the share of its samples that the model explains. On the digits RDLD finds "
            "the drifts, on Fashion-MNIST it does not; see precision and recall. The digits have "
            "12 clients, steps of 15 rounds and a dense net of 64 units. The paper has no such "
            "table."
        ),
        rows=tuple(_feddaa(label, EXPLAINED, *changes) for label, changes in PARTS.items()),
        columns=tuple(each for column in columns for each in (column, *_retention(column))),
        seeds=SEEDS,
        reference="full",
        metric="step_accuracy",
        quick=(*QUICK, *QUICK_BANK),
    )


def rates() -> Study:
    """Table 4."""
    return _sweep(
        "feddaa-rates",
        "Table 4",
        "FedDAA, Table 4: share of the clients in a round",
        "The columns differ in the share of the clients that are chosen in a round.",
        "rate",
        "selection.fraction",
        _parse_lines(printed.TABLE_4),
        (_feddaa("feddaa"), _feddaa("feddaa given", GIVEN)),
    )


def dirichlet() -> Study:
    """Table 5."""
    return _sweep(
        "feddaa-dirichlet",
        "Table 5",
        "FedDAA, Table 5: with label drift",
        "The class mixes of shards are drawn from Dirichlet(alpha). Prototype rows of classes that "
        "a client does not have are zeros, as in the released code, or imputed.",
        "alpha",
        "world.dirichlet",
        _parse_lines(printed.TABLE_5),
        (
            _feddaa("feddaa"),
            _feddaa("feddaa given", GIVEN),
            _feddaa("feddaa imputed", "bank.missing=impute"),
            _feddaa("feddaa given imputed", GIVEN, "bank.missing=impute"),
        ),
    )


def studies() -> list[Study]:
    return [
        table_1(),
        released(),
        steps(),
        table_2(),
        figure_4(),
        ablation(),
        detector(),
        rates(),
        dirichlet(),
    ]


def _retention(column: Column) -> Iterator[Column]:
    """The same runs: accuracy on all tasks at the end, on two steps, and forgetting, by labels."""
    for about, metric in (
        ("all tasks", "task_accuracy"),
        ("two steps", "two_step_accuracy"),
        ("forgetting", "forgetting"),
    ):
        yield replace(column, note=f"{column.note} {about} by labels".strip(), metric=metric)


def _tasks(scenario: str) -> Iterator[Column]:
    """One column per task by labels; then mean accuracy and forgetting for both assignments."""
    for concept in (1, 2, 3, 4):
        for degrees in ROTATIONS:
            task = f"{concept}, rotated {degrees}" if degrees else f"{concept}, plain"
            yield _column(scenario, f"({concept}, {degrees}°) by labels", task=task)
    for assignment in ASSIGNMENTS:
        yield _column(scenario, f"all tasks by {assignment}", assignment=assignment)
        yield _column(
            scenario,
            f"forgetting by {assignment}",
            assignment=assignment,
            metric="forgetting",
        )


def _sweep(
    name: str,
    table: str,
    title: str,
    about: str,
    note: str,
    field: str,
    numbers: Mapping[str, list[Published]],
    rows: tuple[Row, ...],
) -> Study:
    """FedDAA for several values of one field; all rows are compared with the paper's FedDAA."""
    columns: list[Column] = []
    published: dict[tuple[str, str], Published] = {}
    for scenario, data_column in SCENARIOS.items():
        for value, found in numbers.items():
            column = _column(scenario, f"{note}={value}", f"{field}={value}")
            columns.append(column)
            cell = found[data_column]._replace(cell=f"{value}, data {data_column + 1}")
            published |= {(row.label, column.label): cell for row in rows}
    return Study(
        name=name,
        paper="feddaa",
        table=table,
        title=title,
        description=f"{WHERE} {about} {ABOUT}",
        rows=rows,
        columns=tuple(columns),
        seeds=SEEDS,
        reference="feddaa",
        published=published,
        metric="step_accuracy",
        quick=QUICK,
    )


def _published_cells(
    numbers: Mapping[str, list[Published]], columns: Sequence[Column]
) -> Iterator[tuple[tuple[str, str], Published]]:
    for method, found in numbers.items():
        for column in columns:
            data_column = DATA_COLUMNS[column.scenario]
            cell = found[data_column]._replace(cell=f"{method}, data {data_column + 1}")
            for row in _rows_for(method):
                yield (row, column.label), cell


def _rows_for(method: str) -> tuple[str, ...]:
    """Rows that are shown next to a method of the paper."""
    return {"feddaa": ("feddaa", "feddaa given"), "full": ("full", "full, found")}.get(
        method, (method,)
    )


def _parse_lines(text: str) -> dict[str, list[Published]]:
    lines = (line.split() for line in text.strip().splitlines())
    return {name: [_parse_number(entry) for entry in entries] for name, *entries in lines}


def _parse_number(entry: str) -> Published:
    mean, spread = entry.split("±")
    return Published(float(mean), float(spread))
