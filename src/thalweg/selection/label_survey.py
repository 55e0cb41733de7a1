"""Surveys of the labels that clients have: the part that several selection rules share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, check_names, check_vector, first_reason
from thalweg.core.types import Floats, Ints, Roster
from thalweg.selection.base import last_known
from thalweg.selection.counters import LabelCounter
from thalweg.selection.label_privacy import LabelPrivacy, PrivacyAccount, frequencies
from thalweg.theory import PrivacyCost

# Names of the uploads.
MIX, COUNTS, SPENT = "label_mix", "label_counts", "epsilon_spent"
MAX_VALUE = {MIX: 1.0, COUNTS: 1e7}  # largest accepted value per class


class LabelCounts(NamedTuple):
    """What a rule with a label survey keeps at each client."""

    counter_state: Any  # of the counter
    account: PrivacyAccount


class _HasCounter(Protocol):
    @property
    def counter(self) -> LabelCounter: ...
    @property
    def privacy(self) -> LabelPrivacy: ...
    @property
    def needs_counts(self) -> bool: ...


class LabelSurvey:
    """Base class of rules to which all present clients report their label mix before each round.

    A rule has the fields `counter` and `privacy`. If it sets `needs_counts`, clients report counts.
    """

    surveys_labels: ClassVar[bool] = True  # weights may read the mixes of the survey

    @property
    def needs_counts(self) -> bool:
        """Whether clients report label counts, not only the normalised label mix."""
        return False

    @property
    def adds_noise(self: _HasCounter) -> bool:
        """Whether clients add privacy noise to what they report."""
        return self.privacy.epsilon is not None

    @property
    def survey_cost(self: _HasCounter) -> PrivacyCost:
        """What one report discloses if a sample is replaced, also with other `neighbours`."""
        if self.privacy.epsilon is None:
            return PrivacyCost.unlimited()
        return PrivacyCost(laplace={2 / self.privacy.scale: 1})

    # --- client ---

    @property
    def sends_models(self) -> bool:
        return False

    def init_counts(self: _HasCounter, num_classes: int) -> LabelCounts:
        return LabelCounts(self.counter.init(num_classes), self.privacy.init(num_classes))

    def count_labels(self: _HasCounter, label_counts: LabelCounts, labels: Ints) -> LabelCounts:
        return LabelCounts(
            self.counter.count_labels(label_counts.counter_state, labels),
            self.privacy.count_arrivals(label_counts.account, len(labels)),
        )

    def answer_survey(
        self: _HasCounter, context: SurveyContext
    ) -> tuple[LabelCounts, Mapping[str, Floats]]:
        """Report the label mix, or the counts if the rule needs them; zeros: no data."""
        label_counts: LabelCounts = context.label_counts
        true = self.counter.histogram(label_counts.counter_state, context)
        account, counts = self.privacy.release(
            label_counts.account,
            true,
            self.counter.span,
            None if self.privacy.epsilon is None else context.noise,
        )
        if account is not label_counts.account:
            label_counts = label_counts._replace(account=account)
        if counts is None:
            return label_counts, {}
        uploads = {COUNTS: counts} if self.needs_counts else {MIX: frequencies(counts)}
        if self.privacy.epsilon is not None:
            uploads[SPENT] = np.array([account.spent])
        return label_counts, uploads

    # --- server ---

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.present

    def validate_claim(self, claim: Claim) -> str | None:
        """Accept a label mix (sum one, or all zero), or counts if the rule needs them."""
        uploads, name = claim.uploads, COUNTS if self.needs_counts else MIX
        spent = check_vector(uploads, SPENT, 1, least=0) if SPENT in uploads else None
        if reason := first_reason(
            check_names(uploads, name, SPENT),
            check_vector(uploads, name, claim.num_classes, least=0, most=MAX_VALUE[name]),
            spent,
        ):
            return reason
        total = float(uploads[name].sum())
        if name == MIX and total != 0 and abs(total - 1) > 1e-6:
            return f"{MIX} sums to {total:g}, not to 1."
        return None

    def epsilon_metrics(self: _HasCounter, roster: Roster) -> dict[str, float]:
        """Return the largest and the mean epsilon that clients have spent; empty without noise."""
        spent = last_known(roster, SPENT)
        spent = spent[np.isfinite(spent)]
        if self.privacy.epsilon is None or len(spent) == 0:
            return {}
        return {
            "epsilon_spent_max": float(spent.max()),
            "epsilon_spent_mean": float(spent.mean()),
        }


def mix_distances(name: str, gap: Floats) -> dict[str, float]:
    """Return the L1 and L2 norm of a difference of label mixes, by metric name."""
    return {f"{name}_l1": float(np.abs(gap).sum()), f"{name}_l2": float(np.linalg.norm(gap))}
