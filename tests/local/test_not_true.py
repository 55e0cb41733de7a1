import pytest
import torch

from thalweg.core.errors import ConfigError
from thalweg.local import Batch, NotTrue

LOCAL, GLOBAL = [2.0, 1.0, 0.0, -1.0], [1.0, 0.5, 0.2, -0.3]
BATCH = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))


def logits_are_params(params, x):
    return params[:, None, :]


@pytest.mark.parametrize(("temperature", "loss"), [(1.0, 0.546793), (3.0, 0.560591)])
def test_the_loss_is_cross_entropy_plus_divergence_over_wrong_classes(temperature, loss):
    objective = NotTrue(strength=1.0, temperature=temperature)
    found = objective.loss(
        logits_are_params, torch.tensor([LOCAL]), BATCH, {"start": torch.tensor([GLOBAL])}
    )
    assert float(found) == pytest.approx(loss, abs=2e-6)


def test_a_student_equal_to_its_teacher_has_only_the_cross_entropy():
    params = torch.tensor([LOCAL])
    found = NotTrue(strength=7.0).loss(logits_are_params, params, BATCH, {"start": params})
    assert float(found) == pytest.approx(0.440190, abs=2e-6)


def test_no_gradient_flows_into_the_teacher():
    start = torch.tensor([GLOBAL], requires_grad=True)
    params = torch.tensor([LOCAL], requires_grad=True)
    loss = NotTrue().loss(logits_are_params, params, BATCH, {"start": start})
    loss.sum().backward()
    assert start.grad is None


def test_invalid_parameters_are_rejected():
    with pytest.raises(ConfigError, match="temperature must be positive"):
        NotTrue(temperature=0.0)
