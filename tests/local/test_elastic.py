import numpy as np
import pytest
import torch

from contracts.model_probes import FakeModelProbe
from thalweg.core.errors import ConfigError
from thalweg.local import Batch, CrossEntropy, Elastic

BATCH = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))


def deaf(params, x):
    return torch.zeros(1, 1, 2) + 0 * params.sum()


def test_the_pull_of_the_sheet():
    params = torch.tensor([[1.0, 2.0]], requires_grad=True)
    memo = {"anchor": torch.tensor([[0.5, 2.5]]), "fisher": torch.tensor([[4.0, 0.5]])}
    loss = Elastic(0.1).loss(deaf, params, BATCH, memo)
    plain = CrossEntropy().loss(deaf, params, BATCH, memo)
    assert float((loss - plain).detach()) == pytest.approx(0.056250, abs=1e-6)
    (slope,) = torch.autograd.grad(loss.sum(), params)
    assert slope[0].tolist() == pytest.approx([0.2, -0.025], abs=1e-6)


def test_before_the_first_change_of_state_nothing_pulls():
    memo = Elastic().memo(Elastic().init(2), np.ones(2, dtype=np.float32))
    assert memo["fisher"].tolist() == [0.0, 0.0]


def test_the_anchor_is_set_when_the_state_changes_and_kept_while_it_does_not():
    objective, rows = Elastic(fisher_samples=2), np.array([10, 11, 12, 13])
    look = FakeModelProbe(params=[1.0, 2.0], fisher=[4.0, 0.5])
    state = objective.start_tick(objective.init(2), look, rows, changed=False)
    assert look.asked == []
    state = objective.start_tick(state, look, rows, changed=True)
    assert look.asked == [[10, 12]]
    assert state.params.tolist() == [1.0, 2.0]
    assert state.fisher.tolist() == [4.0, 0.5]
    later = objective.start_tick(state, FakeModelProbe(params=[9.0, 9.0]), rows, changed=False)
    assert later.params.tolist() == [1.0, 2.0]


def test_online_consolidation_keeps_a_share_of_the_old_importance():
    objective, look = Elastic(keep=0.5), FakeModelProbe(params=[0.0, 0.0], fisher=[4.0, 0.5])
    state = objective.init(2)
    for _ in range(2):
        state = objective.start_tick(state, look, np.arange(3), changed=True)
    assert state.fisher.tolist() == [6.0, 0.75]


def test_an_empty_memory_teaches_nothing():
    objective, look = Elastic(), FakeModelProbe(params=[1.0, 2.0])
    state = objective.start_tick(objective.init(2), look, np.empty(0, dtype=np.int64), changed=True)
    assert look.asked == []
    assert state.fisher.tolist() == [0.0, 0.0]


def test_bad_tunables_are_refused():
    with pytest.raises(ConfigError, match="fisher_samples"):
        Elastic(fisher_samples=0)
    with pytest.raises(ConfigError, match="keep must lie"):
        Elastic(keep=2.0)
