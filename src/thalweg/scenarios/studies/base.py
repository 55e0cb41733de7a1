"""A study: recipes x scenarios x seeds, and the resulting table."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from thalweg.core.errors import UnknownName, require
from thalweg.core.metrics import METRICS, metrics_in
from thalweg.core.published import Published
from thalweg.evaluation import Assignment

STUDY_METRICS = [metric.name for metric in metrics_in("study")]
TASK_METRICS = ("task_accuracy", "two_step_accuracy", "forgetting")
SESSION_METRICS = ("transition_accuracy", "crossing_accuracy")


@dataclass(frozen=True)
class Column:
    """One column of a table: a scenario and overrides.

    >>> Column("cifar10-full", ("world.num_clients=10",), "N=10").label
    'cifar10-full N=10'
    """

    scenario: str
    overrides: tuple[str, ...] = ()
    """Overrides in the syntax of ``--set``."""
    note: str = ""
    """Distinguishes this column from others of the same scenario."""
    rows: tuple[str, ...] = ()
    """Labels of the rows that have a cell in this column; empty: all rows."""
    until: int | None = None
    """Evaluate runs after this round; None: at their end."""
    after: int | None = None
    """Leave out the rounds up to this one, for a metric that is a mean over the rounds; None: use
    all rounds.
    """
    session: int | None = None
    """Evaluate runs at the end of this session (counted from 0) or, for the transition accuracy, in
    its first ten rounds (crossing accuracy: four); None: at their end.
    """
    step: int | None = None
    """Evaluate runs at the end of this step between drifts (counted from 1); None: at their end."""
    metric: str | None = None
    """Metric of this column; None: the metric of the study."""
    task: str = ""
    """Task on which accuracy is measured; empty: all tasks."""
    assignment: Assignment = "labels"
    """How tasks are assigned a mixture of models; the note states it."""
    table: str = ""
    """Table or figure of the paper, such as ``Table 4``; empty: that of the study."""
    is_reduced: bool = False
    """Smaller than in the paper: net, clients, samples or rounds."""

    @property
    def label(self) -> str:
        return f"{self.scenario} {self.note}".strip()


@dataclass(frozen=True)
class Row:
    """One row of a table: a recipe with overrides."""

    label: str
    recipe: str = ""
    """``"sfedpo,forecast=bayesian"``; empty: the label."""
    against: str = ""
    """Label of the row to compare with; empty: the study's reference."""
    best_of: tuple[str, ...] = ()
    """Rows without runs: the run of these rows with the best validation accuracy, per seed."""
    quick: tuple[str, ...] = ()
    """Overrides of this row in a quick run, in addition to those of the study."""
    once: bool = False
    """Run with the first seed only, because the result does not depend on the seed."""

    @property
    def recipe_spec(self) -> str:
        return self.recipe or self.label


