"""Settings in messages, written as the caller writes them: in Python or on the command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

# run: arguments of thalweg.run; dataset: arguments of Dataset.from_frame and similar functions;
# device: options of the source in `thalweg join --data`, all other settings are the server's
Caller = Literal["run", "dataset", "command line", "device"]
# Settings that are options of their own on the command line; others are set with --set.
OPTIONS = ("client", "data_dir", "model", "out", "resume", "rounds", "seed")

_caller: ContextVar[Caller] = ContextVar("caller", default="run")


@contextmanager
def messages_for(caller: Caller) -> Iterator[None]:
    """Write the settings in messages for this caller; also usable as a decorator.

    Commands remain commands, even if they build a data set.
    """
    token = _caller.set("command line" if is_command_line() else caller)
    try:
        yield
    finally:
        _caller.reset(token)


def get_caller() -> Caller:
    """Return the caller for whom messages are written, for processes that run parts of its work."""
    return _caller.get()


def is_command_line() -> bool:
    """Return whether messages are for the command line."""
    return _caller.get() == "command line"


def format_setting(path: str, value: Any = ...) -> str:
    """Return how the caller sets a value; ``...``: any value.

    >>> format_setting("data.drop", ["cost"]), format_setting("local.lr")
    ("data={'drop': ['cost']}", "local={'lr': ...}")
    >>> with messages_for("dataset"):
    ...     format_setting("data.drop", ["cost"])
    "drop=['cost']"
    >>> with messages_for("command line"):
    ...     format_setting("data.drop", ["cost", "id"]), format_setting("resume", True)
    ('--set data.drop=cost,id', '--resume')
    """
    if is_command_line():
        return _write_option(path, value)
    first, *others = path.split(".")
    if first == "data" and others and _caller.get() == "device":
        return f"--data '...?{'.'.join(others)}={_write_value(value)}'"
    if first == "data" and others and _caller.get() == "dataset":
        first, *others = others
    text = "..." if value is ... else repr(value)
    for name in reversed(others):
        text = f"{{{name!r}: {text}}}"
    return f"{first}={text}"


def _write_option(path: str, value: Any) -> str:
    if path in OPTIONS:
        option = f"--{path.replace('_', '-')}"
        return option if value in (..., True) else f"{option} {shlex.quote(str(value))}"
    if value is ...:
        return f"--set {path}=..."
    return f"--set {shlex.quote(f'{path}={_write_value(value)}')}"


def _write_value(value: Any) -> str:
    if value is ...:
        return "..."
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
