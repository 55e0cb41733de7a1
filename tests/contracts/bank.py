"""What every bank promises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from contracts.checkpoint import plain, stored
from contracts.views import SomeView
from thalweg.aggregation import Arranged, Bank, Divides, Division, Mixes, RemarksOnBank
from thalweg.core.talk import Asks
from thalweg.core.types import Answers, Floats, Ints, Roster
from thalweg.engine.survey import tabled

NUM_CLIENTS, NUM_CLASSES = 6, 3
COHORTS = ([0, 1, 2], [3], [0, 5], [1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [2])


def some_answers(bank: Bank, cohort: Ints, num_models: int, rnd: int) -> Answers:
    """What clients say whose losses jump about; the last one of a large cohort has no data."""
    if not isinstance(bank, Asks):
        return {}
    words = []
    for k in range(len(cohort)):
        has_data = len(cohort) <= 3 or k < len(cohort) - 1
        view = SomeView(seed=100 * rnd + k, num_models=num_models, has_data=has_data, rnd=rnd)
        words.append(bank.answer(view)[1])
        assert bank.answer(view)[1].keys() == words[-1].keys(), "same question, same answer"
    return tabled(words, type(bank).__name__)


def of(cohort: Ints, rnd: int = 0) -> Roster:
    """A roster in which everybody is here and some were chosen."""
    everybody = np.arange(NUM_CLIENTS)
    nothing, concepts = np.zeros(NUM_CLIENTS, dtype=np.int64), (everybody + rnd // 2) % 3
    return Roster(rnd, everybody, np.ones(NUM_CLIENTS), nothing, cohort=cohort, concepts=concepts)


def asked_by(bank: Bank, roster: Roster) -> Ints:
    if not isinstance(bank, Asks):
        return np.empty(0, dtype=np.int64)
    return np.unique(bank.whom(roster, np.random.default_rng(roster.rnd))).astype(np.int64)


def check_bank(bank: Bank) -> None:
    """Let the bank live through a few rounds of clients that come and go."""
    written = repr(bank)
    notes, num_models = bank.init(NUM_CLIENTS, NUM_CLASSES), 1
    _check_served(bank, notes, num_models)
    for rnd, who in enumerate(COHORTS):
        cohort = np.array(who)
        roster = of(cohort, rnd)
        roster = replace(roster, asked=asked_by(bank, roster))
        answers = some_answers(bank, roster.asked, num_models, rnd)
        asked = plain([notes, cohort, answers])
        plan = bank.arrange(notes, roster, answers, num_models)
        assert plain([notes, cohort, answers]) == asked, "what it looks at is untouched"
        _check_plan(plan, cohort, num_models)
        restored = stored(notes, fresh=bank.init(NUM_CLIENTS, NUM_CLASSES))
        again = bank.arrange(restored, roster, answers, num_models)
        assert plain(list(again)) == plain(list(plan)), "a checkpoint restores what it knows"
        notes, num_models = plan.notes, len(plan.mix)
        if isinstance(bank, RemarksOnBank):
            assert all(np.isfinite(list(bank.remark(notes, roster).values()))), "numbers"
        if isinstance(bank, Divides):
            notes = _divided(bank, notes, plan, cohort, rnd)
        _check_served(bank, notes, num_models)
    assert repr(bank) == written, "a bank remembers nothing itself"


def _check_plan(plan: Arranged, cohort: Ints, num_models: int) -> None:
    assert plan.mix.ndim == 2, "each new model as a mean of old ones"
    assert plan.mix.shape[1] == num_models, "of those that there are"
    assert len(plan.mix) >= 1, "never without a model"
    assert (plan.mix >= 0).all(), "shares are not negative"
    assert plan.is_new.shape == (len(plan.mix),), "new or not, for every model"
    sums = plan.mix.sum(axis=1)
    assert (np.isclose(sums, 1) | ((sums == 0) & plan.is_new)).all(), (
        "rows sum to one, or to zero for a model to be drawn"
    )
    assert plan.models.shape == plan.clients.shape, "jobs are a client and a model each"
    assert np.array_equal(np.unique(plan.clients), cohort), "a job for every client of the cohort"
    jobs = list(zip(plan.clients.tolist(), plan.models.tolist(), strict=True))
    assert jobs == sorted(set(jobs)), "ascending by client and model"
    assert ((plan.models >= 0) & (plan.models < len(plan.mix))).all(), "of models that there are"
    assert all(words.shape[0] == len(cohort) for words in plan.told.values()), "a row for each"


def _divided(bank: Divides, notes: Any, plan: Arranged, cohort: Ints, rnd: int) -> Any:
    """Clients divide a few samples each, and say what came of it."""
    said = []
    for k, client in enumerate(cohort.tolist()):
        rng = np.random.default_rng(1000 * rnd + client)
        kept = bank.begin_division(NUM_CLASSES)
        models, held = plan.models[plan.clients == client], 4 * (client % 2)
        division = Division(
            models,
            rng.random((len(models), held)).astype(np.float32),
            rng.integers(NUM_CLASSES, size=held),
            np.full(held, rnd),
            rnd,
        )
        heard = {name: words[k].astype(np.float32) for name, words in plan.told.items()}
        after, weights = bank.divide(kept, division, heard)
        assert weights.shape == (len(models), held), (
            "a row for each model, a column for each sample"
        )
        assert np.isfinite(weights).all(), "samples count what can be counted"
        assert (weights >= 0).all(), "and nothing less than nothing"
        assert 0 <= bank.main(after, models) < len(models), "one of the models predicts"
        restored = stored(after, fresh=bank.begin_division(NUM_CLASSES))
        again, same = bank.divide(restored, division, heard)
        once_more, _ = bank.divide(after, division, heard)
        assert plain([again]) == plain([once_more]), "a checkpoint restores what a client keeps"
        assert same.shape == weights.shape
        said.append(bank.say(after))
    words = {name: np.stack([each[name] for each in said]) for name in said[0]}
    return bank.hear(notes, cohort, words)


def _check_served(bank: Bank, notes: Any, num_models: int) -> None:
    _check_shares(bank.shares(notes, num_models), num_models)
    if isinstance(bank, Mixes):
        mixtures = bank.mixtures(notes, num_models)
        assert mixtures.shape == (NUM_CLIENTS, num_models), "a mixture for every client"
        np.testing.assert_allclose(mixtures.sum(axis=1), 1, err_msg="mixtures sum to one")


def _check_shares(shares: Floats, num_models: int) -> None:
    assert shares.shape == (num_models,), "a share for every model"
    assert (shares >= 0).all(), "shares of clients are not negative"
    np.testing.assert_allclose(shares.sum(), 1, err_msg="every client is served")
