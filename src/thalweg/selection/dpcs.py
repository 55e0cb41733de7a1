from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from thalweg import theory
from thalweg.core.claims import Claim, first_of, misfit
from thalweg.core.config import check_ranges, check_words, choice
from thalweg.core.errors import ConfigError, UnknownName, require
from thalweg.core.talk import View
from thalweg.core.types import Floats, Ints, Roster, Supplies
from thalweg.selection.base import cohort_size, last_known
from thalweg.selection.counters import COUNTERS, Cache, Counter
from thalweg.selection.disclosure import Disclosure, Ledger, frequencies
from thalweg.selection.drawing import DRAWS, completed, mixed, num_positive

GOALS = ("uniform", "mean", "pooled_counts")
# Names of what a client answers.
MIX, COUNTS, SPENT = "label_mix", "label_counts", "epsilon_spent"
MOST = {MIX: 1.0, COUNTS: 1e7}  # of one class that a client may say it has


class LabelTally(NamedTuple):
    """What a client keeps for the question."""

    counted: Any  # of the counter
    ledger: Ledger


class Chances(NamedTuple):
    """The clients that can be chosen, and how likely each one is to be drawn first."""

    clients: Ints  # (n,) here, with data as far as the server knows
    mixes: Floats  # (n, C)
    goal: Floats  # (C,)
    probs: Floats  # (n,)


