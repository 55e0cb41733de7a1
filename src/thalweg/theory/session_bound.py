"""Condition on the learning rate for the convergence of sessions with a blended initial model."""

from __future__ import annotations

from thalweg.theory.inputs import count, positive


def session_lr_bound(smoothness: float, min_steps: int) -> float:
    r"""The first upper bound on the learning rate in the theorem about sessions; a diagnostic.

    .. math::  \eta < \frac{1}{\beta} \Big( \frac12 - \Big(\frac{1}{e_{min}} - 1\Big)^2 \Big)

    With more than three local steps it is negative: no learning rate satisfies the condition, and
    the theorem is empty. The paper's experiments have five steps. The theorem's second bound, which
    needs constants of the data, is not computed. No policy of this package uses either.

    Symbols, Chang et al., Theorem 1 -> here
        :math:`\beta`      smoothness of the loss                            -> smoothness
        :math:`e_{min}`    minimum number of local steps of a client         -> min_steps

    >>> session_lr_bound(smoothness=2.0, min_steps=2)
    0.125
    >>> session_lr_bound(smoothness=1.0, min_steps=5) < 0
    True
    """
    beta, steps = positive(smoothness, "smoothness"), count(min_steps, "min_steps")
    return (0.5 - (1 / steps - 1) ** 2) / beta
