from __future__ import annotations

from pathlib import Path

import pytest

from thalweg.core.errors import DataError
from thalweg.data import search

NAMES = ("mnist", "MNIST/raw")


def test_data_folders_are_listed_in_the_documented_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, variable, known = tmp_path / "named", tmp_path / "variable", tmp_path / "known"
    named.mkdir()
    variable.mkdir()
    monkeypatch.setenv("THALWEG_DATA", str(variable))
    assert [place.folder for place in search.list_folders(NAMES, named, [known])] == [
        named / "mnist",
        named / "MNIST/raw",
        named,
        variable / "mnist",
        variable / "MNIST/raw",
        variable,
        tmp_path / "cache/mnist",
        known,
        tmp_path / "home/data/mnist",
        tmp_path / "home/data/MNIST/raw",
        Path("data/mnist"),
        Path("data/MNIST/raw"),
    ]


def test_only_folders_named_by_the_user_may_hold_files_directly(tmp_path: Path) -> None:
    places = search.list_folders(NAMES, tmp_path)
    assert {place.folder for place in places if place.is_chosen} == {
        tmp_path,
        tmp_path / "mnist",
        tmp_path / "MNIST/raw",
    }
    assert all(place.folder.name in ("mnist", "raw") for place in places if not place.is_chosen)


def test_missing_named_folder_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"--data-dir names .*nowhere, but there is no such folder"):
        search.list_folders(NAMES, tmp_path / "nowhere")
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"THALWEG_DATA names .*gone, but there is no such folder"):
        search.list_folders(NAMES, None)


def test_user_file_is_searched_in_named_current_and_variable_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, variable = tmp_path / "named", tmp_path / "variable"
    for folder in (named, variable):
        folder.mkdir()
        (folder / "mine.csv").touch()
    monkeypatch.setenv("THALWEG_DATA", str(variable))
    assert search.find_user_file("mine.csv", None) == variable / "mine.csv"
    Path("mine.csv").touch()
    assert search.find_user_file("mine.csv", None) == Path("mine.csv")
    assert search.find_user_file("mine.csv", named) == named / "mine.csv"
    assert search.find_user_file(str(variable / "mine.csv"), named) == variable / "mine.csv"


def test_missing_user_file_is_reported_with_all_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = tmp_path / "variable"
    variable.mkdir()
    monkeypatch.setenv("THALWEG_DATA", str(variable))
    with pytest.raises(DataError) as caught:
        search.find_user_file("mine.csv", tmp_path)
    for place in (tmp_path / "mine.csv", "mine.csv", variable / "mine.csv"):
        assert str(place) in str(caught.value)


def test_folder_in_place_of_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").mkdir()
    with pytest.raises(DataError, match="is a folder; expected one file"):
        search.find_user_file("mine.csv", tmp_path)


@pytest.mark.parametrize("value, offline", [("1", True), ("yes", True), ("0", False), ("", False)])
def test_offline_variable_disables_downloads_unless_false(
    value: str, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THALWEG_OFFLINE", value)
    assert search.is_offline() is offline


def test_first_complete_folder_is_used(tmp_path: Path) -> None:
    for folder, names in (("a", "x"), ("b", "xy"), ("c", "xy")):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    around = [search.SearchFolder(tmp_path / folder, "around", False) for folder in "abc"]
    assert search.find_folder(["x", "y"], "Letters", around) == tmp_path / "b"
    assert search.find_folder(["x", "y"], "Letters", around[:1]) is None
    named = [search.SearchFolder(tmp_path / "a", "--data-dir", True)]
    with pytest.raises(DataError, match=r"only 1 of the 2 parts of Letters; missing: y"):
        search.find_folder(["x", "y"], "Letters", named)
