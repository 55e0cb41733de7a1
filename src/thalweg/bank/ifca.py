from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from thalweg.bank.bank_edit import compute_mixtures, compute_shares
from thalweg.bank.base import BankAssignment, require_cohort
from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, check_names, check_vector, first_reason
from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Ints, Roster, SurveyResponses

LOSSES = "model_losses"


class ClientModels(NamedTuple):
    """The model that each client chose last."""

    member_of: Ints  # (N,) -1: the client has not chosen yet


@dataclass(frozen=True)
class Ifca:
    r"""IFCA: a fixed number of models; each client trains the one with the smallest loss.

    At the start of the run there are k models with different random parameters. In each round the
    clients of the cohort evaluate all of them, choose the best and train it:

    .. math::
        \hat\jmath_i = \arg\min_j F_i(\theta_j), \qquad
        \theta_j \leftarrow \theta_j + \sum_{i : \hat\jmath_i = j} p_i \Delta_i

    Symbols, Ghosh et al. 2020 -> here
        k                   -> models
        :math:`F_i`         -> mean loss of client i on the first samples that arrive in the round,
                               or on its memory if none arrive
        :math:`\theta_j`    -> model j of the bank; model 0 is the initial model of the run
        :math:`p_i`         -> weights of the recipe, among the clients that chose model j

    This is the paper's version with model averaging. Differs from the paper: a client that does not
    respond keeps the model that it chose last, or gets model 0. Models without clients stay as they
    are. Clients that have not chosen yet are evaluated with all models, weighted by their shares.
    There are no restarts from other random models; use several seeds.

    Clients 0 and 2 have smaller losses with model 1, client 1 with model 0:

    >>> bank, clients = Ifca(models=2), np.arange(3)
    >>> losses = np.array([[2.0, 1.5], [0.5, 0.7], [1.0, 0.9]])
    >>> roster = Roster(0, clients, np.ones(3), np.zeros(3, int), cohort=clients, surveyed=clients)
    >>> plan = bank.assign(bank.init(3, 10), roster, {LOSSES: losses}, num_models=2)
    >>> plan.models.tolist(), bank.shares(plan.state, 2).round(2).tolist()
    ([1, 0, 1], [0.33, 0.67])
    """

    has_fixed_models: ClassVar[bool] = True
    max_jobs: ClassVar[int] = 1

    models: int = 2
    """Number of models."""

    def __post_init__(self) -> None:
        check_ranges(self, models="[1, MODELS]")

    @property
    def num_start_models(self) -> int:
        return self.models

    @property
    def sends_models(self) -> bool:
        return True

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return require_cohort(roster)

    def answer_survey(self, view: SurveyContext) -> tuple[None, Mapping[str, Floats]]:
        """Return the mean loss of each model on the newest samples; nothing without samples."""
        rows = view.newest
        if len(rows) == 0:
            return None, {}
        probes = [view.probe_model(model) for model in range(view.num_models)]
        losses = [float(probe.losses(rows).mean(dtype=np.float64)) for probe in probes]
        return None, {LOSSES: np.array(losses)}

    def validate_claim(self, claim: Claim) -> str | None:
        """Expect one loss per model."""
        return first_reason(
            check_names(claim.uploads, LOSSES),
            check_vector(claim.uploads, LOSSES, claim.num_models, least=0),
        )

    def init(self, num_clients: int, num_classes: int) -> ClientModels:
        return ClientModels(np.full(num_clients, -1, dtype=np.int64))

    def assign(
        self, state: ClientModels, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> BankAssignment:
        cohort, member_of = require_cohort(roster), state.member_of.copy()
        surveyed = cohort if roster.surveyed is None else roster.surveyed
        losses = responses.get(LOSSES, np.full((len(surveyed), num_models), np.nan))
        has_responded = ~np.isnan(losses).any(axis=1)
        member_of[surveyed[has_responded]] = losses[has_responded].argmin(axis=1)
        member_of[cohort] = np.maximum(member_of[cohort], 0)  # no losses known: the first model
        return BankAssignment(
            state=ClientModels(member_of),
            mix=np.eye(num_models),
            is_new=np.zeros(num_models, dtype=bool),
            clients=cohort,
            models=member_of[cohort],
        )

    def shares(self, state: ClientModels, num_models: int) -> Floats:
        return compute_shares(state.member_of, num_models)

    def mixtures(self, state: ClientModels, num_models: int) -> Floats:
        return compute_mixtures(state.member_of, num_models)
