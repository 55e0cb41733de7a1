from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.capabilities import ModelProbe
from thalweg.core.claims import Claim, Delivery, check_names, check_vector, first_reason
from thalweg.core.config import check_ranges
from thalweg.core.types import Floats32, Ints
from thalweg.local.elastic import subsample_rows
from thalweg.local.quadratic import Quadratic, QuadraticObjective


class Curvatures(NamedTuple):
    """The last uploads of all clients that have taken part."""

    senders: Ints  # (S,)
    fisher: Floats32  # (S, P)
    fisher_params: Floats32  # (S, P) fisher times parameters


@dataclass(frozen=True)
class Curvature(QuadraticObjective):
    r"""FedCurv: penalise moving parameters that matter to other clients.

    .. math::
        F_j(w) + \lambda \Big[ \sum_i P_i w_i^2 - 2 \sum_i Q_i w_i \Big], \qquad
        P = \sum_{k \ne j} \Phi_k, \quad Q = \sum_{k \ne j} \Phi_k \circ w_k

    which is :math:`\lambda \sum_{k \ne j} (w - w_k)^\top \mathrm{diag}(\Phi_k) (w - w_k)` up to a
    constant. Each client uploads the diagonal of its empirical Fisher information at its new
    parameters, and its product with them; the server keeps the last upload of every client. Before
    the first upload there is no penalty.

    Symbols, Shoham et al. (2019) -> here
        :math:`\lambda`      -> strength
        :math:`\Phi_k`       -> the upload "fisher"
        P, Q                 -> memo["others_fisher"], memo["others_fisher_params"]

    As in the paper the penalty grows with the number of clients; `normalise_by_clients` divides by
    it.

    Client 0 at (0.5, 0.5), where the model is undecided between two classes. With
    :math:`\Phi_1 = (3, 0)` at (0, 2) and :math:`\Phi_2 = (0.5, 0.5)` at (2, -1): P = (3.5, 0.5), Q
    = (1, -0.5), and the loss is log 2 + 0.01 (1 - 0.5) = 0.698147.

    >>> import torch
    >>> model = lambda params, x: torch.zeros(1, 1, 2)
    >>> from thalweg.local import Batch
    >>> batch = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))
    >>> memo = {
    ...     "others_fisher": torch.tensor([[3.5, 0.5]]),
    ...     "others_fisher_params": torch.tensor([[1.0, -0.5]]),
    ... }
    >>> loss = Curvature(strength=0.01).loss(model, torch.tensor([[0.5, 0.5]]), batch, memo)
    >>> round(loss.item(), 5)
    0.69815
    """

    needs_single_model = False

    strength: float = 0.01
    fisher_samples: int = 64
    """Largest number of samples for the Fisher information."""
    normalise_by_clients: bool = False
    """Use the mean over the other clients instead of the sum."""

    def __post_init__(self) -> None:
        check_ranges(self, strength="[0, inf)", fisher_samples="[1, inf)")

    # --- client ---

    def penalty(self, memo: Mapping[str, Any]) -> Quadratic | None:
        if "others_fisher" not in memo:
            return None
        scale = 2 * self.strength
        slope = memo["others_fisher_params"] * -scale
        return Quadratic(scale=scale, curvature=memo["others_fisher"], slope=slope)

    def upload(self, probe: ModelProbe, rows: Ints) -> Mapping[str, Floats32]:
        params = probe.params()
        if len(rows) == 0:
            return {"fisher": np.zeros_like(params), "fisher_params": np.zeros_like(params)}
        fisher = probe.squared_gradients(subsample_rows(rows, self.fisher_samples))
        return {"fisher": fisher, "fisher_params": fisher * params}

    def validate_delivery(self, delivery: Delivery) -> str | None:
        """Accept both vectors, or none in the first round."""
        if not delivery.values:
            return None
        names = ("others_fisher", "others_fisher_params")
        reasons = (check_vector(delivery.values, name, delivery.num_params) for name in names)
        return first_reason(*reasons)

    # --- server ---

    def init_server(self, num_clients: int, num_params: int) -> Curvatures:
        nothing = np.empty((0, num_params), dtype=np.float32)
        return Curvatures(np.empty(0, dtype=np.int64), nothing, nothing)

    def broadcast(self, state: Curvatures, clients: Ints) -> Mapping[str, Floats32]:
        if not len(state.senders):
            return {}
        return {
            "others_fisher": self._without_own(state.senders, state.fisher, clients),
            "others_fisher_params": self._without_own(state.senders, state.fisher_params, clients),
        }

    def validate_claim(self, claim: Claim) -> str | None:
        """Reject negative Fisher information, which would push other clients away without bound."""
        return first_reason(
            check_names(claim.uploads, "fisher", "fisher_params"),
            check_vector(claim.uploads, "fisher", claim.num_params, least=0),
            check_vector(claim.uploads, "fisher_params", claim.num_params),
        )

    def collect(
        self, state: Curvatures, clients: Ints, uploads: Mapping[str, Floats32]
    ) -> Curvatures:
        stays = ~np.isin(state.senders, clients)
        senders = np.concatenate([state.senders[stays], clients])
        order = np.argsort(senders)
        return Curvatures(
            senders[order],
            np.concatenate([state.fisher[stays], uploads["fisher"]])[order],
            np.concatenate([state.fisher_params[stays], uploads["fisher_params"]])[order],
        )

    def _without_own(self, senders: Ints, messages: Floats32, clients: Ints) -> Floats32:
        """Return (K, P) for each client the sum of the messages of all others."""
        total = messages.sum(0, dtype=np.float64)
        rows = np.tile(total, (len(clients), 1))
        for k, client in enumerate(clients):
            own = messages[senders == client]
            rows[k] -= own.sum(0, dtype=np.float64)
            if self.normalise_by_clients:
                rows[k] /= max(len(senders) - len(own), 1)
        return rows.astype(np.float32)
