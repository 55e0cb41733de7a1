"""What the machine under us offers."""

from __future__ import annotations

import os


def count_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_environment() -> dict[str, str]:
    """The environment of a process that computes all the time on one thread.

    glibc gives large blocks back to the kernel after every step and faults them in again at the next;
    told to keep them, a worker training LeNet-5 has half as many page faults. The first threshold is the
    largest that every glibc accepts.
    """
    return {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
        "MALLOC_TOP_PAD_": str(1 << 26),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
