import numpy as np
import pytest
import torch

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.local import Batch, Continuous, TaskLoss
from thalweg.local.distillation import binary_distillation, gradient_shares

STUDENT, TEACHER = [2.0, 1.0, 0.0], [1.0, 1.0, 1.0]
BATCH = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))


def logits_are_params(params, x):
    return params[:, None, :]


def loss_of(objective, student, teacher, batch=BATCH):
    memo = {"start": torch.tensor([student]), "teacher": torch.tensor([teacher])}
    return float(objective.loss(logits_are_params, torch.tensor([student]), batch, memo))


@pytest.mark.parametrize(("strength", "loss"), [(0.0, 0.407606), (1.0, 0.716600), (0.5, 0.562103)])
def test_the_loss_is_cross_entropy_plus_divergence_from_the_teacher(strength, loss):
    assert loss_of(Continuous(strength), STUDENT, TEACHER) == pytest.approx(loss, abs=1e-6)


def test_glfc_averages_binary_cross_entropies_with_labels_and_teacher():
    student = torch.tensor([[[2.0, -1.0, 0.5]]])
    fit, kept = binary_distillation(
        student, torch.tensor([[[1.0, -2.0]]]), torch.tensor([[2]]), num_old=2
    )
    assert float(fit) == pytest.approx(0.971422, abs=1e-6)
    assert float(kept) == pytest.approx(0.523784, abs=1e-6)
    assert float(fit + kept) / 2 == pytest.approx(0.747603, abs=1e-6)


def test_glfc_gives_a_single_sample_the_weight_one():
    batch = BATCH._replace(targets=torch.tensor([[2]]))
    objective = Continuous(form="glfc", old_classes=2)
    found = loss_of(objective, [2.0, -1.0, 0.5], [1.0, -2.0, 9.0], batch)
    assert found == pytest.approx(0.747603, abs=1e-6)


def test_badly_predicted_samples_get_larger_weights_within_old_and_new_classes():
    chances = torch.tensor([0.9, 0.5, 0.2, 0.6, 0.7])
    labels = torch.tensor([[0, 0, 1, 1, 0]])
    student = torch.zeros(1, 5, 2)
    student[0, torch.arange(5), labels[0]] = torch.logit(chances)
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25, 0.0]])  # the last one is padding
    shares = gradient_shares(student, labels, weights, num_old=1)
    # gaps 0.1 and 0.5 of class 0, mean 0.3; 0.8 and 0.4 of class 1, mean 0.6
    assert shares[0, :4].tolist() == pytest.approx([1 / 3, 5 / 3, 4 / 3, 2 / 3], abs=1e-6)
    together = gradient_shares(student, labels, weights, num_old=2)
    assert together[0, :4].tolist() == pytest.approx([2 / 9, 10 / 9, 16 / 9, 8 / 9], abs=1e-6)


def test_perfectly_predicted_samples_all_get_weight_one():
    student = torch.tensor([[[100.0, -100.0], [100.0, -100.0]]])
    weights = torch.full((1, 2), 0.5)
    shares = gradient_shares(student, torch.zeros(1, 2, dtype=torch.int64), weights, num_old=1)
    assert shares.tolist() == [[1.0, 1.0]]


def test_glfc_without_old_classes_uses_the_teacher_for_all_classes():
    student, teacher = torch.tensor([[[2.0, -1.0, 0.5]]]), torch.tensor([[[1.0, -2.0, 0.3]]])
    labels = torch.tensor([[2]])
    fit, kept = binary_distillation(student, teacher, labels, num_old=3)
    found = loss_of(
        Continuous(form="glfc"),
        student[0, 0].tolist(),
        teacher[0, 0].tolist(),
        Batch(BATCH.x, labels, BATCH.weights),
    )
    assert found == pytest.approx(float(fit + kept) / 2, abs=1e-6)


def test_the_gradient_of_glfc_treats_the_sample_weights_as_constants():
    rng = np.random.default_rng(0)
    start = torch.tensor(rng.normal(size=(1, 4, 3)))
    teacher = torch.tensor(rng.normal(size=(1, 12)))
    labels = torch.tensor([[0, 1, 2, 2]])
    batch = Batch(torch.zeros(1, 4, 1), labels, torch.full((1, 4), 0.25, dtype=torch.float64))
    shares = gradient_shares(start, labels, batch.weights, num_old=2)

    def model(params, x):
        return params.view(1, 4, 3)

    def by_hand(logits):
        fit, kept = binary_distillation(logits, teacher.view(1, 4, 3), labels, 2)
        return float(((fit * shares + kept) / 2 * batch.weights).sum())

    params = start.reshape(1, 12).clone().requires_grad_()
    objective = Continuous(form="glfc", old_classes=2)
    loss = objective.loss(model, params, batch, {"teacher": teacher})
    assert float(loss.detach()) == pytest.approx(by_hand(start))
    (gradient,) = torch.autograd.grad(loss.sum(), params)
    for index in range(12):
        step = torch.zeros(12, dtype=torch.float64)
        step[index] = 1e-6
        ahead, behind = (by_hand(start + sign * step.view(1, 4, 3)) for sign in (1, -1))
        assert float(gradient[0, index]) == pytest.approx((ahead - behind) / 2e-6, abs=1e-7)


def test_the_first_session_has_no_teacher():
    objective = Continuous()
    server_state = objective.init_server(num_clients=3, num_params=2)
    assert objective.broadcast(server_state, np.array([0])) == {}
    first = objective.start_session(server_state, np.empty(0, dtype=np.float32), np.arange(3))
    assert objective.broadcast(first, np.array([0])) == {}
    params = torch.tensor([STUDENT])
    plain = TaskLoss().loss(logits_are_params, params, BATCH, {})
    for form in ("kl", "glfc"):
        assert torch.equal(Continuous(form=form).loss(logits_are_params, params, BATCH, {}), plain)


def test_the_server_broadcasts_the_last_model_of_the_previous_session():
    objective, last = Continuous(), np.array([1.0, 2.0], dtype=np.float32)
    server_state = objective.start_session(objective.init_server(3, 2), last, np.array([0, 2]))
    assert objective.broadcast(server_state, np.array([0, 2]))["teacher"].tolist() == [
        [1.0, 2.0],
        [1.0, 2.0],
    ]
    assert objective.collect(server_state, np.array([0]), {}) is server_state


def test_no_gradient_flows_into_the_teacher():
    teacher = torch.tensor([TEACHER], requires_grad=True)
    params = torch.tensor([STUDENT], requires_grad=True)
    for form in ("kl", "glfc"):
        loss = Continuous(form=form).loss(logits_are_params, params, BATCH, {"teacher": teacher})
        loss.sum().backward()
    assert teacher.grad is None


def test_invalid_parameters_are_rejected():
    with pytest.raises(ConfigError, match="strength must not be negative"):
        Continuous(-1.0)
    with pytest.raises(UnknownName, match="unknown form 'gflc'"):
        Continuous(form="gflc")
    with pytest.raises(ConfigError, match="old_classes"):
        Continuous(old_classes=-1)
