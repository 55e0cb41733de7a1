from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from thalweg.bank.base import BankAssignment
from thalweg.bank.soft import Prediction, SoftBank, assign_all_models, grow_mix
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats32, Roster, SurveyResponses


class FedRcState(NamedTuple):
    """The server's state."""

    mass: Floats32  # (N, models, C) label mass of each model, as last received


@dataclass(frozen=True)
class FedRc(SoftBank):
    r"""FedRC: each client trains all models, and weights each sample by how well a model fits it.

    Before training, a client computes the responsibility :math:`\gamma` of each model c for each
    of its samples i, and its mixture :math:`\hat\alpha` over the models:

    .. math::
        \gamma_{i;c} = \frac{\hat\alpha_c\, e^{-f_c(i)} / A_{y_i,c}}
                            {\sum_{c'} \hat\alpha_{c'}\, e^{-f_{c'}(i)} / A_{y_i,c'}}, \qquad
        \hat\alpha_c = \mathrm{mean}_i\, \gamma_{i;c}

    It trains model c with the loss :math:`\frac1B \sum_i \gamma_{i;c} f_c(i)` and sends, beside the
    updates, the label mass :math:`b_{c,y} = \sum_{i : y_i = y} \gamma_{i;c}`. The server sums these
    masses over the clients and normalises them to the label priors :math:`A`. The division by
    :math:`A` separates models by concept instead of by label.

    Symbols, FedRC -> here
        :math:`C, f_c(i)`      -> num_models, the cross-entropy of sample i under model c
        :math:`\hat\alpha`     -> `mixtures`; ``prediction="hard"`` uses its largest component only
        :math:`\gamma, A`      -> `theory.responsibilities`, `theory.label_priors`

    Differs from the paper: the sum in the denominator runs over models, as in the proof, where the
    printed formula has clients; a client counts in :math:`A` with its last upload, also in rounds
    in which it does not take part. Model 0 is the initial model of the run, the others are random.

    Two samples with labels 0 and 1, and losses 0.2, 1.5 under model 0 and 1.2, 0.3 under model 1.
    With equal mixture and priors, :math:`\gamma_{0;0} = e^{-0.2} / (e^{-0.2} + e^{-1.2})`:

    >>> from thalweg.theory import responsibilities
    >>> losses = np.array([[0.2, 1.5], [1.2, 0.3]], dtype=np.float32)  # (models, samples)
    >>> gamma = responsibilities(losses, np.array([0, 1]), np.full(2, 0.5), np.full((2, 2), 0.5))
    >>> gamma.round(4).tolist(), gamma.mean(axis=1).round(4).tolist()
    ([[0.7311, 0.2315], [0.2689, 0.7685]], [0.4813, 0.5187])
    """

    has_fixed_models: ClassVar[bool] = True

    num_models: int = 2
    prediction: Prediction = "mixture"
    """Models a client predicts with: all, weighted by its mixture, or the largest alone (hard)."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, num_models="[1, MODELS]")

    @property
    def max_jobs(self) -> int:
        """Every client trains all models."""
        return self.num_models

    def init(self, num_clients: int, num_classes: int) -> FedRcState:
        return FedRcState(np.zeros((num_clients, self.num_models, num_classes), dtype=np.float32))

    def assign(
        self, state: FedRcState, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> BankAssignment:
        learn_since = np.zeros(roster.num_clients, dtype=np.int64)  # all samples
        mix = grow_mix(num_models, self.num_models)
        return assign_all_models(state, roster, mix, 0, learn_since)
