from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from thalweg import theory
from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, check_vector, first_reason
from thalweg.core.config import check_literals, check_ranges, choice
from thalweg.core.errors import ConfigError, UnknownName, require
from thalweg.core.types import Floats, Ints, Roster, Supplies
from thalweg.selection.base import cohort_size, last_known
from thalweg.selection.counters import COUNTERS, LabelCounter, MemoryCounter
from thalweg.selection.drawing import DRAWS, fill_uniformly, mix_with_uniform, num_positive
from thalweg.selection.label_privacy import LabelPrivacy, PrivacyAccount, frequencies
from thalweg.theory import PrivacyCost

GOALS = ("uniform", "mean", "pooled_counts")
# Names of the uploads.
MIX, COUNTS, SPENT = "label_mix", "label_counts", "epsilon_spent"
MAX_VALUE = {MIX: 1.0, COUNTS: 1e7}  # largest accepted value per class


class LabelCounts(NamedTuple):
    """What DPCS keeps at each client."""

    counter_state: Any  # of the counter
    account: PrivacyAccount


class DrawProbabilities(NamedTuple):
    """The clients that can be drawn, and the probability that each is drawn first."""

    clients: Ints  # (n,) present, and known to have data
    mixes: Floats  # (n, C)
    goal: Floats  # (C,)
    probs: Floats  # (n,)


@dataclass(frozen=True)
class Dpcs:
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

    @property
    def adds_noise(self) -> bool:
        """Whether clients add privacy noise to what they report."""
        return self.privacy.epsilon is not None

    @property
    def survey_cost(self) -> PrivacyCost:
        """What one report discloses if a sample is replaced, also with other `neighbours`."""
        if self.privacy.epsilon is None:
            return PrivacyCost.unlimited()
        return PrivacyCost(laplace={2 / self.privacy.scale: 1})

    # --- client ---

    @property
    def sends_models(self) -> bool:
        return False

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.present

    def init_counts(self, num_classes: int) -> LabelCounts:
        self._check_classes(num_classes)
        return LabelCounts(self.counter.init(num_classes), self.privacy.init(num_classes))

    def count_labels(self, label_counts: LabelCounts, labels: Ints) -> LabelCounts:
        return LabelCounts(
            self.counter.count_labels(label_counts.counter_state, labels),
            self.privacy.count_arrivals(label_counts.account, len(labels)),
        )

    def answer_survey(self, context: SurveyContext) -> tuple[LabelCounts, Mapping[str, Floats]]:
        """Report the label mix, or the counts if the goal needs them; zeros: no data."""
        label_counts: LabelCounts = context.label_counts
        true = self.counter.histogram(label_counts.counter_state, context)
        account, counts = self.privacy.release(
            label_counts.account, true, self.counter.span, context.noise
        )
        label_counts = label_counts._replace(account=account)
        if counts is None:
            return label_counts, {}
        uploads = {COUNTS: counts} if self._needs_counts else {MIX: frequencies(counts)}
        if self.privacy.epsilon is not None:
            uploads[SPENT] = np.array([account.spent])
        return label_counts, uploads

    # --- server ---

    def validate_claim(self, claim: Claim) -> str | None:
        """Accept a label mix (sum one, or all zero), or counts if the goal needs them."""
        uploads, name = claim.uploads, COUNTS if self._needs_counts else MIX
        length = len(self.goal) if isinstance(self.goal, tuple) else claim.num_classes
        spent = check_vector(uploads, SPENT, 1, least=0) if SPENT in uploads else None
        if reason := first_reason(
            check_vector(uploads, name, length, least=0, most=MAX_VALUE[name]), spent
        ):
            return reason
        total = float(uploads[name].sum())
        if name == MIX and total != 0 and abs(total - 1) > 1e-6:
            return f"{MIX} sums to {total:g}, not to 1."
        return None

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
            **_distances("cohort_mix", realised - draw_probabilities.goal),
            **_distances("expected_mix", expected - draw_probabilities.goal),
            **self._epsilon_metrics(roster),
        }

    @property
    def _needs_counts(self) -> bool:
        return self.goal == "pooled_counts"

    def _rows(self, roster: Roster) -> Floats:
        """Return (N, C) the last report of every client; zeros: no report, or no data."""
        rows = roster.known.get(COUNTS if self._needs_counts else MIX)
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
        pool = rows if self._needs_counts else frequencies(rows)
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

    def _epsilon_metrics(self, roster: Roster) -> dict[str, float]:
        spent = last_known(roster, SPENT)
        spent = spent[np.isfinite(spent)]
        if self.privacy.epsilon is None or len(spent) == 0:
            return {}
        return {
            "epsilon_spent_max": float(spent.max()),
            "epsilon_spent_mean": float(spent.mean()),
        }

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


def _distances(name: str, gap: Floats) -> dict[str, float]:
    """Return the L1 and L2 norm of a difference of label mixes, by metric name."""
    return {f"{name}_l1": float(np.abs(gap).sum()), f"{name}_l2": float(np.linalg.norm(gap))}
