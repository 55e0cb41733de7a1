"""A small table about the first rounds of sessions, for runs in which clients come and go."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from thalweg.core.metrics import METRICS
from thalweg.report.cells import Cell, group_by_recipe
from thalweg.report.numbers import NONE, format_metric
from thalweg.report.summary import Spread, spread
from thalweg.report.table import ExtraTable, TableColumn

if TYPE_CHECKING:
    from thalweg.evaluation import Transition

MAX_SESSIONS = 8  # sessions with their own column; the mean is over all sessions
MAX_LINES = 8  # transitions that a single run prints
CAPTION = (
    "Accuracy over the first ten rounds of each session, from the second session (number 1) on, in "
    "%, on the test samples with a label that some member has; the same holds for all accuracies "
    "of this comparison. recovered: transitions after which accuracy reached the last accuracy of "
    "the previous session, measured on that session's labels; after: mean round of the session in "
    "which this happened. stayers, newcomers: accuracy at members that were, and were not, members "
    "of the previous session. rounds: of these sessions, + probe rounds."
)


ERROR_CAPTION = (
    "Mean absolute error over the first ten rounds of each session, from the second session "
    "(number 1) on, on the test samples of its members; lower is better. recovered: transitions "
    "after which the error was as low as the last error of the previous session; after: mean round "
    "of the session in which this happened. stayers, newcomers: error at members that were, and "
    "were not, members of the previous session. rounds: of these sessions, + probe rounds."
)


def transition_table(cells: Sequence[Cell]) -> ExtraTable:
    """Transitions by recipe, over the finished seeds; no columns without sessions."""
    is_error = any("session_mae" in row for cell in cells for row in cell.rows)
    columns = transition_columns(cells)
    caption = ERROR_CAPTION if is_error else CAPTION
    found = [column.heading.partition("session ")[2] for column in columns]
    numbers = [int(number) for number in found if number]
    if numbers and numbers != list(range(numbers[0], numbers[-1] + 1)):
        caption += " Sessions without a column were not evaluated in their first ten rounds."
    return ExtraTable("Transitions", columns, caption)


def transition_columns(cells: Sequence[Cell]) -> list[TableColumn]:
    from thalweg.evaluation import transitions  # imports NumPy

    groups = {
        recipe: [transitions(cell.rows) for cell in group if cell.is_done]
        for recipe, group in group_by_recipe(cells).items()
    }
    sessions = sorted({t.session for seeds in groups.values() for seed in seeds for t in seed})
    if not sessions:
        return []
    both = [_mean_column(groups, name, f"{name}_accuracy") for name in ("stayers", "newcomers")]
    if set(both[0].entries) == {NONE}:  # all members are new in every session
        both = []
    shown = [
        *(_session_column(groups, session) for session in sessions[:MAX_SESSIONS]),
        _mean_column(groups, "mean of all", "transition_accuracy"),
        TableColumn("recovered", [_format_recovered(seeds) for seeds in groups.values()]),
        TableColumn("after", [_format_recovery_rounds(seeds) for seeds in groups.values()]),
        *both,
        TableColumn("rounds", [_rounds(seeds) for seeds in groups.values()]),
    ]
    return [
        TableColumn("recipe", list(groups)),
        *(column for column in shown if set(column.entries) != {NONE}),
    ]


def transition_lines(found: Sequence[Transition]) -> list[str]:
    """What a single run prints about its transitions; the last ones if there are many.

    >>> from thalweg.evaluation import Transition
    >>> one = Transition(1, 50, 51, 0.9, 0.42, 10, 12, None, 0.4)
    >>> print(*transition_lines([one, one._replace(session=2, rounds_to_recover=None)]), sep="\\n")
    session 1: 0.4200 over its first 10 rounds, 0.9000 before, recovered in round 12
    session 2: 0.4200 over its first 10 rounds, 0.9000 before, not recovered in 50 rounds
    """
    lines = [_line(transition) for transition in found[-MAX_LINES:]]
    left_out = len(found) - len(lines)
    return [f"... and {left_out} earlier ones in summary.json", *lines] if left_out else lines


def _line(t: Transition) -> str:
    from thalweg.evaluation.transitions import FIRST_ROUNDS

    if t.transition_accuracy is None:
        return f"session {t.session}: not evaluated in its first {FIRST_ROUNDS} rounds"
    first = min(FIRST_ROUNDS, t.rounds)
    over = f"its first {first} rounds" if first > 1 else "its only round"
    some = "" if t.rounds_averaged == first else f"{t.rounds_averaged} of "
    text = f"session {t.session}: {t.transition_accuracy:.4f} over {some}{over}"
    if t.accuracy_before is None:
        return text
    recovery = f"not recovered in {t.rounds} round{'' if t.rounds == 1 else 's'}"
    if t.rounds_to_recover is not None:
        recovery = f"recovered in round {t.rounds_to_recover}"
    return f"{text}, {t.accuracy_before:.4f} before, {recovery}"


Groups = dict[str, list[list["Transition"]]]  # recipe -> seeds -> transitions


def _session_column(groups: Groups, session: int) -> TableColumn:
    texts = [
        _format_spread(
            groups,
            spread(t.transition_accuracy for seed in seeds for t in seed if t.session == session),
        )
        for seeds in groups.values()
    ]
    return TableColumn(f"session {session}", texts)


def _mean_column(groups: Groups, heading: str, metric: str) -> TableColumn:
    """The mean over the transitions of a run, then over seeds."""
    texts = []
    for seeds in groups.values():
        measured = [[v for t in seed if (v := getattr(t, metric)) is not None] for seed in seeds]
        texts.append(_format_spread(groups, spread(fmean(each) for each in measured if each)))
    return TableColumn(heading, texts)


def _format_spread(groups: Groups, value: Spread | None) -> str:
    """Accuracies in per cent, errors in the unit of the targets."""
    is_error = any(t.is_error for seeds in groups.values() for seed in seeds for t in seed)
    return format_metric(METRICS["mae" if is_error else "accuracy"], value)


def _format_recovered(seeds: Sequence[Sequence[Transition]]) -> str:
    lost = [t for seed in seeds for t in seed if t.accuracy_before is not None]
    found = sum(t.rounds_to_recover is not None for t in lost)
    return f"{found} of {len(lost)}" if lost else NONE


def _format_recovery_rounds(seeds: Sequence[Sequence[Transition]]) -> str:
    rounds = [t.rounds_to_recover for seed in seeds for t in seed if t.rounds_to_recover]
    return f"{fmean(rounds):.1f}" if rounds else NONE


def _rounds(seeds: Sequence[Sequence[Transition]]) -> str:
    """Rounds of one run: ``250``, or ``250 + 5`` with probe rounds."""
    if not any(seeds):
        return NONE
    rounds = fmean(sum(t.rounds for t in seed) for seed in seeds)
    more = fmean(sum(t.counted_rounds - t.rounds for t in seed) for seed in seeds)
    return f"{rounds:g}" + (f" + {more:g}" if more else "")
