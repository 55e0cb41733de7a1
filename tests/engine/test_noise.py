import numpy as np
import torch

from thalweg.core.types import Job
from thalweg.engine.noise import NoisyModel, noise_seeds
from thalweg.nets import Net
from thalweg.nets.dropout import Dropout
from thalweg.nets.layers import Dense

NET = Net((Dropout(0.5), Dense("fc", 20, 2)), (20,))


def logits(seeds, steps, is_stacked):
    model = NoisyModel(NET, is_stacked, np.array(seeds), np.array(steps))
    params = torch.tensor(NET.init(np.random.default_rng(0))).expand(len(seeds), -1)
    return model, model(params, torch.ones(len(seeds), 3, 20)), params


def test_a_client_draws_the_same_alone_and_in_a_stack():
    _, together, _ = logits([5, 9], [0, 3], True)
    for k, (seed, step) in enumerate([(5, 0), (9, 3)]):
        _, alone, _ = logits([seed], [step], False)
        torch.testing.assert_close(together[k], alone[0])


def test_every_step_and_every_client_draws_anew():
    _, first, _ = logits([5, 6], [0, 0], True)
    _, next_step, _ = logits([5, 6], [10, 10], True)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], next_step[0])


def test_a_teacher_has_no_dropout():
    model, _, params = logits([5], [0], True)
    x = torch.ones(1, 3, 20)
    torch.testing.assert_close(model.still(params, x)[0], NET.apply(params[0], x[0]))


def test_seeds_depend_on_the_client_and_the_round_only():
    both = noise_seeds(1, [Job(3), Job(7)], 2)
    assert both[1] == noise_seeds(1, [Job(7, model=1, pace=0.5)], 2)[0]
    assert both[0] != both[1]
    assert both[0] != noise_seeds(1, [Job(3)], 3)[0]
