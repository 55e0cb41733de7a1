from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from thalweg import theory
from thalweg.core.claims import Claim
from thalweg.core.config import check_literals, check_ranges, choice
from thalweg.core.errors import ConfigError, UnknownName, require
from thalweg.core.types import Floats, Ints, Roster, Supplies
from thalweg.selection.base import cohort_size
from thalweg.selection.counters import COUNTERS, LabelCounter, MemoryCounter
from thalweg.selection.drawing import DRAWS, fill_uniformly, mix_with_uniform, num_positive
from thalweg.selection.label_privacy import LabelPrivacy, frequencies
from thalweg.selection.label_survey import COUNTS, MIX, LabelCounts, LabelSurvey, mix_distances

GOALS = ("uniform", "mean", "pooled_counts")


class DrawProbabilities(NamedTuple):
    """The clients that can be drawn, and the probability that each is drawn first."""

    clients: Ints  # (n,) present, and known to have data
    mixes: Floats  # (n, C)
    goal: Floats  # (C,)
    probs: Floats  # (n,)


@dataclass(frozen=True)
class Dpcs(LabelSurvey):
    r"""DPCS: draw clients such that the expected label mix of the cohort is close to a goal.

    Before every round all present clients report their label mix. The server computes

    .. math::
        a = \arg\min_{a \in \Delta_n} \Big\| \sum_i a_i r_i - g \Big\|, \qquad
        |S| = \max(1, \mathrm{round}(\text{participation} \cdot n))

    and draws :math:`|S|` clients without replacement with probabilities :math:`a`. Here n is the
    number of present clients. Clients without data cannot be drawn. If at most :math:`|S|` clients
    have data, all of them take part; if none has, the draw is uniform.

    Symbols, Song et al. -> here
        :math:`r_i`  normalised class counts     -> the upload "label_mix", see `counter`
        :math:`g`    p^goal                      -> goal: "uniform", "mean" or "pooled_counts" of
                                                    all clients (absent ones as last reported),
                                                    or a distribution over the classes
        :math:`a`    sampling probabilities      -> `draw_probabilities`
        norm         L1 in the text, none in (2) -> norm; "l2" has a ridge that makes a unique

    Differs from the paper: the default goal is uniform (with "mean" and all clients present,
    uniform drawing is already optimal); counts are of the memory, not of everything that ever
    arrived; a ridge (default: 0.001 times the mean squared norm of the mixes) spreads the optimum
    over similar clients; if fewer than :math:`|S|` clients have a positive probability, a share
    `mix` of the uniform distribution is added (``fill="mix"``), or the rest is drawn uniformly
    (``"uniform_fill"``), or an error is raised (``"strict"``). ``draw="systematic"`` includes each
    client with probability :math:`\min(1, |S| a_i)` exactly.

    Client 0 holds only class 0, client 1 only class 1. For a quarter of class 0 in expectation:

    >>> known = {"label_mix": np.eye(2)}
    >>> roster = Roster(0, np.arange(2), np.ones(2), np.zeros(2, int), known)
    >>> Dpcs(goal=(0.25, 0.75), ridge=0.0).draw_probabilities(roster).probs.round(6).tolist()
    [0.25, 0.75]
    """

    needs_class_labels: ClassVar[bool] = True  # counts labels

    participation: float = 0.3
    """Share of the present clients that take part."""
    goal: Literal["uniform", "mean", "pooled_counts"] | tuple[float, ...] = "uniform"
    counter: LabelCounter = choice(COUNTERS, default=MemoryCounter())
    norm: Literal["l2", "l1"] = "l2"
    ridge: float | None = None
    fill: Literal["mix", "uniform_fill", "strict"] = "mix"
    mix: float = 0.05
    """Share of the uniform distribution, for ``fill="mix"``."""
    draw: Literal["successive", "systematic"] = "successive"
    privacy: LabelPrivacy = field(default_factory=LabelPrivacy)

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, participation="(0, 1]", ridge="[0, inf) or none", mix="(0, 1]")
        require(
            self.norm == "l2" or not self.ridge,
            f"a ridge needs norm=l2, got ridge={self.ridge} with norm={self.norm}; leave it out.",
        )
        _check_goal(self.goal)

    def check_world(self, supplies: Supplies, num_classes: int) -> None:
        self._check_classes(num_classes)

    # --- client ---

    def init_counts(self, num_classes: int) -> LabelCounts:
        self._check_classes(num_classes)
        return super().init_counts(num_classes)

    # --- server ---

    @property
    def needs_counts(self) -> bool:
        return self.goal == "pooled_counts"

    def validate_claim(self, claim: Claim) -> str | None:
        if isinstance(self.goal, tuple):
            claim = claim._replace(num_classes=len(self.goal))
        return super().validate_claim(claim)

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        size = cohort_size(self.participation, len(roster.present))
        draw_probabilities = self.draw_probabilities(roster)
        if draw_probabilities is None:
            return np.sort(rng.choice(roster.present, size, replace=False))
        clients, probs = draw_probabilities.clients, draw_probabilities.probs
        if len(clients) <= size:
            return clients
        if num_positive(probs) < size:  # only with fill="uniform_fill"
            return clients[fill_uniformly(probs, size, rng)]
        return clients[DRAWS[self.draw](probs, size, rng)]

    def draw_probabilities(self, roster: Roster) -> DrawProbabilities | None:
        """Return the probabilities of this round; None if no present client has known data."""
        rows = self._rows(roster)
        clients = roster.present[rows[roster.present].any(1)] if rows.size else roster.present[:0]
        if len(clients) == 0:
            return None
        goal, mixes = self._goal_mix(rows), frequencies(rows[clients])
        size = cohort_size(self.participation, len(roster.present))
        if len(clients) <= size:
            return DrawProbabilities(clients, mixes, goal, np.full(len(clients), 1 / len(clients)))
        probs = theory.dpcs_probabilities(mixes, goal, self.ridge, self.norm)
        return DrawProbabilities(clients, mixes, goal, self._fill_probabilities(probs, size))

    def extra_metrics(self, roster: Roster, cohort: Ints) -> Mapping[str, float | list[float]]:
        r"""Return the label mix of the cohort, and its distance from the goal.

        The metrics ``expected_mix_*`` are the distance of :math:`\sum_i a_i r_i` from the goal,
        which the probabilities minimise. Clients without a known label mix are left out.
        """
        draw_probabilities = self.draw_probabilities(roster)
        if draw_probabilities is None or not np.isin(cohort, draw_probabilities.clients).any():
            return {}
        is_in = np.isin(draw_probabilities.clients, cohort)
        realised, expected = (
            draw_probabilities.mixes[is_in].mean(0),
            draw_probabilities.probs @ draw_probabilities.mixes,
        )
        return {
            "cohort_mix": realised.tolist(),
            **mix_distances("cohort_mix", realised - draw_probabilities.goal),
            **mix_distances("expected_mix", expected - draw_probabilities.goal),
            **self.epsilon_metrics(roster),
        }

    def _rows(self, roster: Roster) -> Floats:
        """Return (N, C) the last report of every client; zeros: no report, or no data."""
        rows = roster.known.get(COUNTS if self.needs_counts else MIX)
        return np.zeros((roster.num_clients, 0)) if rows is None else np.nan_to_num(rows)

    def _goal_mix(self, rows: Floats) -> Floats:
        """Return (C,) the goal as a distribution over the classes."""
        num_classes = rows.shape[1]
        self._check_classes(num_classes)
        if self.goal == "uniform":
            return np.full(num_classes, 1 / num_classes)
        if isinstance(self.goal, tuple):
            return np.array(self.goal, dtype=np.float64)
        # Over all clients; absent ones as last reported.
        pool = rows if self.needs_counts else frequencies(rows)
        return frequencies(pool.sum(0))

    def _fill_probabilities(self, probs: Floats, size: int) -> Floats:
        """Apply the rule `fill` if too few clients have a positive probability."""
        positive = num_positive(probs)
        # With a single positive probability the same client would be drawn in every round.
        if self.fill == "mix" and positive < max(size, 2):
            return mix_with_uniform(probs, self.mix)
        if self.fill == "strict" and positive < size:
            raise ConfigError(
                f"DPCS needs {size} clients, but only {positive} of {len(probs)} have a positive "
                "probability. Set selection.fill to mix or uniform_fill, or a larger "
                "selection.ridge."
            )
        return probs

    def _check_classes(self, num_classes: int) -> None:
        if isinstance(self.goal, tuple) and len(self.goal) != num_classes:
            raise ConfigError(
                f"goal has {len(self.goal)} entries, but the data has {num_classes} classes; give "
                'one share per class, or "uniform".'
            )


def _check_goal(goal: str | tuple[float, ...]) -> None:
    if isinstance(goal, str):
        if goal not in GOALS:
            raise UnknownName("goal", goal, GOALS)
        return
    is_mix = isinstance(goal, tuple) and all(0 <= share < math.inf for share in goal)
    require(
        is_mix and abs(sum(goal) - 1) <= 1e-6,
        "goal must be one of uniform, mean, pooled_counts, or a distribution over the classes: a "
        f"tuple of non-negative shares that sum to 1, got {goal!r}.",
    )
