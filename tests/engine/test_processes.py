import multiprocessing as mp
import os
from multiprocessing.reduction import recv_handle

import numpy as np

from thalweg.engine.processes import Layout, SharedMemory, count_cores, worker_environment


def test_the_number_of_cores_is_between_one_and_that_of_the_machine():
    assert 1 <= count_cores() <= (os.cpu_count() or 1)


def test_workers_inherit_the_environment_and_compute_on_one_thread(monkeypatch):
    monkeypatch.setenv("THALWEG_TESTED", "yes")
    environment = worker_environment()
    assert environment["THALWEG_TESTED"] == "yes"
    assert environment["OMP_NUM_THREADS"] == "1"


def test_two_processes_share_the_same_bytes():
    ours, theirs = mp.Pipe()
    with ours, theirs:
        memory, layout = SharedMemory.from_array(np.arange(6, dtype=np.float32).reshape(2, 3))
        memory.send(ours, os.getpid())
        other = SharedMemory(recv_handle(theirs), memory.num_bytes).array(layout)
        assert other.tolist() == [[0, 1, 2], [3, 4, 5]]
        other[1, 2] = 50
        assert memory.array(layout)[1, 2] == 50


def test_a_view_keeps_the_memory_mapped():
    memory, layout = SharedMemory.from_array(np.arange(6, dtype=np.float32).reshape(2, 3))
    row = memory.array(layout)[1]
    del memory
    assert row.tolist() == [3, 4, 5]


def test_file_handles_are_closed():
    if not os.path.isdir("/proc/self/fd"):
        return
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        memory = SharedMemory.create(1000)
        assert memory.array(Layout((10,), "<f4")).tolist() == [0] * 10
    del memory
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_empty_array_can_be_shared():
    memory, layout = SharedMemory.from_array(np.empty((0, 4), dtype=np.uint8))
    assert memory.array(layout).shape == (0, 4)
