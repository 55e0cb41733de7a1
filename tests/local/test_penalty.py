import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thalweg.local import Batch, Curvature, Elastic, Proximal, Scaffold
from thalweg.local.penalty import make_penalty

STRENGTH = 0.25
# Objective, names of the vectors in its memo, and its penalty for autograd.
CASES = {
    "proximal": (
        Proximal(STRENGTH),
        ["start"],
        lambda w, start: STRENGTH / 2 * ((w - start) ** 2).sum(1),
    ),
    "elastic": (
        Elastic(STRENGTH),
        ["anchor", "fisher"],
        lambda w, anchor, fisher: STRENGTH / 2 * (fisher * (w - anchor) ** 2).sum(1),
    ),
    "curvature": (
        Curvature(STRENGTH),
        ["others_fisher", "others_fisher_params"],
        lambda w, p, q: STRENGTH * (p * w * w - 2 * q * w).sum(1),
    ),
    "scaffold": (
        Scaffold(),
        ["start", "common", "own"],
        lambda w, start, common, own: ((common - own) * (w - start)).sum(1),
    ),
}


def test_values_and_gradients_are_those_given():
    params = torch.tensor([[3.0, 4.0], [1.0, 1.0]], requires_grad=True)
    values, slopes = torch.tensor([6.25, 1.0]), torch.tensor([[3.0, 4.0], [0.0, -2.0]])
    penalty = make_penalty(params, values, slopes, 0.5)
    assert penalty.tolist() == [6.25, 1.0]
    (gradient,) = torch.autograd.grad((penalty * torch.tensor([1.0, 2.0])).sum(), params)
    assert gradient.tolist() == [[1.5, 2.0], [0.0, -2.0]], "0.5 * slopes, the second one twice"


@pytest.mark.parametrize("name", CASES)
@given(st.integers(0, 2**31), st.integers(1, 5))
def test_the_hand_written_gradients_equal_those_of_autograd(name, seed, clients):
    objective, names, make_expected = CASES[name]
    draw = torch.Generator().manual_seed(seed)
    params, *vectors = torch.randn(1 + len(names), clients, 33, generator=draw, dtype=torch.double)
    params.requires_grad_()
    memo = dict(zip(names, vectors, strict=True))
    weights = torch.zeros(clients, 1)
    batch = Batch(weights[..., None], weights.long(), weights)
    share = torch.rand(clients, generator=draw, dtype=torch.double)

    def model(_, x):  # logits that do not depend on the parameters, and no weight for the samples
        return torch.zeros(clients, 1, 2)

    penalty, expected = objective.loss(model, params, batch, memo), make_expected(params, *vectors)
    torch.testing.assert_close(penalty, expected)
    (found,) = torch.autograd.grad((share * penalty).sum(), params)
    (wanted,) = torch.autograd.grad((share * expected).sum(), params)
    torch.testing.assert_close(found, wanted)


def test_at_the_received_model_penalty_and_gradient_are_zero():
    params = torch.randn(2, 3).requires_grad_()
    batch = Batch(torch.zeros(2, 1, 1), torch.zeros(2, 1).long(), torch.zeros(2, 1))
    memo = {"start": params.detach().clone()}
    penalty = Proximal(1.0).loss(lambda _, x: torch.zeros(2, 1, 2), params, batch, memo)
    assert penalty.tolist() == [0.0, 0.0]
    assert not torch.autograd.grad(penalty.sum(), params)[0].any()
