"""Properties are tried on the same examples in every `make test`; `make test-slow` looks for new ones.

A commit that passed on one machine passes on the next. What a search finds becomes a test of its own.
"""

import os

from hypothesis import HealthCheck, settings

# One process per core is enough: threads of several processes only wait for each other. Set before anybody
# imports torch. How many threads there are changes no bit; tests/core/test_vectors.py and others
# try that for themselves.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine is not a failing property.
settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("search", settings.get_profile("steady"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
