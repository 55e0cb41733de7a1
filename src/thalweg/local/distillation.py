"""Distillation losses: how far a student's logits are from a teacher's, for K clients at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def distances(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    r"""Return (K, B) the cross-entropy between softened predictions; logits (K, B, C).

    .. math::  -\textstyle\sum_c \mathrm{softmax}(t/\tau)_c \log \mathrm{softmax}(z/\tau)_c

    >>> import torch
    >>> even = torch.zeros(1, 1, 4)
    >>> round(distances(even, even, temperature=2.0).item(), 4)  # log 4
    1.3863
    """
    target = (teacher / temperature).softmax(2)
    return -(target * (student / temperature).log_softmax(2)).sum(2)


def divergences(student: Tensor, teacher: Tensor) -> Tensor:
    r"""Return (K, B) the Kullback-Leibler divergence of predictions; logits (K, B, C).

    .. math::  \mathrm{KL}(\mathrm{softmax}(t) \,\|\, \mathrm{softmax}(z))

    >>> import torch
    >>> round(divergences(torch.tensor([[[2.0, 1.0, 0.0]]]), torch.ones(1, 1, 3)).item(), 6)
    0.308994
    """
    log_ours, log_theirs = student.log_softmax(2), teacher.log_softmax(2)
    return (log_theirs.exp() * (log_theirs - log_ours)).sum(2)


def binary_distillation(
    student: Tensor, teacher: Tensor, labels: Tensor, num_old: int
) -> tuple[Tensor, Tensor]:
    """Return two (K, B) mean binary cross-entropies: with the labels, and with taught targets.

    Logits are (K, B, C). The taught targets are the teacher's sigmoids in the first `num_old`
    classes and the one-hot label in the others. The teacher may have only `num_old` classes.
    """
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits as errors
    from torch.nn.functional import one_hot

    right = one_hot(labels, student.shape[2]).to(student.dtype)
    taught = torch.cat([teacher[..., :num_old].sigmoid(), right[..., num_old:]], 2)
    return (
        errors(student, right, reduction="none").mean(2),
        errors(student, taught, reduction="none").mean(2),
    )


def gradient_shares(student: Tensor, labels: Tensor, weights: Tensor, num_old: int) -> Tensor:
    """Return (K, B) weights that are larger for badly predicted samples.

    The weight is one minus the sigmoid of the right logit, divided by its weighted mean: once over
    samples of old classes (the first `num_old`), once over samples of new classes. If that mean is
    0 the weights are 1. No gradient flows through the weights.
    """
    import torch

    right = student.detach().gather(2, labels.unsqueeze(2))[..., 0]
    gaps = 1 - right.sigmoid()  # (K, B)
    shares = torch.ones_like(gaps)
    for among in (labels < num_old, labels >= num_old):
        mine = weights * among
        total = (mine * gaps).sum(1, keepdim=True)
        means = total / mine.sum(1, keepdim=True).clamp_min(1e-30)
        scaled = gaps / means.clamp_min(1e-30)
        shares = torch.where(among & (means > 0), scaled, shares)
    return shares


def not_true_divergences(
    student: Tensor, teacher: Tensor, labels: Tensor, temperature: float
) -> Tensor:
    """Return (K, B) the Kullback-Leibler divergence of softened predictions over the wrong classes.

    >>> import torch
    >>> student = torch.tensor([[[2.0, 1.0, 0.0, -1.0]]])
    >>> teacher = torch.tensor([[[1.0, 0.5, 0.2, -0.3]]])
    >>> round(not_true_divergences(student, teacher, torch.tensor([[0]]), 1.0).item(), 6)
    0.106604
    """
    import torch

    K, B, C = student.shape
    is_wrong = torch.ones_like(student, dtype=torch.bool).scatter_(2, labels.unsqueeze(2), False)
    wrong = student[is_wrong].view(K, B, C - 1) / temperature
    theirs = teacher[is_wrong].view(K, B, C - 1) / temperature
    log_ours, log_theirs = wrong.log_softmax(2), theirs.log_softmax(2)
    return (log_theirs.exp() * (log_theirs - log_ours)).sum(2)
