"""The condition on the learning rate under which sessions that begin with a blended model converge."""

from __future__ import annotations

from thalweg.theory.inputs import count, positive


def session_lr_bound(smoothness: float, min_steps: int) -> float:
    r"""Below which learning rate the theorem about blended first models holds. To look at, not to follow.

    .. math::  \eta < \frac{1}{\beta} \Big( \frac12 - \Big(\frac{1}{e_{min}} - 1\Big)^2 \Big)

    With more than three local steps it is negative: then no learning rate satisfies the condition, and the theorem
    says nothing. The paper's own experiments have five. So no policy of this package asks for it.

    Symbols, clients that come and go, Theorem 1 -> here
        :math:`\beta`      smoothness of the loss                        -> smoothness
        :math:`e_{min}`    fewest local steps of a client in a round     -> min_steps

    >>> session_lr_bound(smoothness=2.0, min_steps=2)
    0.125
    >>> session_lr_bound(smoothness=1.0, min_steps=5) < 0
    True
    """
    beta, steps = positive(smoothness, "smoothness"), count(min_steps, "min_steps")
    return (0.5 - (1 / steps - 1) ** 2) / beta
