"""Settings in messages fit the caller."""

from __future__ import annotations

import pytest

from thalweg.core.remedies import Caller, format_setting, get_caller, messages_for


@pytest.mark.parametrize(
    ("caller", "path", "value", "expected"),
    [
        ("run", "data.time", "at", "data={'time': 'at'}"),
        ("run", "net.options.width", 3, "net={'options': {'width': 3}}"),
        ("run", "resume", True, "resume=True"),
        ("dataset", "data.time", "at", "time='at'"),
        ("dataset", "local.lr", 0.1, "local={'lr': 0.1}"),
        ("command line", "data.time", "my time", "--set 'data.time=my time'"),
        ("command line", "data.standardise", False, "--set data.standardise=false"),
        ("command line", "augment", None, "--set augment=none"),
        ("device", "data.label", ..., "--data '...?label=...'"),
        ("device", "data.drop", ["a", "b"], "--data '...?drop=a,b'"),
        ("command line", "data_dir", ..., "--data-dir"),
        ("command line", "client", "NAME", "--client NAME"),
    ],
)
def test_settings_are_written_as_the_caller_writes_them(
    caller: Caller, path: str, value: object, expected: str
) -> None:
    with messages_for(caller):
        assert format_setting(path, value) == expected


def test_commands_remain_commands_inside_a_function_of_python() -> None:
    with messages_for("command line"), messages_for("dataset"):
        assert format_setting("data.client", "who") == "--set data.client=who"
    assert format_setting("data.client", "who") == "data={'client': 'who'}"


def test_a_caller_can_be_passed_to_another_process() -> None:
    assert get_caller() == "run"
    with messages_for("command line"):
        assert get_caller() == "command line"
