"""Syntax of ``--data``: a location, and options after a question mark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from thalweg.core.errors import ConfigError, UnknownName, require

YES, NO = ("1", "yes", "true"), ("0", "no", "false")


class SourceSpec(NamedTuple):
    """A parsed ``location?name=value&name=value``."""

    text: str
    location: str
    options: Mapping[str, str]

    def check_options(self, *known: str) -> None:
        """Reject options that this kind of source does not have."""
        for name in self.options:
            if name not in known:
                raise UnknownName(f"option of the source {self.text!r}", name, known)

    def get_string(self, name: str, default: str = "") -> str:
        return self.options.get(name, default)

    def get_bool(self, name: str, default: bool) -> bool:
        value = self.options.get(name)
        require(
            value is None or value.lower() in (*YES, *NO),
            f"{self.text}: {name} must be yes or no, got {value!r}.",
        )
        return default if value is None else value.lower() in YES

    def get_float(self, name: str, default: float, *, least: float = 0.0) -> float:
        value = self.options.get(name)
        if value is None:
            return default
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not least <= number < float("inf"):
            raise ConfigError(
                f"{self.text}: expected a number of at least {least:g} for {name}, got {value!r}."
            )
        return number

    def get_int(self, name: str, default: int, *, least: int = 0) -> int:
        number = self.get_float(name, default, least=least)
        require(number == int(number), f"{self.text}: {name} must be an integer, got {number:g}.")
        return int(number)

    def get_names(self, name: str) -> tuple[str, ...] | None:
        """A comma-separated list of names."""
        value = self.options.get(name)
        return None if value is None else tuple(part for part in value.split(",") if part)


def parse_spec(text: str) -> SourceSpec:
    """Split a source at its question mark; values may be percent-encoded.

    >>> parse_spec("readings.csv?y=state&follow=no").options
    {'y': 'state', 'follow': 'no'}
    """
    location, _, query = text.partition("?")
    options: dict[str, str] = {}
    for part in query.split("&") if query else ():
        name, equals, value = part.partition("=")
        require(
            bool(name and equals),
            f"{text}: expected name=value after the question mark, got {part!r}.",
        )
        require(name not in options, f"{text}: {name} is given twice.")
        options[name] = unquote(value)
    return SourceSpec(text, location, options)
