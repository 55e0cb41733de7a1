"""The errors that Thalweg raises.

ThalwegError
├── ConfigError     a recipe, scenario or option that cannot be built     (before the run)
│   ├── UnknownName an unknown name, with the nearest known one
│   └── UnknownComponent a name that is not in the catalogue
├── DataError       a data set is missing, truncated or inconsistent      (before the run)
├── RunError        the run folder cannot be used: unwritable, full, or of another configuration
├── Diverged        a loss or an update is not finite                     (the run can be resumed)
└── BadMessage      a received message is damaged, unknown or invalid
    └── ShapeMismatch an update does not have the shape of the model
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from thalweg.core.wrapped_text import wrap_message

MAX_LISTED = 20  # names in a message
MAX_COMPARED = 5_000  # names that are compared with an unknown one
MAX_CLOSE = 3  # suggestions in a message
NOT_FINITE = "is not a finite number"  # in messages of `Diverged`


class ThalwegError(Exception):
    """Base class of all errors of this package; the command line shows the message only."""


class ConfigError(ThalwegError, ValueError):
    """A recipe, a scenario or an option is invalid."""


class UnknownName(ConfigError):
    """A name is not in the table in which it was looked up.

    A short table is listed. Of a long one only the closest names are shown. `see` is a command that
    lists it.

    >>> str(UnknownName("part", "wheal", ["wheel", "seat"]))
    "unknown part 'wheal'; known: seat, wheel. Did you mean 'wheel'?"
    >>> str(UnknownName("recipe", "fedavgg", ["fedavg", "sfedpo"], see="thalweg list"))
    "unknown recipe 'fedavgg'. Did you mean 'fedavg'? See `thalweg list`."
    """

    def __init__(self, what: str, name: str, known: Iterable[str], see: str = "") -> None:
        known = sorted(set(known))
        close = find_close(name, known, cutoff=0.5)
        hint = f" Did you mean {' or '.join(map(repr, close[:MAX_CLOSE]))}?" if close else ""
        listed = f"; known: {format_names(known) or 'none'}."
        if see or (close and len(known) > MAX_LISTED):
            listed = "."
        more = f" See `{see}`." if see else ""
        super().__init__(f"unknown {what} {name!r}{listed}{hint}{more}")


class UnknownComponent(ConfigError):
    """A name is not in the catalogue, which is too long for a list in the message."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        close = find_close(name, known, cutoff=0.7)
        hint = f" Did you mean {' or '.join(map(repr, close[:MAX_CLOSE]))}?" if close else ""
        super().__init__(f"unknown name {name!r}.{hint} `thalweg list` shows all names.")


class DataError(ThalwegError):
    """A data set is missing, truncated or inconsistent."""


class RunError(ThalwegError):
    """A run folder cannot be created, written or resumed."""


class Diverged(ThalwegError):
    """A loss or an update is not finite."""


class BadMessage(ThalwegError):
    """A received message is damaged, unknown or invalid; no state was changed."""


class ShapeMismatch(BadMessage):
    """An update does not have the shape of the model."""


def find_close(name: str, known: Iterable[str], cutoff: float) -> list[str]:
    """Return the known names that are most similar to a name; several if they are equally similar.

    A name of several words (``digits-full``) is also compared by its first words.

    >>> find_close("digts", ["digits-full", "digits-partial", "flights"], 0.5)
    ['digits-full', 'digits-partial']
    """
    scores: dict[str, float] = {}
    for each in sorted(set(known))[:MAX_COMPARED]:
        words = each.split("-")
        starts = ["-".join(words[: i + 1]) for i in range(len(words))]
        scores[each] = max(_compute_similarity(name, start) for start in starts)
    best = max(scores.values(), default=0.0)
    return [each for each, score in scores.items() if score == best >= cutoff]


def format_names(names: Sequence[str]) -> str:
    """Return names for a message; of many, the first ones and the number of the others.

    >>> format_names([f"c{i}" for i in range(300_000)])[-40:]
    'c15, c16, c17, c18, c19 and 299,980 more'
    """
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _compute_similarity(first: str, second: str) -> float:
    return difflib.SequenceMatcher(None, first.lower(), second.lower()).ratio()


def require(condition: bool, message: str) -> None:
    """Raise a `ConfigError` with this message unless the condition holds.

    >>> require(0.5 <= 1, "never shown")
    >>> require(2 <= 1, "budget must lie in (0, 1], got 2.")
    Traceback (most recent call last):
    thalweg.core.errors.ConfigError: budget must lie in (0, 1], got 2.
    """
    if not condition:
        raise ConfigError(message)


def format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Return the text of a warning for the terminal, without a line of source, in 80 columns.

    Commands and worker processes use it in place of ``warnings.formatwarning``.

    >>> format_warning("two rows are equal", UserWarning, "a.py", 1)
    'UserWarning: two rows are equal\\n'
    """
    is_ours = category.__module__.startswith("thalweg")
    text = f"thalweg: warning: {message}" if is_ours else f"{category.__name__}: {message}"
    return wrap_message(text, 80) + "\n"
