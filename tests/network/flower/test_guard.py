import io
import os
from pathlib import Path

import pytest

from thalweg.network.flower import guard


def test_a_log_that_grows_is_kept_in_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "LOG_BYTES", 100)
    source, sink = os.pipe()
    log = tmp_path / "log"
    with io.FileIO(source) as output:
        # one piece each, as if the program had said them one after the other
        pieces = [b"a" * 150, b"b" * 10, b"c" * 10, b""]
        monkeypatch.setattr(os, "read", lambda *_: pieces.pop(0))
        guard._keep_log(output, str(log))
    os.close(sink)
    assert (tmp_path / "log.1").read_bytes() == b"a" * 150
    assert log.read_bytes() == b"b" * 10 + b"c" * 10
