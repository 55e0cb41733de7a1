from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from thalweg.core.config import check_ranges, choice
from thalweg.core.types import Floats, Ints
from thalweg.drift.actions import ACTIONS, RecordOnly
from thalweg.drift.base import Action, Bools, WatchedMetric, select_rows, update_rows

PRIOR = 50.0  # samples with a gap of 0 with which the estimate of the gap starts
MIN_TESTED = 30.0  # samples from which the earlier error is known


class ExcessErrorsState(NamedTuple):
    """Statistics of each client since its last alarm."""

    excess: Floats  # (N,) wrong predictions above the expected number
    loss: Floats  # (N,) training loss of its last round; nan: not known
    gap: Floats  # (N,) sum of the errors above the bound of the loss
    gap_tested: Floats  # (N,) samples in this sum
    wrong: Floats  # (N,) recent wrong predictions, with forgetting
    tested: Floats  # (N,) recent predictions, with forgetting
    rounds: Floats  # (N,) rounds in which the client has trained


@dataclass(frozen=True)
class ExcessErrors:
    r"""Raises an alarm when more arriving samples are predicted wrongly than can be expected.

    A cumulative sum (CUSUM) counts the wrong predictions above the expected number:

    .. math::
        S \leftarrow \max(0,\; S + w - n\,(e + \delta_t)), \qquad S > \lambda, \qquad
        e = \min(1 - \exp(-\ell) + g,\; \bar e), \qquad
        \delta_t = \delta + (1 - \delta)\, e^{-t / r}

    There are two expectations, and the smaller one counts. The first follows from the training loss
    of the client's last round: :math:`1 - \exp(-\ell)` is at least the mean probability that the
    model gives to wrong classes of stored samples. The mean difference between the error on
    arriving samples and this bound is added to it, so that a model that is overfitted to its stored
    samples raises no alarm. The second one is the client's own earlier error.

    The sum counts samples, not rounds. Five samples in each of ten rounds have the same effect as
    50 samples in one round, and a change is detected in the round in which it arrives if there
    are enough samples. The other alarms need several rounds with samples before and after a
    change. The training loss is that of the last round in which the client took part; before its
    first one, no alarm is raised. In the first rounds and after an alarm models change fast and are
    often wrong; the slack is then larger.

    Symbols
        w, n             wrong predictions, and all predictions, of arriving samples in the round
        :math:`\ell`     training loss of the client's last round
        g                mean of w/n above :math:`1 - \exp(-\ell)`, not negative; starts with 50
                         samples with a difference of 0
        :math:`\bar e`   earlier error: exponential mean over `horizon` samples; 1 before 30 samples
        t                rounds in which the client has trained, since the start or its last alarm
        :math:`\delta`   -> slack
        r                -> recovery
        :math:`\lambda`  -> threshold

    The training loss is ln 2, so that half of 40 samples are expected to be wrong, and after two of
    two rounds of recovery the slack is 0.1 + 0.9 / e = 0.43. 39 are wrong: the excess is
    39 - 40 * (0.5 + 0.43) = 1.8.

    >>> alarm, client = ExcessErrors(recovery=2.0), np.array([0])
    >>> state = alarm.init(1)
    >>> for _ in range(2):
    ...     state, _ = alarm.update(state, client, np.array([[0.0, 0.0, np.log(2)]]))
    >>> state, alarmed = alarm.update(state, client, np.array([[39.0, 40.0, 0.7]]))
    >>> round(float(state.excess[0]), 1), bool(alarmed[0])
    (1.8, False)
    """

    watch: ClassVar[WatchedMetric] = "counts"
    needs_class_labels: ClassVar[bool] = True

    slack: float = 0.1
    """Increase of the error that is ignored."""
    threshold: float = 8.0
    """Wrong predictions above the expected number that raise an alarm."""
    horizon: float = 200.0
    """Samples over which the earlier error is averaged."""
    recovery: float = 5.0
    """Rounds of training in which the slack falls by a factor of e after the start or an alarm."""
    action: Action = choice(ACTIONS, default=RecordOnly(), kw_only=True)
    """Action after an alarm, in the client's next round."""

    def __post_init__(self) -> None:
        check_ranges(
            self, slack="[0, 1)", threshold="(0, inf)", horizon="[1, inf)", recovery="(0, inf)"
        )

    def init(self, num_clients: int) -> ExcessErrorsState:
        zeros = np.zeros(num_clients)
        return ExcessErrorsState(
            zeros, np.full(num_clients, np.nan), zeros, zeros, zeros, zeros, zeros
        )

    def update(
        self, state: ExcessErrorsState, clients: Ints, values: Floats
    ) -> tuple[ExcessErrorsState, Bools]:
        old = select_rows(state, clients)
        wrong, tested, loss = values.reshape(-1, 3).T
        if not tested.any():  # only the losses are new
            losses, rounds, has_loss = state.loss.copy(), state.rounds.copy(), np.isfinite(loss)
            losses[clients[has_loss]] = loss[has_loss]
            rounds[clients] += has_loss
            return state._replace(loss=losses, rounds=rounds), np.zeros(len(clients), dtype=bool)
        gap = np.maximum(old.gap / (old.gap_tested + PRIOR), 0.0)
        bound = 1 - np.exp(-np.maximum(old.loss, 0.0))
        earlier = np.where(
            old.tested >= MIN_TESTED, old.wrong / np.maximum(old.tested, MIN_TESTED), 1.0
        )
        is_known = np.isfinite(bound)
        bound = np.where(is_known, bound, 0.0)
        expected = np.where(is_known, np.minimum(bound + gap, earlier), 1.0)
        slack = self.slack + (1 - self.slack) * np.exp(-old.rounds / self.recovery)
        excess = np.maximum(old.excess + wrong - tested * (expected + slack), 0.0)
        alarmed = excess > self.threshold
        is_counted = is_known & (tested > 0)
        decay = np.exp(-tested / self.horizon)
        now = ExcessErrorsState(
            excess=excess,
            loss=np.where(np.isfinite(loss), loss, old.loss),
            gap=old.gap + np.where(is_counted, wrong - tested * bound, 0.0),
            gap_tested=old.gap_tested + np.where(is_counted, tested, 0.0),
            wrong=old.wrong * decay + wrong,
            tested=old.tested * decay + tested,
            rounds=old.rounds + np.isfinite(loss),
        )
        return update_rows(state, clients, now, alarmed, self.init(len(clients))), alarmed
