from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from thalweg import theory
from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, check_names, check_vector, first_reason
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import ConfigError, require
from thalweg.core.types import Floats, Ints, Roster, SampleAges, Supplies

Bools = npt.NDArray[np.bool_]
MIN_SAMPLES = 64  # smallest subset for the survey, if a client holds that many
BOUNDS = "bounds"  # name of the upload: distance, largest gradient norm, largest loss


@dataclass(frozen=True)
class OldAndNew:
    r"""Balance clients with stored data against clients whose data stream in.

    Each client gets an importance :math:`p_m` for the whole run, which depends on its number of
    samples and on whether it has them from the start. The importance is spread evenly over the
    rounds in which the client is present and over the samples that it holds then:

    .. math::  \lambda_j \propto \frac{p_m}{T_m \cdot |\text{memory}|}

    With aggregation by total weight (`aggregation.ByWeight`) each client then counts :math:`p_m`.
    Clients of importance 0 are not contacted, and their samples are not tested on arrival.

    Strategies
        ours        the minimiser of the bound :math:`\psi`, `theory.optimal_importance`
        uniform     :math:`p = n`: every sample of the run counts the same
        historical  only clients with stored data, by size
        fresh       only clients whose data stream in, by size
        mass        `mass` to the stored data, the rest to the streams, by size within both

    The bound depends on one number, `ratio` :math:`= c_2/c_1`. If it is not given, the historical
    clients that are present are surveyed once, before the first training. Each draws `fraction` of
    its samples (at least 64, if it has them), takes `steps` steps of its optimizer on their mean
    loss, and reports three numbers: the distance that the parameters moved, the largest norm of
    this gradient, and the largest loss of a sample under the received model.

    Symbols, Marfoq et al. (2023) -> here
        :math:`c_2/c_1`        -> ratio
        :math:`n_m`            -> Roster.supplies.total, as shares
        :math:`T_m`            -> Roster.supplies.rounds
        D, G, B                -> the three numbers of a report; the largest over clients counts
        :math:`M - M_{hist}`   -> fresh clients that are present at the same time (`fresh_clients`)

    Differs from the paper: the steps use all samples of the subset, not mini-batches. The paper
    does not give the number of steps, the size of the subset, and the models at which it takes G
    and B.

    A client of importance 0.5 in every round holds two samples:

    >>> samples = SampleAges(ages=np.array([1, 1]), labels=np.array([0, 1]), assigned=0.5)
    >>> OldAndNew().weigh(samples).tolist()
    [0.25, 0.25]

    A historical client with 30 samples, a streaming one with 10, both present in ten rounds:

    >>> supplies = Supplies(np.array([30.0, 10.0]), np.array([True, False]), np.array([10.0, 10.0]))
    >>> roster = Roster(0, np.arange(2), np.ones(2), np.zeros(2, int), supplies=supplies)
    >>> OldAndNew("uniform").assign_weights(roster, num_params=5).tolist()
    [0.075, 0.025]
    """

    bounded_values: ClassVar[tuple[str, ...]] = (BOUNDS,)
    skips_unweighted: ClassVar[bool] = True

    strategy: Literal["ours", "uniform", "historical", "fresh", "mass"] = "ours"
    ratio: float | None = None
    """c2/c1; none: estimated by a survey before training."""
    mass: float | None = None
    """Share of the stored data, for strategy "mass" only."""
    fresh_clients: Literal["at once", "all"] = "at once"
    """Fresh clients in the bound: those expected to be present in one round, or all."""
    fraction: float = 0.1
    """Share of the memory that a surveyed client uses."""
    steps: int = 10
    """Steps of a surveyed client."""
    lr: float | None = None
    """Learning rate of these steps; none: that of training."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            ratio="(0, inf) or none",
            mass="[0, 1] or none",
            fraction="(0, 1]",
            steps="[1, STEPS]",
            lr="(0, inf) or none",
        )
        require(
            (self.mass is not None) == (self.strategy == "mass"),
            f"strategy=mass needs a mass, and no other strategy has one; got "
            f"strategy={self.strategy}, mass={self.mass}.",
        )

    def check_world(self, supplies: Supplies, num_classes: int) -> None:
        """Raise a `ConfigError` if a group of clients with a fixed share does not exist."""
        has_data = supplies.total > 0
        require(
            bool(has_data.any()),
            "old-and-new needs the number of samples that each client will have, which this world "
            "does not provide; use another policy, such as sample_weights=inverse-age.",
        )
        for kind, share, exists in (
            ("stored", self._stored_share, has_data & supplies.is_historical),
            ("streaming", 1 - self._stored_share, has_data & ~supplies.is_historical),
        ):
            require(
                self.strategy in ("ours", "uniform") or share == 0 or bool(exists.any()),
                f"strategy={self.strategy} gives {share:g} of the run to clients with {kind} data, "
                "but this world has none (world=inflow with world.historical between 0 and 1 has "
                "both). Set sample_weights.strategy to ours or uniform, which fit any world.",
            )

    @property
    def _stored_share(self) -> float:
        """The share of the stored data, for strategies that fix it."""
        return {"historical": 1.0, "fresh": 0.0}.get(self.strategy, self.mass or 0.0)

    # --- client ---

    def weigh(self, samples: SampleAges) -> Floats:
        held = len(samples.ages)
        return np.full(held, samples.assigned / max(held, 1))

    def answer_survey(self, context: SurveyContext) -> tuple[None, Mapping[str, Floats]]:
        """Report the distance moved, the largest gradient norm, and the largest initial loss."""
        if len(context.held) == 0:
            return None, {}
        count = min(max(round(self.fraction * len(context.held)), MIN_SAMPLES), len(context.held))
        rows = context.rng.choice(context.held, count, replace=False)
        probe, lr_scale = context.probe_model(), (self.lr or context.lr) / context.lr
        descent = probe.descend(rows, self.steps, lr_scale)
        distance = np.linalg.norm(descent.params.astype(np.float64) - probe.params())
        max_loss = probe.losses(rows).max()
        return None, {BOUNDS: np.array([distance, descent.max_gradient, max_loss])}

    # --- server ---

    @property
    def sends_models(self) -> bool:
        return True

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        if self.strategy != "ours" or self.ratio is not None or BOUNDS in roster.known:
            return np.empty(0, dtype=np.int64)
        supplies = _supplies(roster)
        return roster.present[supplies.is_historical[roster.present]]

    def validate_claim(self, claim: Claim) -> str | None:
        return first_reason(
            check_names(claim.uploads, BOUNDS), check_vector(claim.uploads, BOUNDS, 3, least=0)
        )

    def assign_weights(self, roster: Roster, num_params: int) -> Floats:
        """Return (N,) each client's importance per round in which it is present."""
        supplies = _supplies(roster)
        total = supplies.total.sum()
        require(
            total > 0,
            "old-and-new weights clients by their number of samples, but no client will ever have "
            "a sample; check the world.",
        )
        shares, historical = supplies.total / total, supplies.is_historical
        importance = self._importance(shares, historical, roster, num_params)
        return importance / np.maximum(supplies.rounds, 1.0)

    def _importance(
        self, shares: Floats, historical: Bools, roster: Roster, num_params: int
    ) -> Floats:
        """Return (N,) each client's importance in the whole run."""
        if self.strategy == "mass":
            return theory.grid_importance(shares, historical, self.mass or 0.0)
        if self.strategy != "ours":
            return theory.grid_importance(shares, historical, self.strategy)
        ratio, fresh = self.ratio or self._estimate(roster, num_params), self._fresh_at_once(roster)
        if ratio is None or fresh == 0:  # no survey yet, or no streaming client
            return shares
        return theory.optimal_importance(shares, historical, ratio, fresh_at_once=fresh)

    def _estimate(self, roster: Roster, num_params: int) -> float | None:
        """Return c2/c1 estimated from the survey; None if that is not possible."""
        bounds = roster.known.get(BOUNDS)
        if bounds is None or np.isnan(bounds).all():
            return None
        distance, max_gradient, max_loss = np.nanmax(bounds, axis=0)
        fresh = self._fresh_at_once(roster)
        if fresh == 0 or distance * max_gradient == 0:
            return None  # no streaming client, or a zero gradient: weigh by size
        return theory.importance_ratio(
            diameter=distance,
            grad_bound=max_gradient,
            loss_bound=max_loss,
            num_params=num_params,
            num_samples=_supplies(roster).total.sum(),
            num_fresh=fresh,
        )

    def _fresh_at_once(self, roster: Roster) -> float:
        """Return the number of fresh clients in the bound (see `fresh_clients`)."""
        supplies = _supplies(roster)
        fresh = ~supplies.is_historical & (supplies.total > 0)
        if self.fresh_clients == "all":
            return float(np.count_nonzero(fresh))
        longest = supplies.rounds.max()
        return float(max(supplies.rounds[fresh].sum() / longest, 1.0)) if fresh.any() else 0.0


def _supplies(roster: Roster) -> Supplies:
    """Return `roster.supplies`, or raise a `ConfigError` if the federation has none."""
    if roster.supplies is None:
        raise ConfigError(
            "old-and-new needs the number of samples of each client over the whole run, but this "
            "federation does not provide it (Roster.supplies is None). Use "
            "sample_weights=inverse-age instead."
        )
    return roster.supplies
