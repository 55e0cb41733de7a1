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
