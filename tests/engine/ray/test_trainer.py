"""A Ray cluster gives the same bits as this process, also if a node is killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from thalweg.core.vectors import BLOCK
from thalweg.engine.ray.trainer import SHARD_BYTES, choose_pieces, choose_shards

NOT_STARTED = "The current node timed out during startup"
PROGRAM = Path(__file__).with_name("two_nodes.py")


def test_two_nodes_and_one_that_is_killed_give_the_same_bits():
    pytest.importorskip("ray", reason="the ray extra is not installed")
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=900, check=False
        )
        if NOT_STARTED not in done.stderr:
            break
    if NOT_STARTED in done.stderr:
        pytest.skip("a node of Ray did not start within 30 seconds: the machine is too busy")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "same bits" in done.stdout


def test_shards_of_columns_are_whole_blocks_and_small_enough():
    ends = choose_shards(100, 11_200_000)  # ResNet-18
    widths = [last - first for first, last in zip((0, *ends[:-1]), ends, strict=True)]
    assert sum(widths) == 11_200_000
    assert all(width % BLOCK == 0 for width in widths[:-1])
    assert max(widths) * 100 * 4 <= SHARD_BYTES


def test_small_updates_are_one_shard():
    assert choose_shards(24, 61_706) == (61_706,)


def test_pieces_of_updates_are_sent_without_the_object_stores():
    """Up to 100 KiB each and 10 MiB per task; larger updates are one piece."""
    for rows in (1, 4, 33):
        ends = choose_pieces(rows, 61_706)
        widths = [last - first for first, last in zip((0, *ends[:-1]), ends, strict=True)]
        assert sum(widths) == 61_706
        assert min(widths) > 0
        assert 4 * rows * max(widths) < 100 << 10
    assert choose_pieces(34, 61_706) == (61_706,)
