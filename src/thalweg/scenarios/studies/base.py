"""A study: recipes x scenarios x seeds, and the table that a paper made of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from thalweg.core.errors import UnknownName, require
from thalweg.core.published import Published
from thalweg.evaluation import Assignment

Metric = Literal[
    "accuracy",  # on the test set
    "client_accuracy",  # its mean over the clients
    "session_accuracy",  # on the labels of those who are members
    "stayers_accuracy",  # at members of the session before, too
    "newcomers_accuracy",  # at the others
    "transition_accuracy",  # session accuracy, averaged over the first ten rounds of a session
    "prequential_accuracy",  # on what arrives, before it is learnt from, averaged over all rounds
    "step_accuracy",  # accuracy, averaged over the steps between drifts, each as it ended
    "task_accuracy",  # on one task, or averaged over all, with mixtures found as the column says
    "forgetting",  # the best accuracy on a task before minus that in the end, averaged over tasks
]
TASK_METRICS: tuple[Metric, ...] = ("task_accuracy", "forgetting")
LOWER_IS_BETTER: tuple[Metric, ...] = ("forgetting",)


@dataclass(frozen=True)
class Column:
    """One problem of a table: a scenario, and what is changed in it.

    >>> Column("cifar10-full", ("world.num_clients=10",), "N=10").label
    'cifar10-full N=10'
    """

    scenario: str
    overrides: tuple[str, ...] = ()
    """Changes as ``--set`` takes them."""
    note: str = ""
    """What tells this column from others of the same scenario."""
    rows: tuple[str, ...] = ()
    """Labels of the rows that have a cell here; none: all of them."""
    until: int | None = None
    """Look at runs as they were after this round; none: at their end."""
    session: int | None = None
    """Look at runs as they were at the end of the session with this number (the first one has number 0), or, for
    the accuracy of a transition, in its first ten rounds; none: at their end."""
    metric: Metric | None = None
    """What this column shows; none: what the study shows."""
    task: str = ""
    """The task that accuracy is measured on; empty: all of them."""
    assignment: Assignment = "labels"
    """How tasks are given a mixture of models; the note says so."""

    @property
    def label(self) -> str:
        return f"{self.scenario} {self.note}".strip()


@dataclass(frozen=True)
class Row:
    """One method of a table: a recipe, spelled with its changes."""

    label: str
    recipe: str = ""
    """``"sfedpo,forecast=bayesian"``; empty: the label."""
    against: str = ""
    """Label of the row that this one is paired with; empty: the study's reference."""
    best_of: tuple[str, ...] = ()
    """No runs of its own: per seed, that of these rows which does best on the validation part."""
    quick: tuple[str, ...] = ()
    """Changes of this row in a quick look, beside those of the study."""

    @property
    def recipe_spec(self) -> str:
        return self.recipe or self.label


