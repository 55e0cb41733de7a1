from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, check_names, check_vector, first_reason
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Floats32, Ints, Roster
from thalweg.selection.base import cohort_size, last_known
from thalweg.selection.drawing import draw_successive

LOSS, CHANGE = "candidate_loss", "candidate_loss_change"  # names of the uploads
NO_DATA = -1.0  # the loss of a candidate without data; ranks below every real loss


@dataclass(frozen=True)
class PowerOfChoice:
    r"""Power-of-choice: of some random candidates, choose those on whose data the model is worst.

    `candidates` clients are drawn without replacement, with probabilities proportional to their
    number of samples. Of them, the
    :math:`|S| = \max(1, \mathrm{round}(\text{participation} \cdot n))` with the largest loss take
    part, where n is the number of present clients. With :math:`|S|` candidates this is random
    sampling; with all clients as candidates it is greedy.

    Symbols, Cho, Wang, Joshi (2022) -> here
        :math:`d`    -> candidates; none: :math:`2 |S|`; at least :math:`|S|` and at most n
        :math:`p_k`  share of the data -> the last known number of samples

    `form` is the variant of the paper: "pow-d" (candidates receive the model and report its mean
    loss on their memory), "cpow-d" (the loss on a mini-batch of `batch` samples), or "rpow-d" (no
    survey: the last training loss counts, and clients without one come first).

    Numbers of samples are what clients report. A client that reports many is drawn more often;
    `max_size` limits this. ``thalweg serve --live`` sets it to 1.

    Differs from the paper: a client that never reported its number of samples counts with the mean
    of the others, and one that had no samples counts as one sample, so that it can be drawn again.
    Ties are broken at random; candidates without data come last. With a bank of several models the
    first one is used.

    All four clients are candidates; 1 and 3 have the largest losses:

    >>> known = {"candidate_loss": np.array([[0.9], [1.4], [0.2], [1.1]])}
    >>> clients = np.arange(4)
    >>> roster = Roster(0, clients, np.ones(4), np.zeros(4, int), known, surveyed=clients)
    >>> PowerOfChoice(participation=0.5).choose(roster, np.random.default_rng(0)).tolist()
    [1, 3]
    """

    bounded_values: ClassVar[tuple[str, ...]] = (LOSS, CHANGE)

    participation: float = 0.3
    """Share of the present clients that take part."""
    candidates: int | None = None
    form: Literal["pow-d", "cpow-d", "rpow-d"] = "pow-d"
    batch: int = 64
    """Samples per candidate, for "cpow-d" only."""
    max_size: float | None = None
    """A client counts in the draw with at most this multiple of the median number of samples; none:
    no limit."""
    measure_change: bool = False
    """Candidates also report how much the samples of the coming round change their loss."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            participation="(0, 1]",
            candidates="[1, inf) or none",
            batch="[1, inf)",
            max_size="[1, inf) or none",
        )
        require(
            not self.measure_change or self.form == "pow-d",
            "measure_change compares losses on the whole memory; set form=pow-d, "
            f"got form={self.form}.",
        )

    @property
    def sends_models(self) -> bool:
        return self.form != "rpow-d"

    @property
    def uses_losses(self) -> bool:
        """Whether the choice depends on the training losses of clients."""
        return self.form == "rpow-d"

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.present[:0] if self.form == "rpow-d" else self._draw_candidates(roster, rng)

    def answer_survey(self, context: SurveyContext) -> tuple[Any, Mapping[str, Floats]]:
        rows = context.held
        if self.form == "cpow-d" and len(rows) > self.batch:
            rows = context.rng.choice(rows, self.batch, replace=False)
        if len(rows) == 0:
            return context.label_counts, {LOSS: np.array([NO_DATA])}
        losses = context.probe_model().losses(rows)
        uploads = {LOSS: np.array([float(losses.mean())])}
        if self.measure_change:
            uploads[CHANGE] = np.array([_compute_change(context, losses)])
        return context.label_counts, uploads

    def validate_claim(self, claim: Claim) -> str | None:
        change = (
            check_vector(claim.uploads, CHANGE, 1, least=0) if CHANGE in claim.uploads else None
        )
        return first_reason(
            check_names(claim.uploads, LOSS, CHANGE),
            check_vector(claim.uploads, LOSS, 1, least=NO_DATA),
            change,
        )

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        size = cohort_size(self.participation, len(roster.present))
        if self.form == "rpow-d" or roster.surveyed is None:
            candidates = self._draw_candidates(roster, rng)
        else:
            candidates = roster.surveyed
        losses = self._losses(roster)[candidates]
        ranking = np.lexsort((rng.random(len(candidates)), -losses))
        return np.sort(candidates[ranking[:size]])

    def extra_metrics(self, roster: Roster, cohort: Ints) -> Mapping[str, float]:
        """Return the mean change of the loss over the candidates of this round."""
        if not self.measure_change or roster.surveyed is None:
            return {}
        changes = last_known(roster, CHANGE)[roster.surveyed]
        changes = changes[np.isfinite(changes)]
        return {"loss_change": float(changes.mean())} if len(changes) else {}

    def _draw_candidates(self, roster: Roster, rng: np.random.Generator) -> Ints:
        num_present = len(roster.present)
        if num_present == 0:
            return roster.present
        size = cohort_size(self.participation, num_present)
        num_candidates = 2 * size if self.candidates is None else self.candidates
        sizes = _sizes(roster)
        if self.max_size is not None:
            sizes = np.minimum(sizes, self.max_size * np.median(sizes))
        drawn = draw_successive(
            sizes / sizes.sum(), min(max(num_candidates, size), num_present), rng
        )
        return roster.present[drawn]

    def _losses(self, roster: Roster) -> Floats:
        """Return (N,) the losses by which candidates are ranked."""
        if self.form == "rpow-d":
            losses = last_known(roster, "loss")
            had_none = last_known(roster, "num_samples") == 0
            return np.where(had_none, -np.inf, np.where(np.isnan(losses), np.inf, losses))
        losses = last_known(roster, LOSS)
        return np.where(np.isnan(losses), -np.inf, losses)


def _compute_change(context: SurveyContext, before: Floats32) -> float:
    """Return the relative change of the mean loss (held,) if the newest samples are stored."""
    newest = context.newest
    if np.array_equal(newest, context.held):  # nothing arrives
        return 0.0
    after = np.concatenate([before, context.probe_model().losses(newest)])[-context.capacity :]
    return float(abs(after.mean() - before.mean()) / before.mean())


def _sizes(roster: Roster) -> Floats:
    """Return (n,) the number of samples of each present client; the mean if it is not known."""
    sizes = last_known(roster, "num_samples")
    is_known = np.isfinite(sizes)
    mean = sizes[is_known].mean() if is_known.any() else 1.0
    return np.maximum(np.where(is_known, sizes, mean), 1.0)[roster.present]
