from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from thalweg.core.errors import RunError
from thalweg.network.edge.slots import Slots


def test_written_slots_are_visible_in_the_map_and_after_reopening(tmp_path: Path) -> None:
    slots = Slots(tmp_path / "samples", 5, (2, 3), "uint8")
    seen = slots.x
    images = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    checksums = slots.write(np.array([4, 1]), images)
    assert (seen[[4, 1]] == images).all()
    assert not seen[[0, 2, 3]].any()
    slots.close()
    again = Slots(tmp_path / "samples", 5, (2, 3), "uint8")
    again.check(np.array([4, 1]), checksums)
    with pytest.raises(RunError, match="the contents of sample 0 have changed"):
        again.check(np.array([0]), checksums[:1])
    again.close()


def test_slot_file_is_allocated_at_once_and_never_shrinks(tmp_path: Path) -> None:
    file = tmp_path / "samples"
    for num, size in ((100, 800), (200, 1600), (50, 1600)):
        slots = Slots(file, num, (2,), "float32")
        assert (file.stat().st_size, slots.x.shape) == (size, (num, 2))
        slots.close()
    assert file.stat().st_blocks * 512 >= 1600


def test_slot_map_is_read_only(tmp_path: Path) -> None:
    slots = Slots(tmp_path / "samples", 2, (2,), "float32")
    with pytest.raises(ValueError, match="read-only"):
        slots.x[0] = 1
    slots.close()


def test_partial_writes_are_continued_and_a_full_disk_gives_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = Slots(tmp_path / "samples", 2, (2,), "float32")
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:3], at))
    slots.write(np.array([1]), np.array([[5, 6]], dtype=np.float32))
    assert slots.x[1].tolist() == [5, 6]
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: 0)
    with pytest.raises(RunError, match="the disk is full"):
        slots.write(np.array([0]), np.array([[5, 6]], dtype=np.float32))
    slots.close()
