from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, check_vector
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Ints, Roster
from thalweg.selection.base import cohort_size, last_known
from thalweg.selection.drawing import draw_successive

LOSS = "candidate_loss"  # what a candidate answers
NO_DATA = -1.0  # a loss that no data can have, and that comes last


@dataclass(frozen=True)
class PowerOfChoice:
    r"""Power-of-choice: of some random candidates, those on whose data the model does worst.

    `candidates` clients are drawn without replacement, with probabilities proportional to their samples;
    the :math:`|S| = \max(1, \mathrm{round}(\text{participation} \cdot n))` with the largest loss take part, n
    being the number of clients here. As many candidates as places is random sampling, all clients as
    candidates is greedy.

    Symbols, Cho, Wang, Joshi -> here
        :math:`d`  -> candidates; none: :math:`2 |S|`, and never fewer than :math:`|S|` or more than are here
        :math:`p_k`  share of the data  -> the number of samples last known; a client never heard of
        counts as the mean of the others, one that had none as if it had one, lest it be lost for good
    form
        "pow-d"   candidates get the model and answer with its mean loss on their memory
        "cpow-d"  the same on a mini-batch of `batch` samples
        "rpow-d"  nobody is asked: the last training loss counts; a client never heard of comes first

    Ties are broken at random; clients without data come last. With a bank of several models the first
    one is shown.
    """

    participation: float = 0.3
    candidates: int | None = None
    form: Literal["pow-d", "cpow-d", "rpow-d"] = "pow-d"
    batch: int = 64

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, participation="(0, 1]", candidates="[1, inf) or none", batch="[1, inf)")

    @property
    def sends_models(self) -> bool:
        return self.form != "rpow-d"

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.present[:0] if self.form == "rpow-d" else self._draw_candidates(roster, rng)

    def answer_survey(self, view: SurveyContext) -> tuple[Any, Mapping[str, Floats]]:
        rows = view.held
        if self.form == "cpow-d" and len(rows) > self.batch:
            rows = view.rng.choice(rows, self.batch, replace=False)
        loss = float(view.probe_model().losses(rows).mean()) if len(rows) else NO_DATA
        return view.label_counts, {LOSS: np.array([loss])}

    def validate_claim(self, claim: Claim) -> str | None:
        return check_vector(claim.uploads, LOSS, 1, least=NO_DATA)

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        size = cohort_size(self.participation, len(roster.present))
        if self.form == "rpow-d" or roster.surveyed is None:
            candidates = self._draw_candidates(roster, rng)
        else:
            candidates = roster.surveyed
        losses = self._losses(roster)[candidates]
        ranking = np.lexsort((rng.random(len(candidates)), -losses))
        return np.sort(candidates[ranking[:size]])

    def _draw_candidates(self, roster: Roster, rng: np.random.Generator) -> Ints:
        num_present = len(roster.present)
        if num_present == 0:
            return roster.present
        size = cohort_size(self.participation, num_present)
        wanted = 2 * size if self.candidates is None else self.candidates
        sizes = _sizes(roster)
        drawn = draw_successive(sizes / sizes.sum(), min(max(wanted, size), num_present), rng)
        return roster.present[drawn]

    def _losses(self, roster: Roster) -> Floats:
        """(N,) by which candidates are ranked."""
        if self.form == "rpow-d":
            losses = last_known(roster, "loss")
            had_none = last_known(roster, "num_samples") == 0
            return np.where(had_none, -np.inf, np.where(np.isnan(losses), np.inf, losses))
        losses = last_known(roster, LOSS)
        return np.where(np.isnan(losses), -np.inf, losses)


def _sizes(roster: Roster) -> Floats:
    """(here,) samples of the clients that are here, guessed where nothing is known."""
    sizes = last_known(roster, "num_samples")
    is_known = np.isfinite(sizes)
    usual = sizes[is_known].mean() if is_known.any() else 1.0
    return np.maximum(np.where(is_known, sizes, usual), 1.0)[roster.present]