@dataclass(frozen=True)
class Study:
    """A table to fill: every row on every column with every seed."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    seeds: tuple[int, ...]
    reference: str
    """Label of the row that the others are paired with, seed by seed."""
    published: Mapping[tuple[str, str], Published] = field(default_factory=dict)
    """What the paper has, by (row label, column label)."""
    metric: Metric = "accuracy"
    """What the table shows, unless a column shows something else."""
    spread: Literal["deviation", "bound"] = "deviation"
    """What stands after the ±: the standard deviation over seeds, or the 95 % bound of the mean."""
    quick: tuple[str, ...] = ()
    """Changes that make its runs short, for a quick look; none: a tenth of the rounds."""

    def __post_init__(self) -> None:
        require(
            re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", self.name) is not None,
            f"a study's name becomes a folder: letters, digits, '.', '_', '+', '-'; got {self.name!r}.",
        )
        require(len(self.seeds) > 0, f"study {self.name!r} needs at least one seed.")
        require(len(set(self.seeds)) == len(self.seeds), f"{self.name}: a seed is named twice.")
        for what, labels in (("row", self.row_labels), ("column", self.column_labels)):
            require(len(labels) > 0, f"study {self.name!r} needs at least one {what}.")
            twice = sorted({label for label in labels if labels.count(label) > 1})
            require(not twice, f"{self.name}: more than one {what} is called {', '.join(twice)}.")
        for row in self.rows:
            strange = [label for label in row.best_of if label not in self.row_labels]
            require(
                not strange,
                f"{self.name}: {row.label} is the best of {strange}, which do not exist.",
            )
        for column in self.columns:
            require(
                self.metric_of(column) != "transition_accuracy" or column.session is not None,
                f"{self.name}: {column.label} shows the accuracy of a transition, but not of which; give "
                "it a session.",
            )
            require(
                self.metric_of(column) in ("accuracy", "client_accuracy")
                or not any(row.best_of for row in self.rows_of(column)),
                f"{self.name}: the best of some rows is chosen by validation, which {self.metric_of(column)} "
                f"of {column.label} does not have.",
            )
            require(
                self.metric_of(column) not in TASK_METRICS or column.assignment in column.note,
                f"{self.name}: mixtures for the tasks of {column.label} are found by {column.assignment}; say "
                f"so in its note (such as 'by {column.assignment}').",
            )

    @property
    def row_labels(self) -> list[str]:
        return [row.label for row in self.rows]

    @property
    def column_labels(self) -> list[str]:
        return [column.label for column in self.columns]

    def rows_of(self, column: Column) -> list[Row]:
        """The rows that have a cell in a column."""
        return [row for row in self.rows if not column.rows or row.label in column.rows]

    def metric_of(self, column: Column) -> Metric:
        """What a column shows."""
        return column.metric or self.metric

    def against(self, row: Row) -> str | None:
        """The row that `row` is paired with; None: it is the one that others are paired with."""
        label = row.against or self.reference
        return None if label == row.label else label

    @property
    def num_cells(self) -> int:
        """Runs; columns that look at one run at different times have it in common, rows with one recipe too."""
        runs = {
            (row.recipe_spec, column.scenario, column.overrides)
            for column in self.columns
            for row in self.rows_of(column)
            if not row.best_of
        }
        return len(self.seeds) * len(runs)


def split_words(texts: Iterable[str], study: Study) -> list[str]:
    """Words with commas between them; pieces that are a label together are one word.

    >>> rows = (Row("flash"), Row("flash, slow"), Row("is"))
    >>> split_words(["is,flash, slow", "flash"], Study("s", "", "", rows, (Column("mnist"),), (0,), "is"))
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
    """The part of a study that is asked for.

    A word restricts the rows or the columns, whichever have it in their label; a word that is a
    label restricts to that one alone. Words for rows and words for columns go together; among
    themselves they add up.

    >>> study = Study("s", "", "", (Row("is"), Row("ode")), (Column("mnist"), Column("digits")), (0,), "is")
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
    for row in study.rows:  # who is asked for the best of some needs those
        rows |= set(row.best_of) if row.label in rows else set()
    kept = replace(
        study,
        rows=tuple(
            row
            for row in study.rows
            if not rows or (row.label in rows and set(row.best_of) <= rows)
        ),
        columns=tuple(col for col in study.columns if not columns or col.label in columns),
    )
    columns_left = tuple(column for column in kept.columns if kept.rows_of(column))
    require(
        len(columns_left) > 0,
        f"nothing of {study.name} is left: its columns {', '.join(kept.column_labels)} have no "
        f"cells in the rows {', '.join(kept.row_labels)}.",
    )
    return replace(kept, columns=columns_left)


def replace_data(study: Study, data: str) -> Study:
    """The same study on another data set; the paper's numbers do not come along.

    The scenario ``cifar10-full`` becomes ``digits-full`` for the data set ``digits``, ``churn-mnist`` becomes
    ``churn-digits``, ``drift-cifar10`` ``drift-digits``, and so on.
    """
    columns = []
    for column in study.columns:
        scenario = re.sub(r"^.*-(full|partial)$", rf"{data}-\1", column.scenario)
        scenario = re.sub(r"^(churn|drift|alarms)-.*$", rf"\1-{data}", scenario)
        columns.append(replace(column, scenario=scenario))
    return replace(
        study,
        name=f"{study.name}-{data}",
        title=f"{study.title}, on {data}",
        columns=tuple(dict.fromkeys(columns)),
        published={},
    )


def _matches(word: str, labels: Sequence[str]) -> list[str]:
    return [word] if word in labels else [label for label in labels if word in label]
