from __future__ import annotations

import inspect

import pytest

from thalweg.core import errors
from thalweg.core.errors import ConfigError, DataError, ThalwegError, UnknownName, require

OURS = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and value.__module__ == errors.__name__
}


def test_everything_raised_on_purpose_has_one_base() -> None:
    assert len(OURS) > 5
    assert [name for name, error in OURS.items() if not issubclass(error, ThalwegError)] == []


def test_the_tree_at_the_top_of_the_file_names_every_error() -> None:
    drawn = errors.__doc__ or ""
    assert [name for name in OURS if name not in drawn] == []


def test_a_bad_option_is_also_a_value_error() -> None:
    # So that code that knows nothing of us can catch it; a broken file is no such thing.
    assert issubclass(ConfigError, ValueError)
    assert not issubclass(DataError, ValueError)


def test_require_is_silent_or_says_exactly_the_message() -> None:
    require(True, "never shown")
    with pytest.raises(ConfigError) as refused:
        require(False, "budget must lie in (0, 1], got 2.")
    assert str(refused.value) == "budget must lie in (0, 1], got 2."


def test_an_unknown_name_lists_the_known_ones_and_the_nearest() -> None:
    message = str(UnknownName("recipe", "sfedop", ["sfedpo", "fedavg"]))
    assert message == ("unknown recipe 'sfedop'; known: fedavg, sfedpo. Did you mean 'sfedpo'?")


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    assert "Did you mean" not in str(UnknownName("recipe", "xyzzy", ["sfedpo", "fedavg"]))


def test_an_unknown_name_out_of_nothing_is_still_a_message() -> None:
    assert str(UnknownName("recipe", "sfedpo", [])) == "unknown recipe 'sfedpo'; known: ."
