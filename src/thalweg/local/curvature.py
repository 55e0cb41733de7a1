from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thalweg.core.capabilities import ModelProbe
from thalweg.core.claims import Claim, check_vector, first_reason
from thalweg.core.config import check_ranges
from thalweg.core.types import Floats32, Ints
from thalweg.local.base import Batch, Memo, Model
from thalweg.local.cross_entropy import CrossEntropy
from thalweg.local.elastic import subsample_rows

if TYPE_CHECKING:
    from torch import Tensor


class Curvatures(NamedTuple):
    """The newest messages of every client ever heard."""

    senders: Ints  # (S,)
    fisher: Floats32  # (S, P)
    fisher_params: Floats32  # (S, P) fisher times parameters


@dataclass(frozen=True)
class Curvature:
    r"""FedCurv: stay where the other clients' losses are low, to second order.

    .. math::
        F_j(w) + \lambda \Big[ \sum_i P_i w_i^2 - 2 \sum_i Q_i w_i \Big], \qquad
        P = \sum_{k \ne j} \Phi_k, \quad Q = \sum_{k \ne j} \Phi_k \circ w_k

    which is :math:`\lambda \sum_{k \ne j} (w - w_k)^\top \mathrm{diag}(\Phi_k) (w - w_k)` up to a constant. Each
    client sends the diagonal of its empirical Fisher information at its new parameters, and its product with
    them; the server keeps the newest of everybody. Before anybody has spoken there is no pull.

    Symbols, Shoham et al. 2019 -> here
        :math:`\lambda`  -> strength
        P, Q             -> memo["others_fisher"], memo["others_pulled"]

    The strength grows with the number of clients heard, as in the paper; `normalise_by_clients` divides by it.
    """

    strength: float = 0.01
    fisher_samples: int = 64
    normalise_by_clients: bool = False

    def __post_init__(self) -> None:
        check_ranges(self, strength="[0, inf)", fisher_samples="[1, inf)")

    # --- at the client ---

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        fit = CrossEntropy().loss(model, params, batch, memo)
        if "others_fisher" not in memo:
            return fit
        pull = memo["others_fisher"] * params * params - 2 * memo["others_fisher_params"] * params
        return fit + self.strength * pull.sum(1)

    def upload(self, look: ModelProbe, rows: Ints) -> Mapping[str, Floats32]:
        params = look.params()
        if len(rows) == 0:
            return {"fisher": np.zeros_like(params), "fisher_params": np.zeros_like(params)}
        fisher = look.squared_gradients(subsample_rows(rows, self.fisher_samples))
        return {"fisher": fisher, "fisher_params": fisher * params}

    # --- at the server ---

    def init_server(self, num_clients: int, num_params: int) -> Curvatures:
        nothing = np.empty((0, num_params), dtype=np.float32)
        return Curvatures(np.empty(0, dtype=np.int64), nothing, nothing)

    def broadcast(self, notes: Curvatures, clients: Ints) -> Mapping[str, Floats32]:
        if not len(notes.senders):
            return {}
        return {
            "others_fisher": self._without_own(notes.senders, notes.fisher, clients),
            "others_fisher_params": self._without_own(notes.senders, notes.fisher_params, clients),
        }

    def validate_claim(self, claim: Claim) -> str | None:
        """Squares are not negative: a negative one would push everybody away without end."""
        return first_reason(
            check_vector(claim.uploads, "fisher", claim.num_params, least=0),
            check_vector(claim.uploads, "fisher_params", claim.num_params),
        )

    def collect(
        self, notes: Curvatures, clients: Ints, uploads: Mapping[str, Floats32]
    ) -> Curvatures:
        stays = ~np.isin(notes.senders, clients)
        senders = np.concatenate([notes.senders[stays], clients])
        order = np.argsort(senders)
        return Curvatures(
            senders[order],
            np.concatenate([notes.fisher[stays], uploads["fisher"]])[order],
            np.concatenate([notes.fisher_params[stays], uploads["fisher_params"]])[order],
        )

    def _without_own(self, senders: Ints, messages: Floats32, clients: Ints) -> Floats32:
        """(K, P) sum over everybody else, for each client."""
        total = messages.sum(0, dtype=np.float64)
        rows = np.tile(total, (len(clients), 1))
        for k, client in enumerate(clients):
            own = messages[senders == client]
            rows[k] -= own.sum(0, dtype=np.float64)
            if self.normalise_by_clients:
                rows[k] /= max(len(senders) - len(own), 1)
        return rows.astype(np.float32)
