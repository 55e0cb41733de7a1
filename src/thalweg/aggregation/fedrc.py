from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.aggregation.bank import Arranged
from thalweg.aggregation.soft import Prediction, SoftBank, all_models, grown
from thalweg.core.config import check_ranges, check_words
from thalweg.core.types import Answers, Floats32, Roster


class Explained(NamedTuple):
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
        check_words(self)
        check_ranges(self, num_models="[1, inf)")

    def init(self, num_clients: int, num_classes: int) -> Explained:
        return Explained(np.zeros((num_clients, self.num_models, num_classes), dtype=np.float32))

    def arrange(
        self, notes: Explained, roster: Roster, answers: Answers, num_models: int
    ) -> Arranged:
        everything = np.zeros(roster.num_clients, dtype=np.int64)
        return all_models(notes, roster, grown(num_models, self.num_models), 0, everything)
