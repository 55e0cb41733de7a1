"""Everything we raise on purpose.

ThalwegError
├── ConfigError     a recipe, scenario or option that cannot be built     (before the run)
│   └── UnknownName a name nobody has; carries the nearest known one
├── DataError       a data set is missing, truncated or not what it says  (before the run)
├── RunError        the run folder cannot be used: unwritable, full, or of another configuration
├── Diverged        a loss or an update is not finite                     (the run can be resumed)
└── BadMessage      what came from outside is not a message of ours, or says what cannot be
    └── ShapeMismatch an update does not fit the model
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ThalwegError(Exception):
    """Base of every error we raise on purpose: one message, no traceback for users."""


class ConfigError(ThalwegError, ValueError):
    """A recipe, a scenario or an option says something that cannot be built."""


class UnknownName(ConfigError):
    """A name that is not in the table it was looked up in."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        super().__init__(f"unknown {what} {name!r}; known: {', '.join(known)}.{hint}")


class DataError(ThalwegError):
    """A data set is missing, truncated or not what it claims to be."""


class RunError(ThalwegError):
    """A run folder cannot be created, written, or continued."""


class Diverged(ThalwegError):
    """A loss or an update stopped being a finite number."""


class BadMessage(ThalwegError):
    """What came from outside is damaged, unknown, or not what was agreed; nothing was changed."""


class ShapeMismatch(BadMessage):
    """An update does not fit the model it is meant for."""


def require(condition: bool, message: str) -> None:
    """Refuse an impossible value where the object is made.

    >>> require(0.5 <= 1, "never shown")
    >>> require(2 <= 1, "budget must lie in (0, 1], got 2.")
    Traceback (most recent call last):
    thalweg.core.errors.ConfigError: budget must lie in (0, 1], got 2.
    """
    if not condition:
        raise ConfigError(message)
