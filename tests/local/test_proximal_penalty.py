import torch
from hypothesis import given
from hypothesis import strategies as st

from thalweg.local.proximal_penalty import proximal_penalty


def test_energy_and_pull_are_those_of_the_formula():
    params = torch.tensor([[3.0, 4.0], [1.0, 1.0]], requires_grad=True)
    anchor = torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    energy = proximal_penalty(params, anchor, 0.5)
    assert energy.tolist() == [6.25, 1.0], "0.25 * 25 and 0.25 * 4"
    (pull,) = torch.autograd.grad((energy * torch.tensor([1.0, 2.0])).sum(), params)
    assert pull.tolist() == [[1.5, 2.0], [0.0, -2.0]]


@given(st.integers(0, 2**31), st.integers(1, 5), st.floats(1e-3, 10))
def test_the_pull_is_what_autograd_makes_of_the_formula(seed, clients, strength):
    draw = torch.Generator().manual_seed(seed)
    params = torch.randn(clients, 33, generator=draw).requires_grad_()
    anchor = torch.randn(clients, 33, generator=draw)
    away = params - anchor
    (wanted,) = torch.autograd.grad((strength / 2 * (away * away).sum(1)).sum(), params)
    (found,) = torch.autograd.grad(proximal_penalty(params, anchor, strength).sum(), params)
    assert torch.equal(found, wanted)


def test_at_its_anchor_a_spring_does_not_pull():
    params = torch.randn(2, 3).requires_grad_()
    energy = proximal_penalty(params, params.detach().clone(), 1.0)
    assert energy.tolist() == [0.0, 0.0]
    assert not torch.autograd.grad(energy.sum(), params)[0].any()
