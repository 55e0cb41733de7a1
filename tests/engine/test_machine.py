import os

from thalweg.engine.machine import count_cores, worker_environment


def test_there_is_at_least_one_core_and_no_more_than_the_machine_has():
    assert 1 <= count_cores() <= (os.cpu_count() or 1)


def test_workers_inherit_our_environment_and_compute_on_one_thread(monkeypatch):
    monkeypatch.setenv("THALWEG_TESTED", "yes")
    environment = worker_environment()
    assert environment["THALWEG_TESTED"] == "yes"
    assert environment["OMP_NUM_THREADS"] == "1"
