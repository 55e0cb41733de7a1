from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats
from thalweg.serving.base import (
    ADJUSTED,
    AVERAGED,
    LAST_LABEL,
    LATEST,
    TRAINED,
    ArrivedSamples,
    Bools,
)
from thalweg.serving.label_offsets import LabelOffsets, adjust, learn_offsets_together
from thalweg.theory import fixed_shares, optimal_rates

FLOOR = 0.01  # share of the uniform distribution in the probabilities of the log loss
SCALE = 4.0  # variances of the targets at which squared errors are clipped


class RecentWeights(NamedTuple):
    """The state of one client."""

    weights: Floats  # (J,) of the predictors so far; sums to one
    num_targets: int = 0  # regression: targets so far, their mean and squared deviations from it
    mean: Floats = np.empty(0)  # (D,)
    squares: float = 0.0
    labels: LabelOffsets = LabelOffsets()
    latest: float = 0.0  # without weights: that of the received model; the default has the rest
    default: int = 0  # position of the default predictor


@dataclass(frozen=True)
class BestRecent:
    r"""Serve the predictors with the lowest recent test-then-train losses of the client.

    .. math::
        \hat p_t = \sum_j w_{t,j} \, p_{t,j}, \qquad
        w_{t+1,j} = (1 - \alpha) \frac{w_{t,j} e^{-\eta \ell_{t,j}}}
        {\sum_i w_{t,i} e^{-\eta \ell_{t,i}}} + \frac \alpha J

    Fixed share (Herbster and Warmuth 1998): the weight of a predictor falls exponentially with its
    losses, and a share of all weights is divided equally after each sample, so that a predictor
    that becomes better is found again.

    A client without samples predicts with the default, the averaged model of the server if its rule
    has one, otherwise the received model. Losses of samples say little about models that have
    changed since. After an alarm of the client, and if its bank chooses another model for it, past
    losses are forgotten: evaluations use the received model until the next sample, for which all
    predictors have equal weights. In each round in which the client trains and predicts no sample,
    a share `idle_share` of all weights, also that of the received model after an alarm, moves to
    the default. Between such events the cumulative loss exceeds that of the best sequence of
    predictors by at most `theory.tracking_regret_bound`.

    The predictors of a client are the received model (`latest`), the averaged model of the server
    if its rule has one, the result of the client's last local steps (`trained`), each model of a
    bank from which clients receive several, the last label, and in a classification the received
    model with an offset for each class (`adjusted`), which is learnt from the client's labels
    (`serving.label_offsets`): a memory with balanced classes trains a model for balanced classes,
    but the classes of a client may not be balanced. A predictor that is not available for a sample
    keeps its share of the weight.

    Losses lie in [0, 1] and are used in the order of arrival. The log loss is that of probabilities
    with a share of 0.01 of the uniform distribution, divided by its largest value, ln(100 C) for C
    classes. With the default eta, the mixture's own log loss is then the mix loss of
    `theory.fixed_share`, and the weights are posterior probabilities. The other loss is 1 for a
    wrong class. In a regression the loss is the squared error, divided by four variances of the
    targets so far and clipped at 1.

    Symbols -> here
        :math:`p`       class probabilities, in a regression numbers -> ArrivedSamples.outputs
        :math:`w`       -> RecentWeights.weights
        :math:`\ell`    -> loss
        :math:`\alpha`  J / ((J - 1) n), n -> switch_every
        :math:`\eta`    -> eta

    The first predictor is wrong and the second right: with eta = ln 2 the first weight is halved,
    1/3 and 2/3, and alpha = 2 / 100 moves both 2 % of the way to 1/2.

    >>> serving = BestRecent(loss="error", eta=math.log(2))
    >>> outputs = np.array([[[0.9, 0.1]], [[0.2, 0.8]]])
    >>> samples = ArrivedSamples(("latest", "trained"), outputs, np.array([1]))
    >>> state, predicted = serving.serve(serving.init(), samples)
    >>> predicted.tolist()  # the mean of both is (0.55, 0.45)
    [0]
    >>> serving.mix(state, ("latest", "trained"), np.array([True, True])).round(4).tolist()
    [0.3367, 0.6633]
    """

    needs_class_labels: ClassVar[bool] = False
    monitors: ClassVar[str] = "the recent losses of each client's predictors (serving)"

    switch_every: float = 100.0
    """Expected number of samples between changes of the best predictor; determines alpha."""
    eta: float | None = None
    """How fast weights follow losses; none: ln(100 C) with the log loss, else the best value for
    `switch_every`, `theory.optimal_rates`."""
    loss: Literal["log", "error"] = "log"
    """The loss of a predictor in a classification: the log loss of its probabilities, or its
    error."""
    combine: Literal["mixture", "best"] = "mixture"
    """Predict with the weighted mean of all predictors, or with that of the largest weight."""
    smoothing: float = 0.1
    """Probability that the last label's predictor divides among all classes."""
    feedback: Literal["sample", "round"] = "sample"
    """When targets become available: after every sample, or at the end of the round for all.

    In the second case a round is one step: its losses are added, `switch_every` counts rounds, the
    weights do not change during a round, and the last label is that of the round before.
    """
    idle_share: float = 0.5
    """Share of the weights that moves to the default in a round without samples."""
    averaged: bool = True
    """Whether clients receive and use the averaged model of the server, if there is one."""
    trained: bool = True
    """Whether clients use the result of their last local steps."""
    last_label: bool = True
    """Whether clients use the class (the number) of the previous sample."""
    adjusted: bool = True
    """Whether clients use the received model adjusted to the frequencies of their labels."""
    horizon: float = 1000.0
    """Samples over which the adjustment is learnt."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            switch_every="(1, inf)",
            eta="(0, inf) or none",
            smoothing="[0, 1)",
            idle_share="[0, 1]",
            horizon="[1, inf)",
        )
        default = type(self).smoothing
        require(
            self.last_label or self.smoothing == default,
            f"serving.smoothing={self.smoothing:g} has no effect without the last label: expected "
            f"{default:g}. Use serving.last_label=true, or leave serving.smoothing out.",
        )
        default = type(self).horizon
        require(
            self.adjusted or self.horizon == default,
            f"serving.horizon={self.horizon:g} has no effect without the adjusted model: expected "
            f"{default:g}. Use serving.adjusted=true, or leave serving.horizon out.",
        )

    @property
    def predictors(self) -> tuple[str, ...]:
        """The optional predictors in use."""
        uses = {
            AVERAGED: self.averaged,
            TRAINED: self.trained,
            LAST_LABEL: self.last_label,
            ADJUSTED: self.adjusted,
        }
        return tuple(name for name, is_used in uses.items() if is_used)

    def init(self) -> RecentWeights:
        return RecentWeights(np.empty(0))

    def serve(
        self, state: RecentWeights, samples: ArrivedSamples
    ) -> tuple[RecentWeights, npt.NDArray[Any]]:
        states, predicted = self.serve_together([state], samples, [len(samples.targets)])
        return states[0], predicted

    def serve_together(
        self, states: Sequence[RecentWeights], samples: ArrivedSamples, sizes: Sequence[int]
    ) -> tuple[list[RecentWeights], npt.NDArray[Any]]:
        number = len(samples.names)
        states = list(states)
        weights = [_add_predictors(state.weights, number) for state in states]
        if ADJUSTED in samples.names:
            states, samples = self._adjust(states, samples, sizes)
        is_finite: Bools = np.asarray(np.isfinite(samples.outputs).all(axis=2))  # (J, n)
        if not is_finite.all():
            finite = np.where(is_finite[:, :, None], samples.outputs, 0.0)
            samples = samples._replace(outputs=finite)
        is_known: Bools = is_finite.T
        if self.feedback == "round" and LAST_LABEL in samples.names:
            samples, is_known = _hold_last_label(samples, is_known, sizes)
        outputs = self._smooth_last_label(samples)
        states, losses = self._compute_losses(states, samples, outputs, sizes)
        rates = optimal_rates(number, self.switch_every)
        eta = self._choose_eta(rates.eta, samples)
        losses = np.where(is_known, losses, np.nan)
        if self.feedback == "round":  # a round is one step
            parts = np.split(losses, np.cumsum(sizes)[:-1])
            steps = [part.sum(axis=0, keepdims=True)[: len(part)] for part in parts]
            runs = fixed_shares(
                weights, np.concatenate(steps), list(map(len, steps)), eta, rates.alpha
            )
            before = np.repeat(weights, sizes, axis=0)
        else:
            runs = fixed_shares(weights, losses, sizes, eta, rates.alpha)
            before = np.concatenate([run.before for run in runs])
        used = self._select(before, is_known)
        mixed = np.einsum("nj,jnc->nc", used, outputs)
        predicted = mixed if samples.is_regression else mixed.argmax(axis=1)
        default = _find_default(samples.names)
        states = [
            state._replace(weights=run.after, latest=0.0, default=default)
            for state, run in zip(states, runs, strict=True)
        ]
        return states, predicted

    def get_offsets(self, state: RecentWeights) -> Floats:
        """Return (C,) the offsets of the classes of the adjusted model; empty: none yet."""
        return state.labels.offsets

    def restart(self, state: RecentWeights) -> RecentWeights:
        """Forget past losses: the received model predicts until the next sample."""
        return state._replace(weights=np.empty(0), latest=1.0)

    def skip_round(self, state: RecentWeights) -> RecentWeights:
        """Move a part of all weights to the default, because all models have changed."""
        state = state._replace(latest=(1 - self.idle_share) * state.latest)
        if len(state.weights) == 0:
            return state
        weights = (1 - self.idle_share) * state.weights
        weights[state.default] += self.idle_share
        return state._replace(weights=weights)

    def mix(self, state: RecentWeights, names: Sequence[str], available: Bools) -> Floats:
        if len(state.weights) == 0:  # no loss of any predictor is known
            default = _find_default(names)
            if not available[default]:
                default = int(available.argmax())
            weights = np.zeros(len(available))
            weights[default] = 1 - state.latest
            weights[names.index(LATEST)] += state.latest
            return weights
        weights = _add_predictors(state.weights, len(available))
        return np.asarray(self._select(weights[None], available[None])[0])

    def _adjust(
        self, states: list[RecentWeights], samples: ArrivedSamples, sizes: Sequence[int]
    ) -> tuple[list[RecentWeights], ArrivedSamples]:
        """Return the states and the samples with the outputs of the adjusted model."""
        outputs, row = samples.outputs.copy(), samples.names.index(ADJUSTED)
        received = outputs[samples.names.index(LATEST)]
        labels = samples.targets.astype(np.int64)
        learnt, outputs[row] = learn_offsets_together(
            [state.labels for state in states], received, labels, sizes, self.horizon
        )
        if self.feedback == "round":  # no label is known before the end of the round
            parts = np.split(received, np.cumsum(sizes)[:-1])
            outputs[row] = np.concatenate(
                [adjust(state.labels, part) for state, part in zip(states, parts, strict=True)]
            )
        states = [state._replace(labels=each) for state, each in zip(states, learnt, strict=True)]
        return states, samples._replace(outputs=outputs)

    def _select(self, weights: Floats, available: Bools) -> Floats:
        """Return (n, J) the weights with which predictors are mixed."""
        masked = np.where(available, weights, 0.0)
        if self.combine == "mixture":
            total = masked.sum(axis=1, keepdims=True)
            return np.asarray(masked / np.where(total > 0, total, 1.0))
        return np.asarray(np.arange(masked.shape[1]) == masked.argmax(axis=1)[:, None], float)

    def _choose_eta(self, best: float, samples: ArrivedSamples) -> float:
        if self.eta is not None:
            return self.eta
        if samples.is_regression or self.loss == "error":
            return best
        return _log_loss_range(samples.outputs.shape[2])

    def _smooth_last_label(self, samples: ArrivedSamples) -> Floats:
        """Return the outputs with the last label as a distribution over all classes."""
        if samples.is_regression or LAST_LABEL not in samples.names:
            return samples.outputs
        outputs, row = samples.outputs.copy(), samples.names.index(LAST_LABEL)
        outputs[row] = (1 - self.smoothing) * outputs[row] + self.smoothing / outputs.shape[2]
        return outputs

    def _compute_losses(
        self,
        states: list[RecentWeights],
        samples: ArrivedSamples,
        outputs: Floats,
        sizes: Sequence[int],
    ) -> tuple[list[RecentWeights], Floats]:
        """Return the states with the statistics of the targets, and losses (n, J) in [0, 1]."""
        if samples.is_regression:
            return _compute_squared_errors(states, samples, sizes)
        targets = samples.targets.astype(np.int64)
        if self.loss == "error":
            return states, (outputs.argmax(axis=2) != targets).T.astype(np.float64)
        classes = outputs.shape[2]
        found = outputs[:, np.arange(len(targets)), targets].T
        losses = -np.log((1 - FLOOR) * found + FLOOR / classes)
        return states, np.asarray(losses / _log_loss_range(classes))


def _hold_last_label(
    samples: ArrivedSamples, is_known: Bools, sizes: Sequence[int]
) -> tuple[ArrivedSamples, Bools]:
    """Return the samples with the last label of the round before in place of that of each sample.

    `is_known` (n, J) is changed in the same way.
    """
    row = samples.names.index(LAST_LABEL)
    outputs, is_known = samples.outputs.copy(), is_known.copy()
    firsts = np.repeat(np.cumsum([0, *sizes])[:-1], sizes)  # the first sample of each one's client
    outputs[row], is_known[:, row] = outputs[row, firsts], is_known[firsts, row]
    return samples._replace(outputs=outputs), is_known


def _find_default(names: Sequence[str]) -> int:
    """Return the position of the averaged model, or of the received one if there is no average."""
    return names.index(AVERAGED if AVERAGED in names else LATEST)


def _add_predictors(weights: Floats, number: int) -> Floats:
    """Return the weights of at least `number` predictors; those of new ones are equal.

    The result is that of predictors that have not been available so far.

    >>> _add_predictors(np.array([0.9, 0.1]), 4).tolist()
    [0.45, 0.05, 0.25, 0.25]
    """
    old = len(weights)
    if number <= old:
        return weights
    return np.concatenate([weights * (old / number), np.full(number - old, 1 / number)])


def _log_loss_range(classes: int) -> float:
    """Return the largest log loss of probabilities with a share `FLOOR` of the uniform ones."""
    return math.log(classes / FLOOR)


def _compute_squared_errors(
    states: list[RecentWeights], samples: ArrivedSamples, sizes: Sequence[int]
) -> tuple[list[RecentWeights], Floats]:
    """Return the states after the targets, and the scaled and clipped errors (n, J).

    Without a variance so far, each error other than 0 counts as 1.
    """
    errors = ((samples.outputs - samples.targets) ** 2).mean(axis=2).T  # (n, J)
    scales: list[float] = []
    after, targets = [], iter(samples.targets.astype(np.float64))
    for state, size in zip(states, sizes, strict=True):
        number, squares = state.num_targets, state.squares
        mean = state.mean if number else np.zeros(samples.targets.shape[1])
        for target in itertools.islice(targets, size):
            scales.append(SCALE * squares / max(number, 1))
            number += 1
            change = target - mean
            mean = mean + change / number
            squares += float((change * (target - mean)).mean())
        after.append(state._replace(num_targets=number, mean=mean, squares=squares))
    limits = np.broadcast_to(np.array(scales, dtype=np.float64)[:, None], errors.shape)
    is_clipped = errors >= limits
    losses = np.divide(errors, limits, out=(errors > 0).astype(float), where=~is_clipped)
    return after, losses
