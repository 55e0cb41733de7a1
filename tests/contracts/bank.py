"""Contract of banks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from contracts.survey_contexts import FakeSurveyContext
from thalweg.bank import (
    Bank,
    BankAssignment,
    ExtraBankMetrics,
    MixesModels,
    SplitContext,
    SplitsSamples,
    WatchesClients,
    find_max_jobs,
)
from thalweg.core.capabilities import Surveys
from thalweg.core.decisions import describe_decision
from thalweg.core.types import Floats, Ints, OracleRoster, Roster, SurveyResponses
from thalweg.federation import tabulate_responses

NUM_CLIENTS, NUM_CLASSES = 6, 3
COHORTS = ([0, 1, 2], [3], [0, 5], [1, 2, 3, 4], [0, 1, 2, 3, 4, 5], [2])


def some_responses(bank: Bank, cohort: Ints, num_models: int, rnd: int) -> SurveyResponses:
    """Return responses with random losses; the last client of a large cohort has no data."""
    if not isinstance(bank, Surveys):
        return {}
    responses = []
    for k in range(len(cohort)):
        has_data = len(cohort) <= 3 or k < len(cohort) - 1
        view = FakeSurveyContext(
            seed=100 * rnd + k, num_models=num_models, has_data=has_data, rnd=rnd
        )
        responses.append(bank.answer_survey(view)[1])
        assert bank.answer_survey(view)[1].keys() == responses[-1].keys(), (
            "responses are reproducible"
        )
    return tabulate_responses(responses, type(bank).__name__)


def roster_for_cohort(cohort: Ints, rnd: int = 0) -> Roster:
    """Return a roster in which all clients are present."""
    present = np.arange(NUM_CLIENTS)
    nothing, concepts = np.zeros(NUM_CLIENTS, dtype=np.int64), (present + rnd // 2) % 3
    return OracleRoster(
        rnd, present, np.ones(NUM_CLIENTS), nothing, cohort=cohort, concepts=concepts
    )


def surveyed_by(bank: Bank, roster: Roster, state: Any) -> Ints:
    if not isinstance(bank, Surveys):
        return np.empty(0, dtype=np.int64)
    clients = bank.choose_surveyed(roster, np.random.default_rng(roster.rnd))
    if isinstance(bank, WatchesClients):
        clients = np.union1d(clients, bank.find_watched(state, roster))
    return np.unique(clients).astype(np.int64)


def check_bank(bank: Bank) -> None:
    """Run the bank for a few rounds with changing cohorts."""
    fields = repr(bank)
    state = bank.init(NUM_CLIENTS, NUM_CLASSES)
    _check_served(bank, state, num_models=1)
    num_models = getattr(bank, "num_start_models", 1)
    for rnd, who in enumerate(COHORTS):
        cohort = np.array(who)
        roster = roster_for_cohort(cohort, rnd)
        roster = replace(roster, surveyed=surveyed_by(bank, roster, state))
        responses = some_responses(bank, roster.surveyed, num_models, rnd)
        arguments = to_comparable([state, cohort, responses])
        plan = bank.assign(state, roster, responses, num_models)
        assert to_comparable([state, cohort, responses]) == arguments, "arguments do not change"
        _check_plan(plan, cohort, num_models)
        assert np.bincount(plan.clients).max() <= find_max_jobs(bank), "at most max_jobs per client"
        restored = round_trip(state, fresh=bank.init(NUM_CLIENTS, NUM_CLASSES))
        again = bank.assign(restored, roster, responses, num_models)
        assert to_comparable(list(again)) == to_comparable(list(plan)), (
            "the state survives a checkpoint"
        )
        state, num_models = plan.state, len(plan.mix)
        if isinstance(bank, ExtraBankMetrics):
            values = dict(bank.extra_metrics(state, roster))
            decisions = values.pop("decisions", [])
            assert all(np.isfinite(value).all() for value in values.values()), "metrics are finite"
            assert all(describe_decision(decision) for decision in decisions)
        if isinstance(bank, SplitsSamples):
            state = _check_split(bank, state, plan, cohort, rnd)
        _check_served(bank, state, num_models)
    assert repr(bank) == fields, "a bank object does not change"


def _check_plan(plan: BankAssignment, cohort: Ints, num_models: int) -> None:
    assert plan.mix.ndim == 2, "the mix is a matrix"
    assert plan.mix.shape[1] == num_models, "the mix has a column for each old model"
    assert len(plan.mix) >= 1, "there is at least one model"
    assert (plan.mix >= 0).all(), "entries of the mix are not negative"
    assert plan.is_new.shape == (len(plan.mix),), "is_new has an entry for each model"
    sums = plan.mix.sum(axis=1)
    assert (np.isclose(sums, 1) | ((sums == 0) & plan.is_new)).all(), (
        "rows of the mix sum to one, or to zero for a random model"
    )
    assert plan.models.shape == plan.clients.shape, "each job has a client and a model"
    assert np.array_equal(np.unique(plan.clients), cohort), "each client of the cohort has a job"
    jobs = list(zip(plan.clients.tolist(), plan.models.tolist(), strict=True))
    assert jobs == sorted(set(jobs)), "jobs are distinct and ascending by client and model"
    assert ((plan.models >= 0) & (plan.models < len(plan.mix))).all(), (
        "jobs refer to existing models"
    )
    assert all(values.shape[0] == len(cohort) for values in plan.broadcast.values()), (
        "broadcasts have a row for each client of the cohort"
    )


def _check_split(
    bank: SplitsSamples, state: Any, plan: BankAssignment, cohort: Ints, rnd: int
) -> Any:
    """Let clients split a few samples each, and collect their uploads."""
    uploads = []
    for k, client in enumerate(cohort.tolist()):
        rng = np.random.default_rng(1000 * rnd + client)
        kept = bank.init_split(NUM_CLASSES)
        models, held = plan.models[plan.clients == client], 4 * (client % 2)
        split = SplitContext(
            models,
            rng.random((len(models), held)).astype(np.float32),
            rng.integers(NUM_CLASSES, size=held),
            np.full(held, rnd),
            rnd,
        )
        received = {name: values[k].astype(np.float32) for name, values in plan.broadcast.items()}
        after, weights = bank.split_samples(kept, split, received)
        assert weights.shape == (len(models), held), (
            "sample weights have a row per model and a column per sample"
        )
        assert np.isfinite(weights).all(), "sample weights are finite"
        assert (weights >= 0).all(), "sample weights are not negative"
        assert 0 <= bank.main_model(after, models, received) < len(models), (
            "the main model is one of the client's models"
        )
        restored = round_trip(after, fresh=bank.init_split(NUM_CLASSES))
        again, same = bank.split_samples(restored, split, received)
        once_more, _ = bank.split_samples(after, split, received)
        assert to_comparable([again]) == to_comparable([once_more]), (
            "the client state survives a checkpoint"
        )
        assert same.shape == weights.shape
        uploads.append(bank.upload(after))
    stacked = {name: np.stack([each[name] for each in uploads]) for name in uploads[0]}
    return bank.collect(state, cohort, stacked)


def _check_served(bank: Bank, state: Any, num_models: int) -> None:
    _check_shares(bank.shares(state, num_models), num_models)
    if isinstance(bank, MixesModels):
        mixtures = bank.mixtures(state, num_models)
        assert mixtures.shape == (NUM_CLIENTS, num_models), "mixtures have a row per client"
        np.testing.assert_allclose(mixtures.sum(axis=1), 1, err_msg="mixtures sum to one")


def _check_shares(shares: Floats, num_models: int) -> None:
    assert shares.shape == (num_models,), "one share per model"
    assert (shares >= 0).all(), "shares are not negative"
    np.testing.assert_allclose(shares.sum(), 1, err_msg="shares sum to one")
