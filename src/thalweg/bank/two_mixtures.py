from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.bank.base import BankAssignment, SplitContext, is_step_start, require_cohort
from thalweg.bank.contradictions import Contradictions, Seen, compute_lower_limits
from thalweg.bank.prototype_set import (
    ERRORS,
    Output,
    client_prototypes,
    read_prototypes,
    split_new_old,
    validate_prototypes,
)
from thalweg.bank.prototype_set import NEW as NEW_PROTOTYPE
from thalweg.bank.prototype_set import OLD as OLD_PROTOTYPE
from thalweg.bank.soft import SLACK, check_mass
from thalweg.bank.two_mixtures_state import (
    TwoMixturesState,
    add_models,
    init_state,
    keep_models,
    normalise,
)
from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, Delivery, check_vector, first_reason
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.decisions import make_decision
from thalweg.core.types import Floats, Floats32, Ints, Roster, SurveyResponses
from thalweg.theory import label_mass, label_priors, responsibilities

LOSSES = "model_losses"  # survey response
LEAST_LOSSES = "least_model_losses"  # survey response
NEW, OLD = "new_mixture", "old_mixture"  # broadcasts
NEW_ERRORS, OLD_ERRORS = NEW_PROTOTYPE + ERRORS, OLD_PROTOTYPE + ERRORS  # survey responses
BEGAN = "period_began"  # broadcast
PRIORS = "label_priors"  # broadcast
MIN_SHARE = 0.05  # of a sample; below, the model is not trained on it
NEVER = 1e9  # cost of a model that must not be chosen
MASS = "period_mass"  # upload

Bools = npt.NDArray[np.bool_]


class PeriodMass(NamedTuple):
    """The state of a client: what it uploads after training."""

    mass: Floats32  # (2, models, C) label mass in new and in old samples; empty: one model


