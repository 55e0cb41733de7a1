"""What a student is taught by a teacher's logits, for K clients at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """(K, B) minus log-probability of the right label; logits (K, B, C), labels (K, B)."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.transpose(1, 2), labels, reduction="none")


def distances(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    r"""(K, B) cross-entropy between softened predictions; logits (K, B, C).

    .. math::  -\textstyle\sum_c \mathrm{softmax}(t/\tau)_c \log \mathrm{softmax}(z/\tau)_c
    """
    wanted = (teacher / temperature).softmax(2)
    return -(wanted * (student / temperature).log_softmax(2)).sum(2)


def divergences(student: Tensor, teacher: Tensor) -> Tensor:
    r"""(K, B) Kullback-Leibler divergence of predictions; logits (K, B, C).

    .. math::  \mathrm{KL}(\mathrm{softmax}(t) \,\|\, \mathrm{softmax}(z))
    """
    log_ours, log_theirs = student.log_softmax(2), teacher.log_softmax(2)
    return (log_theirs.exp() * (log_theirs - log_ours)).sum(2)


def binary_distillation(
    student: Tensor, teacher: Tensor, labels: Tensor, num_old: int
) -> tuple[Tensor, Tensor]:
    """(K, B) binary cross-entropies, averaged over classes: with the right answers, and with those of a teacher.

    Logits are (K, B, C). The teacher answers for the first `num_old` classes by its sigmoids;
    it need not have more.
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
    """(K, B) how badly each sample is predicted, 1 on average over old classes and 1 over new ones.

    Badly is one minus the sigmoid of the right logit. Old classes are the first `num_old`. Averages are weighted;
    where nothing is left to learn all samples count 1. Not differentiated.
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
    """(K, B) Kullback-Leibler divergence of the softened predictions among the wrong classes."""
    import torch

    K, B, C = student.shape
    is_wrong = torch.ones_like(student, dtype=torch.bool).scatter_(2, labels.unsqueeze(2), False)
    wrong = student[is_wrong].view(K, B, C - 1) / temperature
    theirs = teacher[is_wrong].view(K, B, C - 1) / temperature
    log_ours, log_theirs = wrong.log_softmax(2), theirs.log_softmax(2)
    return (log_theirs.exp() * (log_theirs - log_ours)).sum(2)
