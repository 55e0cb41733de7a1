import torch
from hypothesis import given
from hypothesis import strategies as st

from thalweg.local.proximal_penalty import proximal_penalty


def test_the_penalty_and_its_gradient_follow_the_formula():
    params = torch.tensor([[3.0, 4.0], [1.0, 1.0]], requires_grad=True)
    anchor = torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    penalty = proximal_penalty(params, anchor, 0.5)
    assert penalty.tolist() == [6.25, 1.0], "0.25 * 25 and 0.25 * 4"
    (gradient,) = torch.autograd.grad((penalty * torch.tensor([1.0, 2.0])).sum(), params)
    assert gradient.tolist() == [[1.5, 2.0], [0.0, -2.0]]


@given(st.integers(0, 2**31), st.integers(1, 5), st.floats(1e-3, 10))
def test_the_hand_written_gradient_equals_that_of_autograd(seed, clients, strength):
    draw = torch.Generator().manual_seed(seed)
    params = torch.randn(clients, 33, generator=draw).requires_grad_()
    anchor = torch.randn(clients, 33, generator=draw)
    offset = params - anchor
    (expected,) = torch.autograd.grad((strength / 2 * (offset * offset).sum(1)).sum(), params)
    (found,) = torch.autograd.grad(proximal_penalty(params, anchor, strength).sum(), params)
    assert torch.equal(found, expected)


def test_at_the_anchor_penalty_and_gradient_are_zero():
    params = torch.randn(2, 3).requires_grad_()
    penalty = proximal_penalty(params, params.detach().clone(), 1.0)
    assert penalty.tolist() == [0.0, 0.0]
    assert not torch.autograd.grad(penalty.sum(), params)[0].any()
