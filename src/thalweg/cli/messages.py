"""Errors and warnings on the terminal."""

from __future__ import annotations

import shutil
import sys

import typer

from thalweg.core.wrapped_text import make_printable, wrap_message


def print_message(text: str) -> None:
    """Print an error or a warning; on a terminal, lines are wrapped to its width.

    Control characters are replaced, because messages quote files and values of others.
    """
    text = make_printable(text)
    if sys.stderr.isatty():
        text = wrap_message(text, shutil.get_terminal_size().columns)
    typer.echo(text, err=True)