@dataclass(frozen=True)
class TwoMixtures:
    r"""Separate mixtures of models for new and old samples; models are opened only if needed.

    A client has a period. It begins at the start of a time step (`every`) or, without time steps,
    when the client raises an alarm. Samples that arrived since then are new, all others old. Each
    kind has its own mixture :math:`\alpha` over the models, and the client weights its samples
    as in FedRC, with the mixture of their kind. :math:`f_j` are the losses of the received models
    and :math:`A` are the label priors of the models:

    .. math::
        \gamma_{i;j} \propto \alpha^{t(i)}_j\, e^{-f_j(i)} / A_{y_i,j}, \qquad
        \alpha^t_j = \mathrm{mean}_{i: t(i) = t}\, \gamma_{i;j}, \qquad
        t(i) \in \{\text{new}, \text{old}\}

    Old samples therefore reach the model that explains them, and only the mixture of new samples
    predicts. A client receives and trains the models with at least `relevant_share` in one of its
    mixtures, each on mini-batches of its own samples (`separates_samples`).

    **Survey.** The cohort is surveyed in the first round of a step or after an alarm, and 1, 2, 4,
    8, ... rounds later; a client that was absent then, in its first round since. Each client
    returns the prototypes of its new and of its old samples (mean outputs of all models for each
    class, as in FedDAA) and the mean loss of each model on the new ones:

    - If the labels of a client contradict the mean of all others, the prototypes are clustered
      (`theory.count_clusters`). Clients whose labels contradict the others of their cluster are
      separated. Clusters are merged unless their labels contradict each other and no model has a
      loss of at most `sufficient_loss` on both. Usually one cluster remains.
    - Labels contradict each other if `theory.label_conflict` is above `max_conflict` and the
      prototypes differ by more than chance: at the level `significance` of a test with their
      standard errors. The errors of a client count as 0 if every model predicts its new samples
      worse than equal probabilities do, and much worse than another client's. The lower confidence
      limits of its mean losses count here (level `loss_significance`), so that a few samples with
      large losses are no evidence.
    - Clusters are matched with models by linear sum assignment; the cost is the mean loss of the
      model on the cluster. A new model costs :math:`\ln C` + `sufficient_loss`, more than a model
      that predicts all C classes equally. It starts as a copy of the best model. If one cluster
      remains, a model is opened only if the labels of new and old samples contradict each other;
      none is opened for a cluster in which each client has a sufficient model.
    - A client with a model of its own that is better than that of its cluster by more than
      `sufficient_loss` keeps this one.
    - Mixtures of clients whose model has changed start at `certainty` for the new one.

    A model without clients for `unused_rounds` rounds is closed. With one model a round equals one
    of FedAvg, bit by bit; only the surveys are added.

    Symbols, FedRC and FedDAA -> here
        :math:`\hat\alpha_k`       -> `TwoMixturesState.new` and `.old`
        :math:`C^t, M`             -> the number of groups that remain, max_clusters
        :math:`P_k^{t-1}, P_k^t` -> old and new prototype of client k

    Differs from FedDAA: drifted clients need not be detected, since old samples have their own
    mixture; NCD's clusters initialise the mixtures; the number of models follows from
    contradictions and losses, not from NCD alone; and the mixtures are stored at the server, so
    that a client needs no state and may be absent when models are opened or closed.

    The labels of client 3 contradict those of the others, and its loss is 5. Model 1 is opened:

    >>> bank, clients = TwoMixtures(), np.arange(4)
    >>> roster = Roster(0, clients, np.ones(4), np.zeros(4, int), cohort=clients, surveyed=clients)
    >>> responses = {
    ...     "new_prototype": np.array([[0.0, 4], [0, 4], [0, 5], [4, 0]]),
    ...     "new_prototype_classes": np.ones((4, 2)),
    ...     "old_prototype": np.zeros((4, 2)), "old_prototype_classes": np.zeros((4, 2)),
    ...     "new_prototype_errors": np.ones((4, 2)), "old_prototype_errors": np.ones((4, 2)),
    ...     "new_since": np.zeros((4, 1)),
    ...     "model_losses": np.array([[0.1], [0.1], [0.2], [5.0]]),
    ...     "least_model_losses": np.array([[0.0], [0.0], [0.1], [4.0]]),
    ... }
    >>> plan = bank.assign(bank.init(num_clients=4, num_classes=2), roster, responses, num_models=1)
    >>> plan.mix.tolist(), plan.models.tolist(), plan.state.new[3].round(2).tolist()
    ([[1.0], [1.0]], [0, 0, 0, 1], [0.05, 0.95])
    """

    every: int | None = None
    """Rounds in a time step, in which a new period begins for all clients; none: a client's alarm
    starts its new period."""
    relevant_share: float = 0.1
    """Smallest share in a mixture with which a client trains a model; the largest share always."""
    certainty: float = 0.95
    """Share of the model of its cluster with which the mixture of a client starts."""
    max_conflict: float = 0.5
    """Share of the classes with contradictory labels up to which clusters share a model."""
    sufficient_loss: float = 0.5
    """Loss on new samples up to which one model is sufficient for two clusters. Below ln 2, the
    loss of a model that is trained on two contradictory labels in equal parts."""
    unused_rounds: int = 20
    """Rounds without clients after which a model is closed."""
    max_models: int = 8
    """Models that the bank can have at the same time."""
    max_clusters: int = 5
    """Largest number of clusters of prototypes."""
    patience: int = 5
    """Rounds after its opening in which a model is not replaced by a further new one, and rounds
    after the start of a client's period in which a further alarm starts none."""
    output: Output = "logits"
    """Outputs of which prototypes are means."""
    significance: float = 0.001
    """Level of the test that prototypes differ by more than chance."""
    loss_significance: float = 0.01
    """Level of the lower confidence limits of losses; 1: the means themselves."""

    bounded_values: ClassVar[tuple[str, ...]] = (LOSSES, LEAST_LOSSES)
    needs_class_labels: ClassVar[bool] = True
    splits_single_models: ClassVar[bool] = False
    separates_samples: ClassVar[bool] = True
    sends_models: ClassVar[bool] = True
    monitors: ClassVar[str] = "the labels of new and old samples, and each model's loss (bank)"

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            every="[1, inf) or none",
            relevant_share="(0, 0.5]",
            certainty="[0.5, 1]",
            max_conflict="[0, 1)",
            sufficient_loss="[0, inf)",
            unused_rounds="[1, inf)",
            max_models="[1, MODELS]",
            patience="[1, inf)",
            max_clusters="[1, MODELS]",
            significance="(0, 1]",
            loss_significance="(0, 1]",
        )

    @property
    def _contradictions(self) -> Contradictions:
        return Contradictions(
            self.max_conflict, self.sufficient_loss, self.max_clusters, self.significance
        )

    @property
    def max_jobs(self) -> int:
        return self.max_models

    @property
    def rounds_per_step(self) -> int | None:
        """Rounds of a time step, which must be those of the world; None: any."""
        return self.every

    # --- surveys ---

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        """Survey the cohort at a step start and after an alarm; see also `find_watched`."""
        cohort = require_cohort(roster)
        return cohort if is_step_start(self.every, roster) else cohort[:0]

    def find_watched(self, state: TwoMixturesState, roster: Roster) -> Ints:
        """Return the cohort in the 1st, 2nd, 4th, 8th, ... round after a step start or an alarm.

        In other rounds, return its clients that have not been surveyed since then, and if there are
        several models, those without a mixture.
        """
        cohort, age = require_cohort(roster), roster.rnd - state.changed
        if age > 0 and age & (age - 1) == 0:
            return cohort
        is_watched = state.surveyed[cohort] < state.changed
        if state.new.shape[1] > 1:
            is_watched |= ~state.new[cohort].any(axis=1)
        return cohort[is_watched]

    def answer_survey(self, view: SurveyContext) -> tuple[None, Mapping[str, Floats]]:
        """Return prototypes of new and old samples, and the mean loss of each model on new ones."""
        response = client_prototypes(
            view, None, self.output, num_models=view.num_models, with_errors=True
        )
        if not response:
            return None, {}
        rows, _, _ = split_new_old(view, None)
        losses = np.stack(
            [view.probe_model(model).losses(rows) for model in range(view.num_models)]
        ).astype(np.float64)
        least = compute_lower_limits(losses, self.loss_significance)
        return None, {**response, LOSSES: losses.mean(axis=1), LEAST_LOSSES: least}

    def validate_claim(self, claim: Claim) -> str | None:
        if claim.is_survey_response:
            return first_reason(
                validate_prototypes(claim, LOSSES, LEAST_LOSSES, NEW_ERRORS, OLD_ERRORS),
                check_vector(claim.uploads, NEW_ERRORS, claim.num_classes, least=0),
                check_vector(claim.uploads, OLD_ERRORS, claim.num_classes, least=0),
                check_vector(claim.uploads, LOSSES, claim.num_models, least=0),
                check_vector(claim.uploads, LEAST_LOSSES, claim.num_models, least=0),
            ) or _compare_losses(claim.uploads)
        if PRIORS not in claim.broadcast:
            return "there is one model, so no values are expected." if claim.uploads else None
        return check_mass(claim, MASS, 2 * len(claim.broadcast[PRIORS]))

    # --- the client part ---

    def init_split(self, num_classes: int) -> PeriodMass:
        return PeriodMass(np.zeros((2, 0, num_classes), dtype=np.float32))

    def split_samples(
        self, kept: PeriodMass, split: SplitContext, received: Mapping[str, Floats32]
    ) -> tuple[PeriodMass, Floats]:
        weights, num_classes = np.ones(split.losses.shape), kept.mass.shape[2]
        if NEW not in received:  # one model
            return self.init_split(num_classes), weights
        mixtures = np.stack([received[NEW], received[OLD]]).astype(np.float64)  # (2, models)
        slots = np.flatnonzero(mixtures.any(axis=0))  # positions of the received models
        priors = received[PRIORS].astype(np.float64).reshape(-1, num_classes)[slots]
        mass = np.zeros((2, mixtures.shape[1], num_classes), dtype=np.float32)
        is_new = split.since >= received[BEGAN][0]
        for period, (mixture, rows) in enumerate(zip(mixtures, (is_new, ~is_new), strict=True)):
            labels, mine = split.labels[rows], mixture[slots]
            if not mine.any():  # the server knows of no such samples
                mine = mixtures[1 - period, slots]
            shares = responsibilities(split.losses[:, rows], labels, mine, priors)
            weights[:, rows] = np.where(shares < MIN_SHARE, 0.0, shares)
            mass[period, slots] = label_mass(shares, labels, num_classes)
        return PeriodMass(mass), weights

    def validate_delivery(self, delivery: Delivery) -> str | None:
        values, num_classes = delivery.values, delivery.num_classes
        if not values and delivery.num_models == 1:
            return None
        if reason := check_vector(values, NEW, least=0, most=1):
            return reason
        num_models = values[NEW].shape[-1]
        if reason := first_reason(
            check_vector(values, OLD, num_models, least=0, most=1),
            check_vector(values, BEGAN, 1),
            check_vector(values, PRIORS, num_models * num_classes, least=1e-30, most=1),
        ):
            return reason
        num_used = int((values[NEW] + values[OLD] > 0).sum())
        if num_used != delivery.num_models:
            return f"the mixtures have {num_used} models, but {delivery.num_models} were sent."
        return None

    def main_model(self, kept: PeriodMass, models: Ints, received: Mapping[str, Floats32]) -> int:
        if NEW not in received:
            return 0
        used = (received[NEW] > 0) | (received[OLD] > 0)
        return int(received[NEW][used].argmax())

    def upload(self, kept: PeriodMass) -> Mapping[str, Floats32]:
        return {MASS: kept.mass.ravel()} if kept.mass.size else {}

    def collect(
        self, state: TwoMixturesState, clients: Ints, uploads: Mapping[str, Floats32]
    ) -> TwoMixturesState:
        _, num_models, num_classes = state.mass.shape
        received = uploads.get(MASS)
        if received is None or received.shape[1] != 2 * num_models * num_classes:
            return state
        mass = received.reshape(len(clients), 2, num_models, num_classes).astype(np.float64)
        new, old, stored = state.new.copy(), state.old.copy(), state.mass.copy()
        stored[clients] = mass.sum(axis=1)
        per_model = mass.sum(axis=3)  # (K, 2, models)
        total = per_model.sum(axis=2, keepdims=True)
        mixtures = per_model / np.maximum(total, 1e-12)
        has_new = total[:, 0, 0] > 0
        new[clients[has_new]] = mixtures[has_new, 0]
        old[clients] = mixtures[:, 1]
        return state._replace(new=new, old=old, mass=stored)

    # --- the server part ---

    def init(self, num_clients: int, num_classes: int) -> TwoMixturesState:
        return init_state(num_clients, num_classes)

    def assign(
        self, state: TwoMixturesState, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> BankAssignment:
        cohort = require_cohort(roster)
        decisions: list[dict[str, Any]] = []
        state, starting = self._start_periods(state, roster)
        mix = np.eye(num_models)
        seen = self._read_responses(responses, roster, num_models) if responses else None
        if seen is not None and len(seen.clients):
            surveyed = state.surveyed.copy()
            surveyed[seen.clients] = roster.rnd
            state = state._replace(surveyed=surveyed)
            if self.every is None:
                began = state.began.copy()
                late = starting[seen.clients]
                began[seen.clients[late]] = np.minimum(roster.rnd, seen.new_since[late])
                state = state._replace(began=began)
            state, mix, opened = self._match_clusters(state, seen, starting, mix, roster.rnd)
            decisions += opened
        state = self._fill_mixtures(state, cohort)
        state, mix, closed = self._close_unused(state, roster.rnd, mix)
        state = state._replace(decisions=decisions + closed)
        return self._build(state, cohort, mix, roster.rnd)

    def extra_metrics(self, state: TwoMixturesState, roster: Roster) -> Mapping[str, Any]:
        """Return the models that were opened and closed, with the reasons."""
        return {"decisions": state.decisions} if state.decisions else {}

    def mixtures(self, state: TwoMixturesState, num_models: int) -> Floats:
        """Return (N, models) each client's mixture for new samples; without one, the mean."""
        if state.new.shape[1] != num_models:
            return np.full((len(state.new), num_models), 1 / num_models)
        mixtures, has_mixture = state.new.copy(), state.new.any(axis=1)
        mean = mixtures[has_mixture].mean(axis=0) if has_mixture.any() else 1 / num_models
        mixtures[~has_mixture] = mean
        return normalise(mixtures)

    def shares(self, state: TwoMixturesState, num_models: int) -> Floats:
        shares: Floats = self.mixtures(state, num_models).mean(axis=0)
        return shares

    def _start_periods(
        self, state: TwoMixturesState, roster: Roster
    ) -> tuple[TwoMixturesState, Bools]:
        """Start new periods; return the state and (N,) the clients that need a new mixture."""
        starting = np.zeros(roster.num_clients, dtype=bool)
        if self.every is not None:
            began = roster.rnd // self.every * self.every
            starting[:] = began > state.began
        elif roster.alarmed is not None and len(roster.alarmed):
            alarmed = np.intersect1d(roster.alarmed, require_cohort(roster))
            is_young = (state.began[alarmed] > 0) & (
                roster.rnd - state.began[alarmed] < self.patience
            )
            starting[alarmed[~is_young]] = True
            began = roster.rnd
        if starting.any():
            old, new, since = state.old.copy(), state.new.copy(), state.began.copy()
            old[starting] = new[starting]
            new[starting] = 0
            since[starting] = began
            state = state._replace(old=old, new=new, began=since, changed=began)
        return state, np.asarray(~state.new.any(axis=1))

    def _read_responses(self, responses: SurveyResponses, roster: Roster, num_models: int) -> Seen:
        found = read_prototypes(responses, roster, "mask")
        losses, least = (responses.get(name, np.empty((0, 0))) for name in (LOSSES, LEAST_LOSSES))
        if losses.shape[1] != num_models or least.shape != losses.shape or not len(found.clients):
            nothing, no_rows = np.empty(0, dtype=np.int64), np.empty((0, 1, 1))
            no_errors, no_losses = np.empty((0, 1)), np.empty((0, num_models))
            return Seen(
                nothing, no_rows, no_rows, no_errors, no_errors, no_losses, no_losses, nothing
            )
        has_responded = ~np.isnan(responses[NEW_PROTOTYPE]).any(axis=1)
        return Seen(
            found.clients,
            found.new,
            found.old,
            found.new_errors,
            found.old_errors,
            losses[has_responded],
            least[has_responded],
            found.new_since,
        )

    def _match_clusters(
        self, state: TwoMixturesState, seen: Seen, starting: Bools, mix: Floats, rnd: int
    ) -> tuple[TwoMixturesState, Floats, list[dict[str, Any]]]:
        """Give each cluster of clients a model, and start the mixtures of its clients with it."""
        num_models = len(mix)
        groups = self._contradictions.find_groups(seen)
        num_groups = int(groups.max()) + 1
        means = self._contradictions.mean_losses(seen, groups)
        new_cost = float(np.log(state.mass.shape[2])) + self.sufficient_loss
        contradicts = num_groups > 1 or self._contradictions.has_changed(seen)
        if not contradicts and means.min() > self.sufficient_loss:
            # No model fits all, and none is missing: each starting client takes its best one.
            moved = seen.select(starting[seen.clients])
            return self._seed(state, moved, moved.losses.argmin(axis=1)), mix, []
        costs = self._keep_young(state, seen, groups, means, rnd)
        unfit = self._contradictions.find_unfit(seen)
        needs_model = np.bincount(groups[unfit], minlength=num_groups) > 0
        room = max(min(self.max_models - num_models, num_groups), 0)
        of_new = np.where(needs_model, new_cost, NEVER)[:, None]
        model_of = match_models(costs, np.repeat(of_new, room, axis=1))
        opened = []
        for group in np.flatnonzero(model_of >= num_models).tolist():
            parent, size = int(means[group].argmin()), int((groups == group).sum())
            why = "other clients" if num_groups > 1 else "old samples"
            opened.append(
                make_decision(
                    "open-model",
                    f"the labels of {size} client{'s' * (size > 1)} contradict those of {why}; the "
                    f"loss of model {parent} on their new samples is {means[group, parent]:.2f}",
                    model=len(mix),
                    parent=parent,
                    clients=size,
                    loss=float(means[group, parent]),
                )
            )
            model_of[group] = len(mix)
            mix = np.vstack([mix, np.eye(num_models)[parent]])
        state = add_models(state, len(mix) - num_models, rnd)
        models = self._prefer_own(state, seen, model_of[groups], rnd)
        return self._seed(state, seen, models), mix, opened

    def _prefer_own(self, state: TwoMixturesState, seen: Seen, models: Ints, rnd: int) -> Ints:
        """Return the models (K,) of clients: that of the group, or an own one that is much better.

        A model that was opened recently is given up only for one that is sufficient.
        """
        known = seen.losses.shape[1]
        losses = np.pad(
            seen.losses, ((0, 0), (0, len(state.opened) - known)), constant_values=np.inf
        )
        own, rows = seen.losses.argmin(axis=1), np.arange(len(models))
        is_better = losses[rows, models] - losses[rows, own] > self.sufficient_loss
        is_free = ~self._are_young(state, rnd)[models] | (losses[rows, own] <= self.sufficient_loss)
        return np.where(is_better & is_free, own, models)

    def _are_young(self, state: TwoMixturesState, rnd: int) -> Bools:
        """Return (models,) which models were opened recently."""
        return np.asarray((state.opened >= 0) & (rnd - state.opened < self.patience))

    def _keep_young(
        self, state: TwoMixturesState, seen: Seen, groups: Ints, means: Floats, rnd: int
    ) -> Floats:
        """Return the costs of models for groups; a model that was opened recently costs nothing.

        A new model has a large loss at first; without this rule, it would be replaced by another
        new one.
        """
        costs, is_young = means.copy(), self._are_young(state, rnd)
        for group in range(len(means)):
            mixtures = state.new[seen.clients[groups == group]]
            mixtures = mixtures[mixtures.any(axis=1)]
            if len(mixtures):
                own = np.bincount(mixtures.argmax(axis=1)).argmax()
                if is_young[own]:
                    costs[group, own] = 0.0
        return costs

    def _seed(self, state: TwoMixturesState, seen: Seen, models: Ints) -> TwoMixturesState:
        """Start the mixture of clients with a model (K,) of their own, where it has changed.

        If the new samples of such a client arrived in its current period, the period goes on.
        Otherwise the change was not detected as an alarm, and a period begins.
        """
        num_models, mine = state.new.shape[1], state.new[seen.clients]
        moves = (mine.argmax(axis=1) != models) | ~mine.any(axis=1)
        begins = moves & mine.any(axis=1) & (seen.new_since > state.began[seen.clients])
        new, old, began = state.new.copy(), state.old.copy(), state.began.copy()
        old[seen.clients[begins]] = mine[begins]
        began[seen.clients[begins]] = seen.new_since[begins]
        moved = seen.clients[moves]
        new[moved] = (1 - self.certainty) / max(num_models - 1, 1)
        new[moved, models[moves]] = self.certainty if num_models > 1 else 1.0
        return state._replace(new=new, old=old, began=began)

    def _fill_mixtures(self, state: TwoMixturesState, cohort: Ints) -> TwoMixturesState:
        """Give clients of the cohort without a mixture equal shares of all models."""
        missing = cohort[~state.new[cohort].any(axis=1)]
        if len(missing) == 0:
            return state
        new = state.new.copy()
        new[missing] = 1 / new.shape[1]
        return state._replace(new=new)

    def _close_unused(
        self, state: TwoMixturesState, rnd: int, mix: Floats
    ) -> tuple[TwoMixturesState, Floats, list[dict[str, Any]]]:
        if len(mix) == 1:  # the cohort uses it
            return state._replace(last_used=np.full(1, rnd)), mix, []
        used = (self._is_relevant(state.new) | self._is_relevant(state.old)).any(axis=0)
        last_used = np.where(used, rnd, state.last_used)
        unused_for = rnd - last_used
        is_kept = unused_for < self.unused_rounds
        state = state._replace(last_used=last_used)
        if is_kept.all():
            return state, mix, []
        closed = [
            make_decision(
                "close-model",
                f"no client has used it for {unused_for[model]} rounds",
                model=model,
                rounds=int(unused_for[model]),
            )
            for model in np.flatnonzero(~is_kept).tolist()
        ]
        return keep_models(state, is_kept), mix[is_kept], closed

    def _is_relevant(self, mixtures: Floats) -> Bools:
        """Return (N, models) which models clients with these mixtures train."""
        least = np.minimum(mixtures.max(axis=1, keepdims=True), self.relevant_share)
        return np.asarray((mixtures > 0) & (mixtures >= least))

    def _build(
        self, state: TwoMixturesState, cohort: Ints, mix: Floats, rnd: int
    ) -> BankAssignment:
        num_models, is_new = len(mix), np.asarray(state.opened == rnd)
        if num_models == 1:
            return BankAssignment(state, mix, is_new, cohort, np.zeros(len(cohort), np.int64), {})
        new, old = (
            normalise(mixtures * self._is_relevant(mixtures))
            for mixtures in (state.new[cohort], state.old[cohort])
        )
        rows, models = np.nonzero(new + old)
        priors = label_priors(state.mass.sum(axis=0, dtype=np.float64))
        broadcast = {
            NEW: new,
            OLD: old,
            BEGAN: state.began[cohort, None].astype(np.float64),
            PRIORS: np.tile(priors.ravel(), (len(cohort), 1)),
        }
        return BankAssignment(state, mix, is_new, cohort[rows], models.astype(np.int64), broadcast)


def _compare_losses(uploads: Mapping[str, Floats]) -> str | None:
    """Return why losses are invalid: lower limits of means are at most the means."""
    most = uploads[LOSSES] * (1 + SLACK) + SLACK
    if (uploads[LEAST_LOSSES] <= most).all():
        return None
    return f"{LEAST_LOSSES} is above {LOSSES}."


def match_models(costs: Floats, of_new: Floats) -> Ints:
    """Return (G,) models for groups, with the smallest sum of costs and each for one group only.

    `costs` (G, J) are those of the models; those of new models (G, R) get the numbers from J on. A
    group takes its cheapest model, which others may have, if there are too few models for all, or
    if it would get a new one for `NEVER`.

    >>> match_models(np.array([[0.1, 9.0], [0.2, 5.0]]), np.array([[3.0], [3.0]])).tolist()
    [0, 2]
    >>> match_models(np.array([[0.1, 9.0], [0.2, 5.0]]), np.full((2, 1), NEVER)).tolist()
    [0, 1]
    """
    options = np.hstack([costs, of_new])
    if len(costs) == 1:  # scipy.optimize need not be loaded
        return np.asarray(options.argmin(axis=1))
    from scipy.optimize import linear_sum_assignment

    chosen, models = linear_sum_assignment(options)
    is_allowed = options[chosen, models] < NEVER
    model_of = np.asarray(costs.argmin(axis=1))
    model_of[chosen[is_allowed]] = models[is_allowed]
    return model_of
