from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from thalweg import theory
from thalweg.aggregation.base import MemorySummary
from thalweg.core.claims import Claim, check_vector
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Roster, Updates

SHARE = "label_share_"  # the beginning of the names of the reports, one per class
MIX, COUNTS = "label_mix", "label_counts"  # responses to the survey of a selection


@dataclass(frozen=True)
class LabelBalanced:
    r"""Weigh updates such that the weighted mean of the clients' label mixes is close to a target.

    .. math::
        p = \arg\min_{p \in \Delta_K} \tfrac12 \Big\| \sum_n p_n r_n - g \Big\|_2^2
            + \tfrac{\mu}{2} \sum_n \Big(p_n - \frac1K\Big)^2

    The second term pulls the weights towards equal ones, so that the solution is unique and does
    not rest on few clients. The problem has the form of `theory.dpcs_probabilities`, because the
    weights sum to one.

    The mixes are those of the memories at the end of local training, which clients report with
    their updates (``source="reports"``), or the last ones that the survey of the selection has
    collected (``source="survey"``): then clients send nothing more, and the mixes have the privacy
    noise of the survey (``selection.privacy``). A client without a mix, because its memory is empty
    or it has not responded, counts with the mean mix of the others. Without any mix all weights are
    equal. A client that trains several models has one mix.

    Symbols
        :math:`r_n`       label mix of client n        -> Updates.reports, or Roster.known
        :math:`g`         target                       -> target
        :math:`\mu`                                    -> ridge
        K                 number of updates of a model -> len(updates)

    Two clients hold only class 0, the third one only class 1. With weights (x, x, 1 - 2x) and a
    balanced target, the derivative of the objective vanishes for x = (1 + ridge) / (4 + 3 ridge):

    >>> from types import SimpleNamespace
    >>> reports = {"label_share_0": np.array([1.0, 1.0, 0.0]),
    ...            "label_share_1": np.array([0.0, 0.0, 1.0])}
    >>> updates = SimpleNamespace(clients=np.arange(3), reports=reports)
    >>> (7 * LabelBalanced(ridge=1.0).weigh(updates, roster=None)).round(6).tolist()
    [2.0, 2.0, 3.0]
    """

    needs_class_labels: ClassVar[bool] = True
    needs_individual_updates: ClassVar[bool] = True

    target: Literal["balanced", "pooled"] = "balanced"
    """Equal shares of all classes, or the mix of the last known counts of all clients (with a
    survey of mixes, their mean)."""
    ridge: float = 0.3
    """Strength of the pull towards equal weights."""
    source: Literal["reports", "survey"] = "reports"
    """Where the mixes come from: reports with the updates, or the survey of the selection."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, ridge="[1e-6, 1e6]")

    @property
    def reports_labels(self) -> bool:
        """Whether clients report their label mix."""
        return self.source == "reports"

    @property
    def needs_label_survey(self) -> bool:
        """Whether the selection must survey label mixes."""
        return self.source == "survey"

    def report(self, summary: MemorySummary) -> Mapping[str, float]:
        if self.source == "survey":
            return {}
        assert summary.label_mix is not None
        return {f"{SHARE}{c}": float(share) for c, share in enumerate(summary.label_mix)}

    def validate_claim(self, claim: Claim) -> str | None:
        """Expect the shares of all classes: at least 0, with a sum of one, or of zero."""
        if self.source == "survey":
            return "no reports are expected." if claim.uploads else None
        num_classes = len(claim.uploads) if claim.num_classes is None else claim.num_classes
        names = _names(num_classes)
        if set(claim.uploads) != set(names):
            return f"the reports are not {SHARE}0 to {SHARE}{num_classes - 1}."
        for name in names:
            if reason := check_vector(claim.uploads, name, least=0, most=1 + 1e-6):
                return reason
        totals = np.sum([claim.uploads[name] for name in names], axis=0)
        is_valid = (totals == 0) | (np.abs(totals - 1) <= 1e-6)
        return None if is_valid.all() else f"the label shares sum to {totals.max():g}, not to 1."

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        if self.source == "reports":
            mixes = _stack(updates.reports)
            counts = _known_counts(mixes, updates, roster) if self.target == "pooled" else mixes
        else:
            counts = _surveyed(roster)
            mixes = counts[updates.clients]
        mixes, total = _normalise(mixes), counts.sum(axis=0)
        if not mixes.any():
            return np.full(len(mixes), 1 / len(mixes))
        is_known = mixes.any(axis=1)
        mixes[~is_known] = mixes[is_known].mean(axis=0)
        num_classes = mixes.shape[1]
        goal = np.full(num_classes, 1 / num_classes) if self.target == "balanced" else total
        return theory.dpcs_probabilities(mixes, _normalise(goal[None])[0], self.ridge)


def _names(num_classes: int) -> list[str]:
    return [f"{SHARE}{c}" for c in range(num_classes)]


def _stack(reports: Mapping[str, Floats]) -> Floats:
    """Return (n, C) label mixes from one array (n,) per class; zeros where there is none."""
    num_classes = sum(name.startswith(SHARE) for name in reports)
    return np.nan_to_num(np.stack([reports[name] for name in _names(num_classes)], axis=1))


def _known_counts(mixes: Floats, updates: Updates, roster: Roster) -> Floats:
    """Return (N, C) the label counts that each client reported last, including this round."""
    counts = np.zeros((roster.num_clients, mixes.shape[1]))
    if f"{SHARE}0" in roster.known:
        counts = _stack(roster.known) * np.nan_to_num(roster.known["num_samples"])[:, None]
    counts[updates.clients] = mixes * updates.num_samples[:, None]  # the newest row of a client
    return counts


def _surveyed(roster: Roster) -> Floats:
    """Return (N, C) the last label counts, or mixes, that each client sent; zeros: none."""
    known = roster.known.get(COUNTS, roster.known.get(MIX))
    return np.zeros((roster.num_clients, 1)) if known is None else np.nan_to_num(known)


def _normalise(counts: Floats) -> Floats:
    """Divide rows by their sums; rows of zeros stay zeros."""
    totals = counts.sum(axis=1, keepdims=True)
    mixes: Floats = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    return mixes
