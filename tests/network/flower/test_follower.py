import os
from pathlib import Path

from thalweg.network.flower.follower import Follower


def test_lines_come_once_and_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    follower = Follower(file)
    assert follower.read_lines() == []
    file.write_text("one\ntw")
    assert follower.read_lines() == ["one"]
    with file.open("a") as more:
        more.write("o\nthree\n")
    assert follower.read_lines() == ["two", "three"]
    assert follower.read_lines() == []


def test_a_replaced_file_is_read_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("one\ntwo\n")
    follower = Follower(file)
    assert follower.read_lines() == ["one", "two"]
    (tmp_path / "new").write_text("one\n")
    os.replace(tmp_path / "new", file)
    assert follower.read_lines() == ["one"]


def test_from_the_end_only_what_comes_later_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text('{"a": 1}\n')
    follower = Follower(file, from_end=True)
    with file.open("a") as more:
        more.write('noise\n{"a": 2}\n{broken\n')
    assert follower.read_objects() == [{"a": 2}]
