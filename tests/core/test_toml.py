"""TOML texts that take long, cannot be printed or are nested too deeply are rejected."""

from __future__ import annotations

import tomllib

import pytest

from thalweg.core.toml import parse_toml


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (".".join(["a"] * 100_000) + " = 1", "line 1 has more than 32 dots"),
        ("b = 1\n[" + ".".join(['"="'] * 34) + "]", "line 2 has more than 32 dots"),
        ("[" + " . ".join(["1.5"] * 34) + "]", "line 1 has more than 32 dots"),
        ("a = {" + "1." * 34 + "1 = 1}", "line 1 has more than 32 dots"),
        ('"\\u2028' + "\u2028." * 34 + '" = 1', "line 1 has more than 32 dots"),
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("a = " + "9" * 5000, "Exceeds the limit"),
        ("a = [{b = 0x1" + "0" * 32 + "}]", "a whole number of more than 128 bits"),
        ("a = ", "Invalid value"),
    ],
)
def test_text_beyond_a_limit_is_rejected(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_toml(text)


def test_numbers_have_any_number_of_dots_in_a_line() -> None:
    text = "a = [" + "0.5, " * 1000 + "1.5e-7]\nb = 0x" + "f" * 32
    assert parse_toml(text) == tomllib.loads(text)
