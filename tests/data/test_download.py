from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from thalweg.core.errors import DataError
from thalweg.data import download
from thalweg.data.download import RemoteFile, fetch

CONTENT = bytes(range(256)) * 1000  # several chunks
REMOTE = RemoteFile("digits.gz", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_valid_file_is_downloaded_into_a_new_folder(file_server: Any, tmp_path: Path) -> None:
    file_server.files["digits.gz"] = CONTENT
    path = fetch(REMOTE, [file_server.address], tmp_path / "new" / "folder")
    assert path.read_bytes() == CONTENT
    assert list_names(tmp_path / "new" / "folder") == ["digits.gz"]


def test_download_with_a_wrong_checksum_is_rejected_and_removed(
    file_server: Any, tmp_path: Path
) -> None:
    file_server.files["digits.gz"] = CONTENT[:-1] + b"?"
    with pytest.raises(DataError, match=f"sent a different file: expected SHA-256 {REMOTE.sha256}"):
        fetch(REMOTE, [file_server.address], tmp_path / "cache")
    assert list_names(tmp_path / "cache") == []


@pytest.mark.parametrize("length", [0, 1, 65_536, len(CONTENT) - 1])
def test_truncated_download_is_rejected_and_removed(
    file_server: Any, tmp_path: Path, length: int
) -> None:
    file_server.files["digits.gz"], file_server.truncated["digits.gz"] = CONTENT, length
    with pytest.raises(DataError, match=f"sent {length} of 256000 bytes|broke off"):
        fetch(REMOTE, [file_server.address], tmp_path / "cache")
    assert list_names(tmp_path / "cache") == []


def test_oversized_download_is_rejected_and_removed(file_server: Any, tmp_path: Path) -> None:
    file_server.files["digits.gz"] = CONTENT + b"more"
    with pytest.raises(DataError, match="sent more than the expected 256000 bytes"):
        fetch(REMOTE, [file_server.address], tmp_path / "cache")
    assert list_names(tmp_path / "cache") == []


def test_missing_page_reports_status_404(file_server: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"/digits.gz answered 404 \(Not Found\)"):
        fetch(REMOTE, [file_server.address], tmp_path)


def test_unreachable_server_is_reported(closed_address: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"/digits.gz cannot be reached \(.*refused"):
        fetch(REMOTE, [closed_address], tmp_path)


def test_next_mirror_is_tried_after_a_failure(
    file_server: Any, closed_address: str, tmp_path: Path
) -> None:
    file_server.files["digits.gz"] = CONTENT
    path = fetch(REMOTE, [closed_address, file_server.address + "/"], tmp_path / "cache")
    assert path.read_bytes() == CONTENT


def test_all_failed_mirrors_are_named(
    file_server: Any, closed_address: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"cannot be reached.*; .*answered 404"):
        fetch(REMOTE, [closed_address, file_server.address], tmp_path)


def test_unwritable_cache_folder_is_named(file_server: Any, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(DataError, match=r"cannot write to .*cache \(File exists\)"):
        fetch(REMOTE, [file_server.address], tmp_path / "cache")


def test_full_disk_is_reported_and_leaves_no_file(
    file_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    file_server.files["digits.gz"] = CONTENT
    monkeypatch.setattr(download.os, "fsync", full)
    with pytest.raises(DataError, match=r"cannot write to .*cache \(No space left on device\)"):
        fetch(REMOTE, [file_server.address], tmp_path / "cache")
    assert list_names(tmp_path / "cache") == []


def test_interrupted_download_leaves_no_file(
    file_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    file_server.files["digits.gz"] = CONTENT
    monkeypatch.setattr(download.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch(REMOTE, [file_server.address], tmp_path / "cache")
    assert list_names(tmp_path / "cache") == []


def test_existing_file_survives_a_failed_download(file_server: Any, tmp_path: Path) -> None:
    (tmp_path / "digits.gz").write_bytes(b"from another process")
    with pytest.raises(DataError):
        fetch(REMOTE, [file_server.address], tmp_path)
    assert (tmp_path / "digits.gz").read_bytes() == b"from another process"


def test_download_shows_a_bar_on_a_terminal_and_one_line_in_a_file(
    file_server: Any, tmp_path: Path
) -> None:
    file_server.files["digits.gz"] = CONTENT
    terminal, plain = io.StringIO(), io.StringIO()
    fetch(REMOTE, [file_server.address], tmp_path, Console(file=terminal, force_terminal=True))
    fetch(REMOTE, [file_server.address], tmp_path, Console(file=plain))
    assert "━" in terminal.getvalue()
    assert plain.getvalue() == f"downloading {file_server.address}/digits.gz (0.3 MB)\n"
