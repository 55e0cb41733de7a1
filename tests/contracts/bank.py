"""What every bank promises."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import plain, stored
from contracts.views import SomeView
from thalweg.aggregation import Bank
from thalweg.core.talk import Asks
from thalweg.core.types import Answers, Floats, Ints
from thalweg.engine.survey import tabled

NUM_CLIENTS = 6
COHORTS = ([0, 1, 2], [3], [0, 5], [1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [2])


def some_answers(bank: Bank, cohort: Ints, num_models: int, rnd: int) -> Answers:
    """What clients say whose losses jump about; the last one of a large cohort has no data."""
    if not isinstance(bank, Asks):
        return {}
    words = []
    for k in range(len(cohort)):
        has_data = len(cohort) <= 3 or k < len(cohort) - 1
        view = SomeView(seed=100 * rnd + k, num_models=num_models, has_data=has_data)
        words.append(bank.answer(view)[1])
        assert bank.answer(view)[1].keys() == words[-1].keys(), "same question, same answer"
    return tabled(words, type(bank).__name__)


def check_bank(bank: Bank) -> None:
    """Let the bank live through a few rounds of clients that come and go."""
    written = repr(bank)
    notes, num_models = bank.init(NUM_CLIENTS), 1
    _check_shares(bank.shares(notes, num_models), num_models)
    for rnd, who in enumerate(COHORTS):
        cohort = np.array(who)
        answers = some_answers(bank, cohort, num_models, rnd)
        asked = plain([notes, cohort, answers])
        plan = bank.arrange(notes, cohort, answers, num_models)
        assert plain([notes, cohort, answers]) == asked, "what it looks at is untouched"
        assert plan.mix.ndim == 2, "each new model as a mean of old ones"
        assert plan.mix.shape[1] == num_models, "of those that there are"
        assert len(plan.mix) >= 1, "never without a model"
        assert (plan.mix >= 0).all(), "shares are not negative"
        np.testing.assert_allclose(plan.mix.sum(axis=1), 1, err_msg="rows sum to one")
        assert plan.is_new.shape == (len(plan.mix),), "new or not, for every model"
        assert plan.models.shape == (len(cohort),), "a model for every client"
        assert ((plan.models >= 0) & (plan.models < len(plan.mix))).all(), "that there is"
        restored = stored(notes, fresh=bank.init(NUM_CLIENTS))
        again = bank.arrange(restored, cohort, answers, num_models)
        assert plain(list(again)) == plain(list(plan)), "a checkpoint restores what it knows"
        notes, num_models = plan.notes, len(plan.mix)
        _check_shares(bank.shares(notes, num_models), num_models)
    assert repr(bank) == written, "a bank remembers nothing itself"


def _check_shares(shares: Floats, num_models: int) -> None:
    assert shares.shape == (num_models,), "a share for every model"
    assert (shares >= 0).all(), "shares of clients are not negative"
    np.testing.assert_allclose(shares.sum(), 1, err_msg="every client is served")
