"""The guard process writes a bounded log."""

import io
import os
from pathlib import Path

import pytest

from thalweg.network.flower import guard


def test_long_log_is_rotated_into_a_second_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "LOG_BYTES", 100)
    source, sink = os.pipe()
    log = tmp_path / "log"
    with io.FileIO(source) as output:
        # one piece per read, as if the program had written them one after the other
        pieces = [b"a" * 150, b"b" * 10, b"c" * 10, b""]
        monkeypatch.setattr(os, "read", lambda *_: pieces.pop(0))
        guard._write_log(output, str(log))
    os.close(sink)
    assert (tmp_path / "log.1").read_bytes() == b"a" * 150
    assert log.read_bytes() == b"b" * 10 + b"c" * 10