@dataclass(frozen=True)
class Dpcs:
    r"""DPCS: draw clients so that their labels together are expected to be as the goal says.

    Before every round all clients that are here say how their labels are distributed. Then

    .. math::  a = \arg\min_{a \in \Delta_n} \Big\| \sum_i a_i r_i - g \Big\|, \qquad
               |S| = \max(1, \mathrm{round}(\text{participation} \cdot n))

    and :math:`|S|` clients are drawn without replacement with probabilities :math:`a`. Here n counts the
    clients that are here; those without data cannot be drawn, and if that leaves no more than :math:`|S|`,
    all of them take part. If nobody has data the draw is uniform.

    Symbols, Song et al. -> here
        :math:`r_i`  normalised class counts   -> `counter`, "label_mix"
        :math:`g`    p^goal                    -> goal: "uniform", "mean" and "pooled_counts" (of all
        clients, those away as last heard), or a distribution over the classes
        :math:`a`                              -> `chances`
        norm (the text says L1, eq. (2) none)  -> norm; "l2" with a ridge that makes the optimum unique

    Differs from the paper: the goal is uniform (with "mean" and everybody here, drawing uniformly is already
    optimal and the method does nothing); counts are of what is in memory, not of all that ever came; a ridge
    (none: 0.001 times the mean squared norm of the mixes) spreads the optimum over clients that are alike;
    if fewer clients than wanted have a positive probability, a share `mix` of the uniform distribution
    is added (``fill="mix"``), or the rest is drawn uniformly ("uniform_fill"), or the run stops ("strict").
    ``draw="systematic"`` gives each client exactly probability :math:`\min(1, |S| a_i)` of taking part.
    """

    participation: float = 0.3
    goal: Literal["uniform", "mean", "pooled_counts"] | tuple[float, ...] = "uniform"
    counter: Counter = choice(COUNTERS, default=Cache())
    norm: Literal["l2", "l1"] = "l2"
    ridge: float | None = None
    fill: Literal["mix", "uniform_fill", "strict"] = "mix"
    mix: float = 0.05
    draw: Literal["successive", "systematic"] = "successive"
    privacy: Disclosure = field(default_factory=Disclosure)

    def __post_init__(self) -> None:
        check_words(self)
        check_ranges(self, participation="(0, 1]", ridge="[0, inf) or none", mix="(0, 1]")
        require(
            self.norm == "l2" or not self.ridge,
            f"a ridge goes with norm l2 only, got {self.ridge} with norm {self.norm}; leave it out.",
        )
        _check_goal(self.goal)

    def check_fits(self, supplies: Supplies, num_classes: int) -> None:
        self._check_classes(num_classes)

    # --- at the client ---

    @property
    def shows_models(self) -> bool:
        return False

    def whom(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.here

    def begin_tally(self, num_classes: int) -> LabelTally:
        self._check_classes(num_classes)
        return LabelTally(self.counter.begin(num_classes), self.privacy.begin(num_classes))

    def count(self, tally: LabelTally, labels: Ints) -> LabelTally:
        return LabelTally(
            self.counter.count(tally.counted, labels),
            self.privacy.arrive(tally.ledger, len(labels)),
        )

    def answer(self, view: View) -> tuple[LabelTally, Mapping[str, Floats]]:
        """The label mix, or the counts if the goal needs them; zeros: no data."""
        tally: LabelTally = view.tally
        true = self.counter.histogram(tally.counted, view)
        ledger, counts = self.privacy.release(tally.ledger, true, self.counter.span, view.rng)
        tally = tally._replace(ledger=ledger)
        if counts is None:
            return tally, {}
        said = {COUNTS: counts} if self._needs_counts else {MIX: frequencies(counts)}
        if self.privacy.epsilon is not None:
            said[SPENT] = np.array([ledger.spent])
        return tally, said

    # --- at the server ---

    def doubt(self, claim: Claim) -> str | None:
        """Shares of the classes, which sum to one or are all zero; or counts of them."""
        said, name = claim.said, COUNTS if self._needs_counts else MIX
        length = len(self.goal) if isinstance(self.goal, tuple) else claim.num_classes
        spent = misfit(said, SPENT, 1, least=0) if SPENT in said else None
        if reason := first_of(misfit(said, name, length, least=0, most=MOST[name]), spent):
            return reason
        total = float(said[name].sum())
        if name == MIX and total != 0 and abs(total - 1) > 1e-6:
            return f"{MIX} sums to {total:g}, not to 1."
        return None

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        size = cohort_size(self.participation, len(roster.here))
        chances = self.chances(roster)
        if chances is None:
            return np.sort(rng.choice(roster.here, size, replace=False))
        clients, probs = chances.clients, chances.probs
        if len(clients) <= size:
            return clients
        if num_positive(probs) < size:  # not mixed, then
            return clients[completed(probs, size, rng)]
        return clients[DRAWS[self.draw](probs, size, rng)]

    def chances(self, roster: Roster) -> Chances | None:
        """What is drawn from in this round; none: nobody here is known to have data."""
        rows = self._rows(roster)
        clients = roster.here[rows[roster.here].any(1)] if rows.size else roster.here[:0]
        if len(clients) == 0:
            return None
        goal, mixes = self._target(rows), frequencies(rows[clients])
        size = cohort_size(self.participation, len(roster.here))
        if len(clients) <= size:
            return Chances(clients, mixes, goal, np.full(len(clients), 1 / len(clients)))
        probs = theory.dpcs_probabilities(mixes, goal, self.ridge, self.norm)
        return Chances(clients, mixes, goal, self._filled(probs, size))

    def remark(self, roster: Roster, cohort: Ints) -> Mapping[str, float | list[float]]:
        """How the cohort's labels are distributed, as far as the server knows, and how well that fits.

        The expected distance is that of one client drawn with `Chances.probs`, which is what the
        probabilities minimise.
        """
        chances = self.chances(roster)
        if chances is None or not np.isin(cohort, chances.clients).any():
            return {}
        is_in = np.isin(chances.clients, cohort)
        realised, expected = chances.mixes[is_in].mean(0), chances.probs @ chances.mixes
        return {
            "cohort_mix": realised.tolist(),
            **_distances("cohort_mix", realised - chances.goal),
            **_distances("expected_mix", expected - chances.goal),
            **self._spent(roster),
        }

    @property
    def _needs_counts(self) -> bool:
        return self.goal == "pooled_counts"

    def _rows(self, roster: Roster) -> Floats:
        """(N, C) what every client said last; zeros: nothing, or that it has no data."""
        rows = roster.known.get(COUNTS if self._needs_counts else MIX)
        return np.zeros((roster.num_clients, 0)) if rows is None else np.nan_to_num(rows)

    def _target(self, rows: Floats) -> Floats:
        num_classes = rows.shape[1]
        self._check_classes(num_classes)
        if self.goal == "uniform":
            return np.full(num_classes, 1 / num_classes)
        if isinstance(self.goal, tuple):
            return np.array(self.goal, dtype=np.float64)
        # Everybody's, those who are away as they were last heard.
        pool = rows if self._needs_counts else frequencies(rows)
        return frequencies(pool.sum(0))

    def _filled(self, probs: Floats, size: int) -> Floats:
        positive = num_positive(probs)
        # With a single one, the same client would be drawn in every round.
        if self.fill == "mix" and positive < max(size, 2):
            return mixed(probs, self.mix)
        if self.fill == "strict" and positive < size:
            raise ConfigError(
                f"DPCS wants {size} clients, but only {positive} of {len(probs)} have a positive "
                "probability. Set selection.fill to mix or uniform_fill, or a larger "
                "selection.ridge."
            )
        return probs

    def _spent(self, roster: Roster) -> dict[str, float]:
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
    return {f"{name}_l1": float(np.abs(gap).sum()), f"{name}_l2": float(np.linalg.norm(gap))}
