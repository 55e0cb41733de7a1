from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.bank.base import BankAssignment
from thalweg.bank.soft import Prediction, SoftBank, assign_all_models, grow_mix
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats32, Roster, SurveyResponses


class FedRcState(NamedTuple):
    """What the server knows of the clients' labels."""

    mass: Floats32  # (N, models, C) what each model explains of them, as last heard


@dataclass(frozen=True)
class FedRc(SoftBank):
    r"""FedRC: every client trains all models, each on the samples that it explains better than others do.

    Before it trains, a client computes

    .. math::
        \gamma_{i;c} \propto \hat\alpha_c\, e^{-f_c(i)} / A_{y_i,c}, \qquad
        \hat\alpha_c = \mathrm{mean}_i\, \gamma_{i;c}

    learns with loss :math:`\frac1B \sum_i \gamma_{i;c} f_c(i)` and sends, beside the updates, how much of each
    label each model explains; the server adds these up to :math:`A`. Dividing by :math:`A` is what makes models
    differ by concept and not by label.

    Symbols, FedRC -> here
        :math:`C`              -> num_models
        :math:`\hat\alpha`     -> `mixtures`; `prediction` "hard" uses the largest part alone
        :math:`\gamma, A`      -> `theory.responsibilities`, `theory.label_priors`

    The first model is the one that the run begins with, the others are drawn when it begins.
    """

    num_models: int = 2
    prediction: Prediction = "mixture"

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, num_models="[1, inf)")

    def init(self, num_clients: int, num_classes: int) -> FedRcState:
        return FedRcState(np.zeros((num_clients, self.num_models, num_classes), dtype=np.float32))

    def assign(
        self, notes: FedRcState, roster: Roster, answers: SurveyResponses, num_models: int
    ) -> BankAssignment:
        everything = np.zeros(roster.num_clients, dtype=np.int64)
        return assign_all_models(
            notes, roster, grow_mix(num_models, self.num_models), 0, everything
        )
