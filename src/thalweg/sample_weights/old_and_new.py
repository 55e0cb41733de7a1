from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from thalweg import theory
from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, check_vector
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import ConfigError, require
from thalweg.core.types import Floats, Ints, Roster, SampleAges, Supplies

Bools = npt.NDArray[np.bool_]
MIN_SAMPLES = 64  # samples to answer with, if there are so many: a tenth of ten is noise
BOUNDS = "bounds"  # of a client: how far a model gets, largest gradient, largest loss


@dataclass(frozen=True)
class OldAndNew:
    r"""Stored data against data that streams in: every client gets its share of the whole run.

    A client's share :math:`p_m` of the global objective depends on its samples over the whole run and on
    whether it has had them from the start. It is spread evenly over the rounds in which the client is here and
    over what it holds then,

    .. math::  \lambda_j \propto \frac{p_m}{\text{rounds here} \cdot |\text{memory}|}

    so that together with weights by total weight (`aggregation.ByWeight`) each client counts :math:`p_m`.

    Strategies
        ours        the minimiser of the bound :math:`\psi`, `theory.optimal_importance`
        uniform     :math:`p = n`: every sample of the run counts the same
        historical  only clients with stored data, by their size
        fresh       only clients whose data stream in
        mass        `mass` to the stored data, the rest to the stream, inside both by size

    The only number that the bound needs is `ratio`, :math:`c_2/c_1`. Without it, the historical clients that
    are here are asked once, before the first training: each takes `steps` SGD steps on `fraction` of its data
    (at least 64 samples, if it has them) and answers three numbers, how far the model got, its largest gradient
    norm and its largest loss.

    Symbols, Marfoq et al. 2023 -> here
        :math:`c_2/c_1`             -> ratio
        :math:`n_m`                 -> Roster.supplies.total, as shares
        D, G, B                     -> the three numbers of an answer; the largest over clients counts
        :math:`M - M_{hist}`        -> fresh clients that are here at the same time (`fresh_clients`)
    """

    strategy: Literal["ours", "uniform", "historical", "fresh", "mass"] = "ours"
    ratio: float | None = None
    """c2/c1; none: estimated before training."""
    mass: float | None = None
    """Share of the stored data, for the strategy of that name."""
    fresh_clients: Literal["at once", "all"] = "at once"
    """How many fresh clients the bound sees: those that are expected to be here in one round, or all."""
    fraction: float = 0.1
    steps: int = 10
    lr: float | None = None
    """Of those steps; none: as clients train."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            ratio="(0, inf) or none",
            mass="[0, 1] or none",
            fraction="(0, 1]",
            steps="[1, inf)",
            lr="(0, inf) or none",
        )
        require(
            (self.mass is not None) == (self.strategy == "mass"),
            f"a mass goes with strategy=mass and only with it, got strategy={self.strategy}, "
            f"mass={self.mass}.",
        )

    def check_world(self, supplies: Supplies, num_classes: int) -> None:
        """Whoever is to have a share of the run must be there."""
        has_data = supplies.total > 0
        require(
            bool(has_data.any()),
            "this sample_weights shares out the run by how many samples each client will have, and nobody knows that in "
            "this world; use another sample_weights, such as sample_weights=inverse-age.",
        )
        for kind, share, there in (
            ("stored", self._stored_share, has_data & supplies.is_historical),
            ("streaming", 1 - self._stored_share, has_data & ~supplies.is_historical),
        ):
            require(
                self.strategy in ("ours", "uniform") or share == 0 or bool(there.any()),
                f"strategy={self.strategy} gives {share:g} of the run to clients with {kind} data, but "
                "this world has none (world=inflow with world.historical between 0 and 1 has both). "
                "Set sample_weights.strategy to ours or uniform, which go with any world.",
            )

    @property
    def _stored_share(self) -> float:
        """Share of the stored data, for strategies that fix it."""
        return {"historical": 1.0, "fresh": 0.0}.get(self.strategy, self.mass or 0.0)

    # --- at the client ---

    def weigh(self, holding: SampleAges) -> Floats:
        held = len(holding.ages)
        return np.full(held, holding.assigned / max(held, 1))

    def answer_survey(self, view: SurveyContext) -> tuple[None, Mapping[str, Floats]]:
        """How far a few steps lead, the largest gradient norm and the largest loss on the way."""
        if len(view.held) == 0:
            return None, {}
        count = min(max(round(self.fraction * len(view.held)), MIN_SAMPLES), len(view.held))
        rows = view.rng.choice(view.held, count, replace=False)
        look, lr = view.probe_model(), self.lr or view.lr
        start = look.params().astype(np.float64)
        now, steepest, largest = start, 0.0, float(look.losses(rows).max())
        for _ in range(self.steps):
            gradient = look.at(now.astype(np.float32)).gradient(rows).astype(np.float64)
            steepest = max(steepest, float(np.linalg.norm(gradient)))
            now = now - lr * gradient
        distance = float(np.linalg.norm(now - start))
        return None, {BOUNDS: np.array([distance, steepest, largest])}

    # --- at the server ---

    @property
    def sends_models(self) -> bool:
        return True

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        if self.strategy != "ours" or self.ratio is not None or BOUNDS in roster.known:
            return np.empty(0, dtype=np.int64)
        supplies = _supplies(roster)
        return roster.present[supplies.is_historical[roster.present]]

    def validate_claim(self, claim: Claim) -> str | None:
        return check_vector(claim.uploads, BOUNDS, 3, least=0)

    def assign_weights(self, roster: Roster, num_params: int) -> Floats:
        supplies = _supplies(roster)
        total = supplies.total.sum()
        require(
            total > 0,
            "no client will ever have a sample, so that nothing can be shared out among them.",
        )
        shares, historical = supplies.total / total, supplies.is_historical
        importance = self._importance(shares, historical, roster, num_params)
        return importance / np.maximum(supplies.rounds, 1.0)

    def _importance(
        self, shares: Floats, historical: Bools, roster: Roster, num_params: int
    ) -> Floats:
        if self.strategy == "mass":
            return theory.grid_importance(shares, historical, self.mass or 0.0)
        if self.strategy != "ours":
            return theory.grid_importance(shares, historical, self.strategy)
        ratio, fresh = self.ratio or self._estimate(roster, num_params), self._fresh_at_once(roster)
        if ratio is None or fresh == 0:  # nobody could be asked yet, or nothing streams in
            return shares
        return theory.optimal_importance(shares, historical, ratio, fresh_at_once=fresh)

    def _estimate(self, roster: Roster, num_params: int) -> float | None:
        bounds = roster.known.get(BOUNDS)
        if bounds is None or np.isnan(bounds).all():
            return None
        distance, steepest, largest = np.nanmax(bounds, axis=0)
        fresh = self._fresh_at_once(roster)
        if fresh == 0 or distance * steepest == 0:
            return None  # nothing streams in, or nothing can be learnt: size decides
        return theory.importance_ratio(
            diameter=distance,
            grad_bound=steepest,
            loss_bound=largest,
            num_params=num_params,
            num_samples=_supplies(roster).total.sum(),
            num_fresh=fresh,
        )

    def _fresh_at_once(self, roster: Roster) -> float:
        supplies = _supplies(roster)
        fresh = ~supplies.is_historical & (supplies.total > 0)
        if self.fresh_clients == "all":
            return float(np.count_nonzero(fresh))
        longest = supplies.rounds.max()
        return float(max(supplies.rounds[fresh].sum() / longest, 1.0)) if fresh.any() else 0.0


def _supplies(roster: Roster) -> Supplies:
    if roster.supplies is None:
        raise ConfigError(
            "old-and-new needs to know what clients will have had by the end of the run; this "
            "federation does not say (Roster.supplies). Use sample_weights=inverse-age instead."
        )
    return roster.supplies