@dataclass(frozen=True)
class Study:
    """A table to compute: every row on every column with every seed."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    seeds: tuple[int, ...]
    reference: str
    """Label of the row with which the others are compared, seed by seed."""
    published: Mapping[tuple[str, str], Published] = field(default_factory=dict)
    """Published numbers by (row label, column label)."""
    metric: str = "accuracy"
    """Metric of the table, unless a column sets its own."""
    spread: Literal["deviation", "bound"] = "deviation"
    """Number after the ±: the standard deviation over seeds, or the 95 % bound of the mean."""
    quick: tuple[str, ...] = ()
    """Overrides for a quick run; empty: a tenth of the rounds."""
    paper: str = ""
    """Key of the paper (``papers.PAPERS``); empty: the study is not from a paper."""
    table: str = ""
    """Table or figure of the paper, such as ``Table 3``, unless a column sets its own."""
    curves: tuple[str, ...] = ()
    """Metrics that the page draws over the rounds, besides those of every page."""
    recipes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Recipes of single cells, by (row label, column label), if they are not that of the row."""
    left_out: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Cells that cannot be run, by (row label, column label), with the reasons."""

    def __post_init__(self) -> None:
        require(
            re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", self.name) is not None,
            "the name of a study may contain letters, digits, '.', '_', '+' and '-'; got "
            f"{self.name!r}.",
        )
        require(len(self.seeds) > 0, f"study {self.name!r} needs at least one seed.")
        require(
            len(set(self.seeds)) == len(self.seeds), f"{self.name}: the seeds must be different."
        )
        for what, labels in (("row", self.row_labels), ("column", self.column_labels)):
            require(len(labels) > 0, f"study {self.name!r} needs at least one {what}.")
            twice = sorted({label for label in labels if labels.count(label) > 1})
            require(
                not twice, f"{self.name}: more than one {what} has the label {', '.join(twice)}."
            )
        for row_label, column_label in (*self.recipes, *self.left_out):
            require(
                row_label in self.row_labels and column_label in self.column_labels,
                f"{self.name}: there is no cell {row_label} on {column_label}.",
            )
        require(
            len(set(self.left_out.values())) <= len(string.ascii_lowercase),
            f"{self.name}: cells are left out for more reasons than there are letters.",
        )
        for metric in self.curves:
            if metric not in METRICS:
                raise UnknownName("metric", metric, METRICS)
        for row in self.rows:
            unknown = [label for label in row.best_of if label not in self.row_labels]
            require(
                not unknown,
                f"{self.name}: {row.label} is the best of {unknown}, which do not exist.",
            )
        for column in self.columns:
            if self.metric_of(column) not in STUDY_METRICS:
                raise UnknownName("metric of a study", self.metric_of(column), STUDY_METRICS)
            require(
                self.metric_of(column) not in SESSION_METRICS or column.session is not None,
                f"{self.name}: {column.label} shows {self.metric_of(column)}; set the session of "
                "the column.",
            )
            require(
                column.after is None or METRICS[self.metric_of(column)].over_rounds == "mean",
                f"{self.name}: {column.label} leaves out rounds up to {column.after}; expected a "
                "metric that is a mean over the rounds, such as prequential_accuracy, got "
                f"{self.metric_of(column)}. Remove 'after'.",
            )
            require(
                self.metric_of(column) in ("accuracy", "client_accuracy")
                or not any(row.best_of for row in self.rows_of(column)),
                f"{self.name}: the best row is chosen by validation accuracy, which "
                f"{self.metric_of(column)} of {column.label} does not have.",
            )
            require(
                self.metric_of(column) not in TASK_METRICS or column.assignment in column.note,
                f"{self.name}: the tasks of {column.label} get their mixtures by "
                f"{column.assignment}; the note of the column must state it (such as 'by "
                f"{column.assignment}').",
            )

    @property
    def row_labels(self) -> list[str]:
        return [row.label for row in self.rows]

    @property
    def column_labels(self) -> list[str]:
        return [column.label for column in self.columns]

    def rows_of(self, column: Column) -> list[Row]:
        """Rows that have a cell in a column."""
        return [
            row
            for row in self.rows
            if (not column.rows or row.label in column.rows)
            and (row.label, column.label) not in self.left_out
        ]

    def recipe_of(self, row: Row, column: Column) -> str:
        """Recipe of a cell with its overrides."""
        return self.recipes.get((row.label, column.label), row.recipe_spec)

    @property
    def marks(self) -> dict[str, str]:
        """Letters for the reasons why cells are left out, by reason.

        >>> rows, columns = (Row("is"), Row("ode")), (Column("mnist"),)
        >>> left_out = {("ode", "mnist"): "it has no memory"}
        >>> Study("s", "", "", rows, columns, (0,), "is", left_out=left_out).marks
        {'it has no memory': 'a'}
        """
        reasons = dict.fromkeys(self.left_out.values())
        return {reason: string.ascii_lowercase[i] for i, reason in enumerate(reasons)}

    def mark_of(self, row: str, column: str) -> str:
        """Letter of the reason why a cell is left out; empty if it is not."""
        reason = self.left_out.get((row, column))
        return "" if reason is None else self.marks[reason]

    def describe_left_out(self) -> str:
        """The reasons why cells are left out, with their letters; empty if there are none."""
        found = "; ".join(f"{mark}: {reason}" for reason, mark in self.marks.items())
        return f" Empty cells: {found}." if found else ""

    def metric_of(self, column: Column) -> str:
        """Metric of a column."""
        return column.metric or self.metric

    def table_of(self, column: Column) -> str:
        """Table or figure of the paper that a column belongs to."""
        return column.table or self.table

    def published_cell(self, row: str, column: str) -> str | None:
        """Name of the paper's cell that an entry shows, or None; entries may share a cell."""
        number = self.published.get((row, column))
        if number is None or number.cell is None:
            return None
        return number.cell or f"{row} on {column}"

    def against(self, row: Row) -> str | None:
        """Label of the row with which `row` is compared; None for the reference row."""
        label = row.against or self.reference
        return None if label == row.label else label

    @property
    def num_cells(self) -> int:
        """Number of different runs; columns and rows may share runs."""
        seeds_of = {
            (self.recipe_of(row, column), column.scenario, column.overrides): len(
                self.seeds_of(row)
            )
            for column in self.columns
            for row in self.rows_of(column)
            if not row.best_of
        }
        return sum(seeds_of.values())

    def seeds_of(self, row: Row) -> tuple[int, ...]:
        """Seeds with which a row is run."""
        return self.seeds[:1] if row.once else self.seeds


