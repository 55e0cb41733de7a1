"""Durable changes of files; tests/engine/test_faults.py injects faults at each of their calls."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.faults import FailingSystem, FaultySystem, ShortWritingSystem, using
from thalweg.core import files
from thalweg.core.files import (
    PUBLIC_MODE,
    append_file,
    cut_file,
    digest_bytes,
    digest_file,
    make_folder,
    remove_file,
    seal,
    sync_folder,
    unseal,
    write_file,
)


class RecordingSystem(FaultySystem):
    """Records the names of the calls."""

    def __init__(self, is_syncing: bool = True) -> None:
        super().__init__(is_syncing=is_syncing)
        self.names: list[str] = []

    def _count(self, call: str, *more: object) -> None:
        self.names.append(call)


def test_a_file_is_written_synchronised_and_then_renamed(tmp_path: Path) -> None:
    system = RecordingSystem()
    with using(system):
        write_file(tmp_path / "a", b"one")
        sync_folder(tmp_path)
    assert system.names == ["open", "write", "sync", "replace", "sync"]
    assert (tmp_path / "a").read_bytes() == b"one"


def test_synchronisation_can_be_disabled(tmp_path: Path) -> None:
    system = RecordingSystem(is_syncing=False)
    with using(system):
        write_file(tmp_path / "a", b"one")
        append_file(tmp_path / "a", b"two")
        cut_file(tmp_path / "a", 4)
        sync_folder(tmp_path)
    assert "sync" not in system.names
    assert (tmp_path / "a").read_bytes() == b"onet"


@pytest.mark.parametrize(("value", "expected"), [("", True), ("0", True), ("1", False)])
def test_the_environment_variable_is_read_at_import(value: str, expected: bool) -> None:
    code = "from thalweg.core import files; print(files.system.is_syncing)"
    variables = {**os.environ, files.NO_SYNC: value}
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(expected)


def test_mode_of_a_new_file(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_file(tmp_path / "private", b"")
        write_file(tmp_path / "public", b"", PUBLIC_MODE)
    finally:
        os.umask(before)
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "public").stat().st_mode & 0o777 == 0o644


def test_a_temporary_file_of_an_interrupted_write_is_not_used(tmp_path: Path) -> None:
    other, unfinished = tmp_path / "other", tmp_path / "a.part"
    other.write_bytes(b"kept")
    unfinished.symlink_to(other)
    write_file(tmp_path / "a", b"secret")
    assert other.read_bytes() == b"kept"
    unfinished.write_bytes(b"long old content")
    unfinished.chmod(0o644)
    write_file(tmp_path / "a", b"secret")
    assert (tmp_path / "a").read_bytes() == b"secret"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["a", "other"]


def test_digest_of_a_file_and_of_its_beginning(tmp_path: Path) -> None:
    written = write_file(tmp_path / "a", b"12345")
    assert written == digest_file(tmp_path / "a") == digest_bytes(b"12345")
    assert written.size == 5
    assert digest_file(tmp_path / "a", 3) == digest_bytes(b"123")
    assert digest_file(tmp_path / "a", 9).size == 5, "the file is shorter"


def test_an_error_leaves_the_old_content_and_no_temporary_file(tmp_path: Path) -> None:
    write_file(tmp_path / "a", b"old")
    for at in range(4):  # open, write, sync, replace
        with using(FailingSystem(at, errno.ENOSPC)), pytest.raises(OSError, match="No space"):
            write_file(tmp_path / "a", b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["a"]


def test_short_writes_are_continued(tmp_path: Path) -> None:
    with using(ShortWritingSystem()):
        write_file(tmp_path / "a", b"0123456789")
        append_file(tmp_path / "a", b"abcdef")
    assert (tmp_path / "a").read_bytes() == b"0123456789abcdef"


def test_cutting_keeps_a_file_that_is_short_enough(tmp_path: Path) -> None:
    write_file(tmp_path / "a", b"12345")
    cut_file(tmp_path / "a", 5)
    cut_file(tmp_path / "a", 9)
    assert (tmp_path / "a").read_bytes() == b"12345"
    cut_file(tmp_path / "a", 2)
    assert (tmp_path / "a").read_bytes() == b"12"


def test_new_folders_are_private_and_others_are_not_changed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_only_the_named_file_is_removed_and_a_missing_one_is_no_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_file(tmp_path / name, b"content")
    for _ in range(2):
        remove_file(tmp_path / "a")
        assert os.listdir(tmp_path) == ["b"]


@pytest.mark.parametrize("payload", [b"", b"[]", b"3", b"{}", b"\xff", b"[" * 100_000])
def test_what_is_not_sealed_is_rejected(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"checksum|Expecting|decode|nested|object"):
        unseal(payload)


def test_every_changed_byte_of_a_sealed_object_is_detected() -> None:
    payload = seal({"run": "a1", "clients": {"x": [1, 2]}})
    for place in range(len(payload) - 1):  # the last byte is a line end
        changed = bytearray(payload)
        changed[place] ^= 1
        try:
            found = unseal(bytes(changed))
        except ValueError:
            continue
        assert found == unseal(payload), "only spaces differ"


def test_synchronisation_reaches_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests of power cuts replace `System`; this one uses the real one."""
    synced: list[tuple[int, int]] = []
    real = os.fsync

    def record(file: int) -> None:
        found = os.fstat(file)
        synced.append((found.st_ino, found.st_size))
        real(file)

    monkeypatch.setattr(os, "fsync", record)
    with using(files.System(is_syncing=True)):
        write_file(tmp_path / "a", b"abc")
        sync_folder(tmp_path)
    assert synced[0] == ((tmp_path / "a").stat().st_ino, 3), "after the content was written"
    assert synced[1][0] == tmp_path.stat().st_ino
    with using(files.System(is_syncing=False)):
        write_file(tmp_path / "b", b"abc")
        sync_folder(tmp_path)
    assert len(synced) == 2
