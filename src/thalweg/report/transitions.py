"""How sessions began: a small table for runs in which clients come and go."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from thalweg.report.cells import Cell, group_by_recipe
from thalweg.report.extras import ExtraTable, extra_markdown, extra_rich, extra_section
from thalweg.report.numbers import NONE, percent_spread
from thalweg.report.summary import spread
from thalweg.report.table import TableColumn

if TYPE_CHECKING:
    from rich.table import Table

    from thalweg.evaluation import Transition

TITLE = "Transitions"
MAX_SESSIONS = 8  # that have a column of their own; the mean is over all of them
MAX_LINES = 8  # transitions that a single run prints
CAPTION = (
    "Accuracy over the first ten rounds of each session, from the second one (number 1) on, in %: the test "
    "samples are those with a label that some member has, here and wherever accuracy is shown. back: transitions "
    "after which accuracy was at least what the session before had ended with, on its own labels; after: in which "
    "round of the session, on average over those. stayers, newcomers: at members who were, and were not, members "
    "before. rounds: of these sessions, and rehearsals."
)


def transition_columns(cells: Sequence[Cell]) -> list[TableColumn]:
    """Recipe by recipe, over the finished seeds; empty if no finished run has a transition."""
    from thalweg.evaluation import transitions  # NumPy can wait until now

    groups = {
        recipe: [transitions(cell.rows) for cell in group if cell.is_done]
        for recipe, group in group_by_recipe(cells).items()
    }
    sessions = sorted({t.session for seeds in groups.values() for seed in seeds for t in seed})
    if not sessions:
        return []
    both = [_mean_column(groups, name, f"{name}_accuracy") for name in ("stayers", "newcomers")]
    if set(both[0].entries) == {NONE}:  # everybody is new in every session
        both = []
    shown = [
        *(_session_column(groups, session) for session in sessions[:MAX_SESSIONS]),
        _mean_column(groups, "mean of all", "transition_accuracy"),
        TableColumn("back", [_format_recovered(seeds) for seeds in groups.values()]),
        TableColumn("after", [_format_recovery_rounds(seeds) for seeds in groups.values()]),
        *both,
        TableColumn("rounds", [_rounds(seeds) for seeds in groups.values()]),
    ]
    return [
        TableColumn("recipe", list(groups)),
        *(column for column in shown if set(column.entries) != {NONE}),
    ]


def transition_section(cells: Sequence[Cell]) -> str:
    """For a page; empty without transitions."""
    return extra_section(_extra(cells))


def transition_markdown(cells: Sequence[Cell]) -> str:
    """The same below a table in Markdown."""
    return extra_markdown(_extra(cells))


def transition_rich(cells: Sequence[Cell], *, width: int = 80) -> Table | None:
    """The same for a terminal."""
    return extra_rich(_extra(cells), width=width)


def _extra(cells: Sequence[Cell]) -> ExtraTable:
    return ExtraTable(TITLE, transition_columns(cells), CAPTION)


def transition_lines(found: Sequence[Transition]) -> list[str]:
    """What a single run says of its transitions; of many, the last ones.

    >>> from thalweg.evaluation import Transition
    >>> one = Transition(1, 50, 51, 0.9, 0.42, 10, 12, None, 0.4)
    >>> print(*transition_lines([one, one._replace(session=2, rounds_to_recover=None)]), sep="\\n")
    session 1: 0.4200 over its first 10 rounds, 0.9000 before, back in round 12
    session 2: 0.4200 over its first 10 rounds, 0.9000 before, not back in 50 rounds
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
    back = f"not back in {t.rounds} round{'' if t.rounds == 1 else 's'}"
    if t.rounds_to_recover is not None:
        back = f"back in round {t.rounds_to_recover}"
    return f"{text}, {t.accuracy_before:.4f} before, {back}"


Groups = dict[str, list[list["Transition"]]]  # recipe -> seeds -> transitions


def _session_column(groups: Groups, session: int) -> TableColumn:
    texts = [
        percent_spread(
            spread(t.transition_accuracy for seed in seeds for t in seed if t.session == session)
        )
        for seeds in groups.values()
    ]
    return TableColumn(f"session {session}", texts)


def _mean_column(groups: Groups, heading: str, metric: str) -> TableColumn:
    """Over the transitions of a run, then over seeds."""
    texts = []
    for seeds in groups.values():
        measured = [[v for t in seed if (v := getattr(t, metric)) is not None] for seed in seeds]
        texts.append(percent_spread(spread(fmean(values) for values in measured if values)))
    return TableColumn(heading, texts)


def _format_recovered(seeds: Sequence[Sequence[Transition]]) -> str:
    lost = [t for seed in seeds for t in seed if t.accuracy_before is not None]
    found = sum(t.rounds_to_recover is not None for t in lost)
    return f"{found} of {len(lost)}" if lost else NONE


def _format_recovery_rounds(seeds: Sequence[Sequence[Transition]]) -> str:
    rounds = [t.rounds_to_recover for seed in seeds for t in seed if t.rounds_to_recover]
    return f"{fmean(rounds):.1f}" if rounds else NONE


def _rounds(seeds: Sequence[Sequence[Transition]]) -> str:
    """``250``, or ``250 + 5`` with rehearsals; of one run."""
    if not any(seeds):
        return NONE
    rounds = fmean(sum(t.rounds for t in seed) for seed in seeds)
    more = fmean(sum(t.counted_rounds - t.rounds for t in seed) for seed in seeds)
    return f"{rounds:g}" + (f" + {more:g}" if more else "")
