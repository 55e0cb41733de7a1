from __future__ import annotations

import pytest

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.network.sources.spec import parse_spec


def test_source_options_are_parsed_and_unescaped() -> None:
    spec = parse_spec("mqtt://host/a/#?qos=0&y=my%20label")
    assert spec.location == "mqtt://host/a/#"
    assert spec.options == {"qos": "0", "y": "my label"}
    assert spec.get_int("qos", 1) == 0
    assert spec.get_string("t", "time") == "time"
    assert spec.get_names("columns") is None
    assert parse_spec("f.csv?columns=a,b").get_names("columns") == ("a", "b")


@pytest.mark.parametrize("text", ["f.csv?follow", "f.csv?=1", "f.csv?a=1&a=2"])
def test_duplicate_and_empty_source_options_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected name=value|given twice"):
        parse_spec(text)


def test_unknown_source_option_is_rejected_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'follow'"):
        parse_spec("f.csv?folow=no").check_options("follow", "y")


@pytest.mark.parametrize("value", ["-1", "nan", "inf", "many"])
def test_invalid_number_options_are_rejected(value: str) -> None:
    with pytest.raises(ConfigError, match="expected a number of at least 0 for speed"):
        parse_spec(f"replay:x?speed={value}").get_float("speed", 1.0)


def test_flag_and_integer_options_are_validated() -> None:
    assert parse_spec("f?a=Yes").get_bool("a", False)
    assert not parse_spec("f?a=0").get_bool("a", True)
    with pytest.raises(ConfigError, match="a must be yes or no"):
        parse_spec("f?a=maybe").get_bool("a", True)
    with pytest.raises(ConfigError, match="must be an integer"):
        parse_spec("f?a=1.5").get_int("a", 0)
