"""Reads TOML that another machine or a damaged file may contain."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

MAX_DOTS = 32  # in a line, apart from those of numbers such as 0.5
MAX_BITS = 128  # of a whole number
NUMBER = re.compile(r"(?<![\d.])\d+\.\d+(?![\d.])")


def parse_toml(text: str) -> dict[str, Any]:
    """Parse a text; raise `ValueError` if it is not TOML or exceeds a limit.

    The time that `tomllib` needs grows with the square of the number of parts of a key, and Python
    cannot print whole numbers of any length.

    >>> parse_toml("a.b = [0.5, 1]")
    {'a': {'b': [0.5, 1]}}
    """
    for number, line in enumerate(text.split("\n"), start=1):  # a key does not extend over lines
        if line.count(".") > MAX_DOTS and NUMBER.sub("", line).count(".") > MAX_DOTS:
            raise ValueError(f"line {number} has more than {MAX_DOTS} dots")
    try:
        plain = tomllib.loads(text)
        _check_numbers(plain)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    return plain


def _check_numbers(value: Any) -> None:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _check_numbers(each)
    elif isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ValueError(f"it has a whole number of more than {MAX_BITS} bits")
