"""The exception hierarchy and its messages."""

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


def test_all_errors_derive_from_thalweg_error() -> None:
    assert len(OURS) > 5
    assert [name for name, error in OURS.items() if not issubclass(error, ThalwegError)] == []


def test_module_docstring_lists_all_errors() -> None:
    drawn = errors.__doc__ or ""
    assert [name for name in OURS if name not in drawn] == []


def test_config_error_is_a_value_error() -> None:
    # Code that does not import thalweg can catch it; a damaged file is no ValueError.
    assert issubclass(ConfigError, ValueError)
    assert not issubclass(DataError, ValueError)


def test_require_raises_the_given_message() -> None:
    require(True, "never shown")
    with pytest.raises(ConfigError) as caught:
        require(False, "budget must lie in (0, 1], got 2.")
    assert str(caught.value) == "budget must lie in (0, 1], got 2."


def test_unknown_name_lists_known_names_and_a_suggestion() -> None:
    message = str(UnknownName("recipe", "sfedop", ["sfedpo", "fedavg"]))
    assert message == ("unknown recipe 'sfedop'; known: fedavg, sfedpo. Did you mean 'sfedpo'?")


def test_unknown_name_of_a_long_table_shows_only_the_closest_one() -> None:
    names = [f"name-{number}" for number in range(40)]
    assert str(UnknownName("thing", "nam-7", names)) == (
        "unknown thing 'nam-7'. Did you mean 'name-7'?"
    )
    message = str(UnknownName("thing", "xyz", names))
    assert message.endswith("name-25, name-26 and 20 more."), "no similar one: 20 are listed"
    message = str(UnknownName("recipe", "xyz", names, see="thalweg list"))
    assert message == "unknown recipe 'xyz'. See `thalweg list`."


def test_unknown_name_without_a_similar_one_has_no_suggestion() -> None:
    assert "Did you mean" not in str(UnknownName("recipe", "xyzzy", ["sfedpo", "fedavg"]))


def test_unknown_name_without_known_names_has_a_message() -> None:
    assert str(UnknownName("recipe", "sfedpo", [])) == "unknown recipe 'sfedpo'; known: none."


def test_first_words_of_a_name_are_compared() -> None:
    names = ["digits-full", "digits-partial", "flights", "elec2"]
    assert "Did you mean 'digits-full' or 'digits-partial'?" in str(
        UnknownName("scenario", "digts", names)
    )
    assert "Did you mean 'digits-partial'?" in str(UnknownName("scenario", "digits-part", names))
