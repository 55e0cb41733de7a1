import numpy as np
import pytest
import torch

from contracts.model_probes import FakeModelProbe
from thalweg.core.errors import ConfigError
from thalweg.local import Batch, TwoTeachers

STUDENT, PAST, GLOBAL = [2.0, 1.0, 0.0], [1.5, 1.0, 0.5], [0.0, 1.0, 2.0]
BATCH = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))
MEMO = {"start": torch.tensor([GLOBAL]), "past": torch.tensor([PAST])}


def logits_are_params(params, x):
    return params[:, None, :]


@pytest.mark.parametrize(
    ("objective", "loss"),
    [
        (TwoTeachers(), 1.139048),  # 0.407606 + 0.3 * 1.097793 + 0.3 * 1.340348
        (TwoTeachers(weight_ce=0.3, weight_global=0.4), 0.987759),  # a convex mix
        (TwoTeachers(weight_past=0, weight_global=0), 0.407606),
        (TwoTeachers(weight_ce=0, weight_past=1, weight_global=0), 1.097793),
    ],
)
def test_the_loss_mixes_cross_entropy_and_two_distillation_terms(objective, loss):
    found = objective.loss(logits_are_params, torch.tensor([STUDENT]), BATCH, MEMO)
    assert float(found) == pytest.approx(loss, abs=2e-6)


def test_before_a_change_of_state_the_received_model_is_both_teachers():
    objective, start = TwoTeachers(), np.array(GLOBAL, dtype=np.float32)
    memo = objective.memo(objective.init(3), start)
    assert memo["past"].tolist() == GLOBAL


def test_the_past_model_is_set_when_the_state_changes():
    objective, probe = TwoTeachers(), FakeModelProbe(params=[1.0, 2.0])
    state = objective.start_tick(objective.init(2), probe, np.arange(3), changed=False)
    assert len(state.params) == 0
    state = objective.start_tick(state, probe, np.arange(3), changed=True)
    assert state.params.tolist() == [1.0, 2.0]
    later = objective.start_tick(
        state, FakeModelProbe(params=[3.0, 4.0]), np.arange(3), changed=False
    )
    assert later.params.tolist() == [1.0, 2.0]


def test_all_weights_that_sfedpo_tried_are_accepted():
    grid = (0.001, 0.01, 0.1, 0.3, 0.7)
    for past in grid:
        for received in grid:
            teachers = TwoTeachers(weight_past=past, weight_global=received)
            assert (teachers.weight_past, teachers.weight_global) == (past, received)


@pytest.mark.parametrize("name", ["weight_ce", "weight_past", "weight_global"])
def test_negative_weights_are_rejected(name):
    with pytest.raises(ConfigError, match=name):
        TwoTeachers(**{name: -0.1})
