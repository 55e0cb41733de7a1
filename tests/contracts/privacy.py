"""What everything promises that hides updates."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import to_comparable
from thalweg.local import Privacy


def check_privacy(policy: Privacy) -> None:
    """Let it hide updates of one model and of several, long and short, and count what that costs."""
    written = repr(policy)
    rng = np.random.default_rng(0)
    for num_models, scale in ((1, 0.0), (1, 1e-3), (3, 1.0), (2, 1e30)):
        deltas = (scale * rng.normal(size=(num_models, 5))).astype(np.float32)
        asked = to_comparable(deltas)
        sent, again, other = (
            policy.add_noise(deltas, np.random.default_rng(seed)) for seed in (1, 1, 2)
        )
        assert sent.shape == deltas.shape, "as many numbers as there were"
        assert sent.dtype == np.float32, "in single precision"
        assert np.isfinite(sent).all(), "finite"
        assert to_comparable(deltas) == asked, "what it looks at is untouched"
        assert to_comparable(again) == to_comparable(sent), "same question, same answer"
        assert to_comparable(other) != to_comparable(sent), "and chance is in it"
    costs = [policy.compute_epsilon(releases) for releases in range(20)]
    assert costs[0] == 0, "who has sent nothing has disclosed nothing"
    assert (np.diff(costs) >= 0).all(), "nothing is taken back"
    assert repr(policy) == written, "it remembers nothing itself"
