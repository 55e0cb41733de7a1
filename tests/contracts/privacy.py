"""What everything promises that hides updates."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import plain
from thalweg.local import Privacy


def check_privacy(policy: Privacy) -> None:
    """Let it hide updates of one model and of several, long and short, and count what that costs."""
    written = repr(policy)
    rng = np.random.default_rng(0)
    for num_models, scale in ((1, 0.0), (1, 1e-3), (3, 1.0), (2, 1e30)):
        deltas = (scale * rng.normal(size=(num_models, 5))).astype(np.float32)
        asked = plain(deltas)
        sent, again, other = (
            policy.hide(deltas, np.random.default_rng(seed)) for seed in (1, 1, 2)
        )
        assert sent.shape == deltas.shape, "as many numbers as there were"
        assert sent.dtype == np.float32, "in single precision"
        assert np.isfinite(sent).all(), "finite"
        assert plain(deltas) == asked, "what it looks at is untouched"
        assert plain(again) == plain(sent), "same question, same answer"
        assert plain(other) != plain(sent), "and chance is in it"
    costs = [policy.spent(releases) for releases in range(20)]
    assert costs[0] == 0, "who has sent nothing has disclosed nothing"
    assert (np.diff(costs) >= 0).all(), "nothing is taken back"
    assert repr(policy) == written, "it remembers nothing itself"
