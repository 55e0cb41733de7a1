"""Arrays that several processes see."""

import multiprocessing as mp
import os
from multiprocessing.reduction import recv_handle

import numpy as np

from thalweg.engine.shared import Layout, SharedMemory


def test_both_ends_of_a_pipe_see_the_same_bytes():
    ours, theirs = mp.Pipe()
    with ours, theirs:
        memory, layout = SharedMemory.from_array(np.arange(6, dtype=np.float32).reshape(2, 3))
        memory.send(ours, os.getpid())
        other = SharedMemory(recv_handle(theirs), memory.num_bytes).array(layout)
        assert other.tolist() == [[0, 1, 2], [3, 4, 5]]
        other[1, 2] = 50
        assert memory.array(layout)[1, 2] == 50


def test_a_view_keeps_the_bytes_alive():
    memory, layout = SharedMemory.from_array(np.arange(6, dtype=np.float32).reshape(2, 3))
    row = memory.array(layout)[1]
    del memory
    assert row.tolist() == [3, 4, 5]


def test_handles_are_given_back():
    if not os.path.isdir("/proc/self/fd"):
        return
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        memory = SharedMemory.create(1000)
        assert memory.array(Layout((10,), "<f4")).tolist() == [0] * 10
    del memory
    assert len(os.listdir("/proc/self/fd")) == before


def test_nothing_at_all_can_be_shared_too():
    memory, layout = SharedMemory.from_array(np.empty((0, 4), dtype=np.uint8))
    assert memory.array(layout).shape == (0, 4)
