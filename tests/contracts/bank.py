"""What every bank promises."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import plain, stored
from thalweg.aggregation import Bank
from thalweg.core.types import Floats, Ints, Survey

NUM_CLIENTS = 6
COHORTS = ([0, 1, 2], [3], [0, 5], [1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [2])


def some_survey(cohort: Ints, num_models: int, rnd: int) -> Survey:
    """Losses that jump about; the last client of a large cohort has no data."""
    rng = np.random.default_rng(rnd)
    losses = rng.uniform(0.1, 3.0, size=(len(cohort), num_models))
    sizes = np.full(len(cohort), 10)
    if len(cohort) > 3:
        losses[-1], sizes[-1] = np.nan, 0
    return Survey(losses, 1 - losses / 4, sizes)


def check_bank(bank: Bank) -> None:
    """Let the bank live through a few rounds of clients that come and go."""
    written = repr(bank)
    notes, num_models = bank.init(NUM_CLIENTS), 1
    _check_shares(bank.shares(notes, num_models), num_models)
    for rnd, who in enumerate(COHORTS):
        cohort = np.array(who)
        survey = some_survey(cohort, num_models, rnd) if bank.asks else None
        asked = plain([notes, cohort, survey])
        plan = bank.arrange(notes, cohort, survey, num_models)
        assert plain([notes, cohort, survey]) == asked, "what it looks at is untouched"
        assert plan.mix.ndim == 2, "each new model as a mean of old ones"
        assert plan.mix.shape[1] == num_models, "of those that there are"
        assert len(plan.mix) >= 1, "never without a model"
        assert (plan.mix >= 0).all(), "shares are not negative"
        np.testing.assert_allclose(plan.mix.sum(axis=1), 1, err_msg="rows sum to one")
        assert plan.is_new.shape == (len(plan.mix),), "new or not, for every model"
        assert plan.models.shape == (len(cohort),), "a model for every client"
        assert ((plan.models >= 0) & (plan.models < len(plan.mix))).all(), "that there is"
        restored = stored(notes, fresh=bank.init(NUM_CLIENTS))
        again = bank.arrange(restored, cohort, survey, num_models)
        assert plain(list(again)) == plain(list(plan)), "a checkpoint restores what it knows"
        notes, num_models = plan.notes, len(plan.mix)
        _check_shares(bank.shares(notes, num_models), num_models)
    assert repr(bank) == written, "a bank remembers nothing itself"


def _check_shares(shares: Floats, num_models: int) -> None:
    assert shares.shape == (num_models,), "a share for every model"
    assert (shares >= 0).all(), "shares of clients are not negative"
    np.testing.assert_allclose(shares.sum(), 1, err_msg="every client is served")
