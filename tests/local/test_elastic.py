import numpy as np
import pytest
import torch

from contracts.model_probes import FakeModelProbe
from thalweg.core.errors import ConfigError
from thalweg.local import Batch, Elastic, TaskLoss

BATCH = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))


def constant_logits(params, x):
    return torch.zeros(1, 1, 2) + 0 * params.sum()


def test_the_penalty_and_its_gradient_follow_the_formula():
    params = torch.tensor([[1.0, 2.0]], requires_grad=True)
    memo = {"anchor": torch.tensor([[0.5, 2.5]]), "fisher": torch.tensor([[4.0, 0.5]])}
    loss = Elastic(0.1).loss(constant_logits, params, BATCH, memo)
    plain = TaskLoss().loss(constant_logits, params, BATCH, memo)
    assert float((loss - plain).detach()) == pytest.approx(0.056250, abs=1e-6)
    (gradient,) = torch.autograd.grad(loss.sum(), params)
    assert gradient[0].tolist() == pytest.approx([0.2, -0.025], abs=1e-6)


def test_before_the_first_change_of_state_there_is_no_penalty():
    memo = Elastic().memo(Elastic().init(2), np.ones(2, dtype=np.float32))
    assert memo["fisher"].tolist() == [0.0, 0.0]


def test_the_anchor_is_set_only_when_the_state_changes():
    objective, rows = Elastic(fisher_samples=2), np.array([10, 11, 12, 13])
    probe = FakeModelProbe(params=[1.0, 2.0], fisher=[4.0, 0.5])
    state = objective.start_tick(objective.init(2), probe, rows, changed=False)
    assert probe.asked == []
    state = objective.start_tick(state, probe, rows, changed=True)
    assert probe.asked == [[10, 12]]
    assert state.params.tolist() == [1.0, 2.0]
    assert state.fisher.tolist() == [4.0, 0.5]
    later = objective.start_tick(state, FakeModelProbe(params=[9.0, 9.0]), rows, changed=False)
    assert later.params.tolist() == [1.0, 2.0]


def test_keep_adds_a_share_of_the_old_fisher_information():
    objective, probe = Elastic(keep=0.5), FakeModelProbe(params=[0.0, 0.0], fisher=[4.0, 0.5])
    state = objective.init(2)
    for _ in range(2):
        state = objective.start_tick(state, probe, np.arange(3), changed=True)
    assert state.fisher.tolist() == [6.0, 0.75]


def test_an_empty_memory_leaves_the_anchor_unchanged():
    objective, probe = Elastic(), FakeModelProbe(params=[1.0, 2.0])
    state = objective.start_tick(
        objective.init(2), probe, np.empty(0, dtype=np.int64), changed=True
    )
    assert probe.asked == []
    assert state.fisher.tolist() == [0.0, 0.0]


def test_invalid_parameters_are_rejected():
    with pytest.raises(ConfigError, match="fisher_samples"):
        Elastic(fisher_samples=0)
    with pytest.raises(ConfigError, match="keep must lie"):
        Elastic(keep=2.0)
