import pytest
import torch

from thalweg.core.errors import ConfigError
from thalweg.local import Euclidean, PNorm
from thalweg.local.geometry import link

Y, G = torch.tensor([[0.5, -0.3]]), torch.tensor([[1.0, 2.0]])


def test_a_p_norm_step_follows_the_formula():
    assert PNorm(2.0).move(Y, 0.1 * G, [2])[0].tolist() == pytest.approx([0.4, -0.5], abs=1e-6)
    dual = link(Y, 1.5) - 0.1 * G
    assert dual[0].tolist() == pytest.approx([0.467839, -0.639846], abs=1e-6)
    moved = PNorm(1.5).move(Y, 0.1 * G, [2])
    assert moved[0].tolist() == pytest.approx([0.306445, -0.573206], abs=1e-6)


def test_a_p_norm_step_with_p_two_is_the_ordinary_step():
    assert torch.equal(PNorm(2.0).move(Y, 0.1 * G, [2]), Euclidean().move(Y, 0.1 * G, [2]))


def test_each_parameter_tensor_has_its_own_norm():
    apart = PNorm(1.5).move(Y, 0.1 * G, [1, 1])
    assert apart[0].tolist() == pytest.approx([0.4, -0.5], abs=1e-6)  # in one dimension p is moot


def test_a_step_from_zero_is_finite():
    moved = PNorm(1.5).move(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), [2])
    assert moved[0].tolist() == pytest.approx([-1.0, 0.0])


@pytest.mark.parametrize("size", [1e-20, 1e20])
def test_tiny_and_huge_parameters_do_not_under_or_overflow(size):
    moved = PNorm(1.9).move(size * Y, torch.zeros(1, 2), [2])
    assert (moved / size)[0].tolist() == pytest.approx([0.5, -0.3], rel=1e-3)


def test_p_must_be_larger_than_one():
    with pytest.raises(ConfigError, match="p must lie in"):
        PNorm(1.0)
