"""Rows of metrics with wrong types are rejected, whoever wrote them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from thalweg.core.metric_rows import check_summary, parse_row

ROW = {
    "round": 2,
    "loss": float("nan"),
    "alarms": [0, 7],
    "drifts": {"real": [3]},
    "decisions": [{"what": "open-model", "reason": "two\nlines", "model": 1}],
    "serving_weights": {"latest": 0.25},
    "tasks": [{"task": "a", "assignment": "labels", "accuracy": None, "clients": 0}],
    "own metric": "any value",
}


def test_valid_row_is_read_as_it_is() -> None:
    line = json.dumps(ROW)
    assert json.dumps(parse_row(line.encode())) == line


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("round", None, "round: expected the number of a round, got None"),
        ("round", 10**9, "round: expected the number of a round, got 1000000000"),
        ("loss", "<script>", "loss: expected a number, got '<script>'"),
        ("loss", None, "loss: expected a number, got None"),
        ("cohort", -1, "cohort: expected a count, got -1"),
        ("accuracy", 10**400, "the integer '1000"),
        ("alarms", 3, "Expected `array`, got `int`"),
        ("alarms", ["a"], "Expected `int`, got `str`"),
        ("alarms", [-1], "Expected `int` >= 0"),
        ("drifts", {"\x1b[2J": [1]}, "matching regex"),
        ("serving_weights", {"latest": "a"}, "Expected `float`, got `str`"),
        ("tasks", [{"task": "a"}], "missing required field"),
        ("decisions", [3], "Expected `object`, got `int`"),
        ("decisions", [{"what": "x"}], "decisions: reason must be a text"),
        ("decisions", [{"what": [], "reason": ""}], "decisions: what must be a text"),
        ("decisions", [{"what": "open-model", "reason": ""}], "open-model without model"),
        ("decisions", [{"what": "open-model", "reason": "", "model": {}}], "without model"),
        ("\x1b[2J", 1, "expected printable names of metrics"),
    ],
)
def test_wrong_value_is_rejected(name: str, value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_row(json.dumps({**ROW, name: value}).encode())


@pytest.mark.parametrize(
    "line", [b"", b"3", b"[1, 2]", b"null", b"{", b'{"round": ' + b"[" * 100_000, b"\xff"]
)
def test_line_that_is_no_row_is_rejected(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|expected|nested|decode"):
        parse_row(line)


@pytest.mark.parametrize(
    "plain", [3, {"alarms": [1]}, {"no_effect": {"bank": 1}}, {"simple_scores": {"x": {}}}]
)
def test_summary_with_wrong_types_is_rejected(plain: object) -> None:
    check_summary({"rounds": 3, "alarms": {"raised": 2}, "simple_scores": {"majority": {"a": 0.5}}})
    with pytest.raises(ValueError, match=r"Expected|Invalid"):
        check_summary(plain)
