"""Settings of Hypothesis, of threads and of worker processes for all tests.

`make test` uses the same examples in each run, so a commit that passes on one machine passes on
others. `make test-slow` searches for new examples.
"""

import gc
import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# One thread per worker is enough: threads of several processes only wait for each other. This must
# be set before torch is imported. Results do not depend on the number of threads;
# tests/core/test_vectors.py and others check that.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Synchronisation with the disk takes milliseconds per file; the tests of faults enable it.
os.environ.setdefault("THALWEG_NO_SYNC", "1")

# A slow machine must not fail a test.
settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "search", settings.get_profile("steady"), derandomize=False, max_examples=300
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


def pytest_xdist_auto_num_workers() -> int:
    """Use one worker more than there are cores: tests of real processes mostly wait."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude imported modules and tests, which live until the end, from garbage collection."""
    gc.disable()
    result = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return result