def split_words(texts: Iterable[str], study: Study) -> list[str]:
    """Split texts at commas, but keep labels that contain commas.

    >>> rows = (Row("flash"), Row("flash, slow"), Row("is"))
    >>> study = Study("s", "", "", rows, (Column("mnist"),), (0,), "is")
    >>> split_words(["is,flash, slow", "flash"], study)
    ['is', 'flash, slow', 'flash']
    """
    labels, words = {*study.row_labels, *study.column_labels}, []
    for text in texts:
        pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
        while pieces:
            joined = [", ".join(pieces[:number]) for number in range(len(pieces), 0, -1)]
            word = next((each for each in joined if each in labels), pieces[0])
            words.append(word)
            del pieces[: word.count(",") + 1]
    return words


def restrict_study(study: Study, only: Iterable[str]) -> Study:
    """The part of a study that matches some words.

    A word selects the rows or columns whose label contains it; a word that equals a label selects
    only that one. Words for rows and words for columns are combined; words of one kind are
    alternatives.

    >>> rows, columns = (Row("is"), Row("ode")), (Column("mnist"), Column("digits"))
    >>> study = Study("s", "", "", rows, columns, (0,), "is")
    >>> part = restrict_study(study, ["is", "dig"])
    >>> part.row_labels, part.column_labels
    (['is'], ['digits'])
    """
    rows: set[str] = set()
    columns: set[str] = set()
    for word in only:
        of_rows = _matches(word, study.row_labels)
        of_columns = _matches(word, study.column_labels)
        if word in of_rows and word not in of_columns:
            of_columns = []
        elif word in of_columns and word not in of_rows:
            of_rows = []
        if not of_rows and not of_columns:
            known = [*study.row_labels, *study.column_labels]
            raise UnknownName(f"row or column of {study.name}", word, known)
        rows |= set(of_rows)
        columns |= set(of_columns)
    for row in study.rows:  # a best-of row needs the rows that it chooses from
        rows |= set(row.best_of) if row.label in rows else set()
    kept = select_part(
        study,
        [row for row in study.rows if not rows or (row.label in rows and set(row.best_of) <= rows)],
        [column for column in study.columns if not columns or column.label in columns],
    )
    columns_left = [column for column in kept.columns if kept.rows_of(column)]
    require(
        len(columns_left) > 0,
        f"no cells of {study.name} are left: its columns {', '.join(kept.column_labels)} have no "
        f"cells in the rows {', '.join(kept.row_labels)}.",
    )
    return select_part(kept, kept.rows, columns_left)


def select_part(study: Study, rows: Sequence[Row], columns: Sequence[Column]) -> Study:
    """The study with some of its rows and columns."""
    labels = {(row.label, column.label) for row in rows for column in columns}
    return replace(
        study,
        rows=tuple(rows),
        columns=tuple(columns),
        recipes={cell: recipe for cell, recipe in study.recipes.items() if cell in labels},
        left_out={cell: reason for cell, reason in study.left_out.items() if cell in labels},
    )


def replace_data(study: Study, data: str) -> Study:
    """The same study on another data set, without the published numbers.

    For the data set ``digits``, the scenario ``cifar10-full`` becomes ``digits-full``,
    ``churn-mnist`` becomes ``churn-digits`` and ``drift-cifar10`` becomes ``drift-digits``.
    """
    require(
        not study.recipes and not study.left_out,
        f"the data of {study.name} cannot be replaced, because its recipes depend on them.",
    )
    columns = []
    for column in study.columns:
        scenario = re.sub(r"^.*-(full|partial)$", rf"{data}-\1", column.scenario)
        scenario = re.sub(r"^(churn|drift|alarms)-.*$", rf"\1-{data}", scenario)
        columns.append(replace(column, scenario=scenario, table="", is_reduced=False))
    return replace(
        study,
        name=f"{study.name}-{data}",
        title=f"{study.title}, on {data}",
        columns=tuple(dict.fromkeys(columns)),
        published={},
        paper="",
        table="",
    )


def _matches(word: str, labels: Sequence[str]) -> list[str]:
    return [word] if word in labels else [label for label in labels if word in label]
