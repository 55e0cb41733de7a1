"""Contract of update privacy."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import to_comparable
from thalweg.local import Privacy


def check_privacy(policy: Privacy) -> None:
    """Check noisy updates of one and several models, long and short, and the epsilon they cost."""
    written = repr(policy)
    rng = np.random.default_rng(0)
    for num_models, scale in ((1, 0.0), (1, 1e-3), (3, 1.0), (2, 1e30)):
        deltas = (scale * rng.normal(size=(num_models, 5))).astype(np.float32)
        before = to_comparable(deltas)
        sent, again, other = (
            policy.add_noise(deltas, np.random.default_rng(seed)) for seed in (1, 1, 2)
        )
        assert sent.shape == deltas.shape, "the shape is kept"
        assert sent.dtype == np.float32, "updates are float32"
        assert np.isfinite(sent).all(), "finite"
        assert to_comparable(deltas) == before, "the argument does not change"
        assert to_comparable(again) == to_comparable(sent), "same generator, same noise"
        assert to_comparable(other) != to_comparable(sent), "another generator, other noise"
    costs = [policy.compute_epsilon(releases) for releases in range(20)]
    assert costs[0] == 0, "no release costs nothing"
    assert (np.diff(costs) >= 0).all(), "epsilon never falls"
    assert repr(policy) == written, "a policy object does not change"
