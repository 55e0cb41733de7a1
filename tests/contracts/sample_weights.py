"""Contract of sample weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from contracts.checkpoint import to_comparable
from contracts.examples import some_roster
from contracts.survey_contexts import FakeSurveyContext
from thalweg.core.capabilities import Surveys
from thalweg.core.types import SampleAges, Supplies
from thalweg.sample_weights import AssignsWeights, SampleWeights

SUPPLIES = Supplies(
    total=np.array([100.0, 50.0, 20.0, 0.0]),
    is_historical=np.array([True, True, False, False]),
    rounds=np.array([10.0, 10.0, 10.0, 0.0]),
)


def check_sample_weights(sample_weights: SampleWeights) -> None:
    """Check the weights of several memories, and those that the server assigns."""
    written = repr(sample_weights)
    for held in (0, 1, 5):
        for assigned in (0.0, 0.25, 3.0):
            samples = SampleAges(np.arange(held) + 1, np.arange(held) % 2, assigned)
            before = to_comparable(samples)
            weights = sample_weights.weigh(samples)
            assert weights.shape == (held,), "one weight per sample"
            assert np.isfinite(weights).all(), "finite"
            assert (weights >= 0).all(), "not negative"
            assert sample_weights.weigh(samples).tolist() == weights.tolist(), (
                "weights are deterministic"
            )
            assert to_comparable(samples) == before, "the argument does not change"
    if isinstance(sample_weights, AssignsWeights):
        _check_server(sample_weights)
    assert repr(sample_weights) == written, "a policy object does not change"


def _check_server(sample_weights: AssignsWeights) -> None:
    roster = replace(some_roster([0, 2], 4), supplies=SUPPLIES)
    if isinstance(sample_weights, Surveys):
        surveyed = sample_weights.choose_surveyed(roster, np.random.default_rng(0))
        assert np.isin(surveyed, roster.present).all(), "only present clients are surveyed"
        if len(surveyed):
            _check_assigned(sample_weights, roster)  # before the survey
            known = {}
            for client in surveyed.tolist():
                _, uploads = sample_weights.answer_survey(FakeSurveyContext(seed=client))
                for name, vector in uploads.items():
                    known.setdefault(name, np.full((4, len(vector)), np.nan))[client] = vector
            roster = replace(roster, known=known)
    _check_assigned(sample_weights, roster)


def _check_assigned(sample_weights: AssignsWeights, roster) -> None:  # type: ignore[no-untyped-def]
    assigned = sample_weights.assign_weights(roster, num_params=7)
    assert assigned.shape == (4,), "one number per client"
    assert np.isfinite(assigned).all(), "finite"
    assert (assigned >= 0).all(), "not negative"
    assert assigned.any(), "at least one client has weight"
    assert assigned[3] == 0, "nothing for a client without data"
