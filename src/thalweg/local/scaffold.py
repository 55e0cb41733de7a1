from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from thalweg.core.capabilities import ModelProbe
from thalweg.core.claims import Claim, Delivery, check_names, check_vector, first_reason
from thalweg.core.config import check_literals
from thalweg.core.types import Floats32, Ints
from thalweg.local.base import TrainingSummary
from thalweg.local.quadratic import Quadratic, QuadraticObjective


class ClientVariate(NamedTuple):
    """The client's estimate of its own gradient (control variate)."""

    values: Floats32  # (P,) zero before its first round in a session


class ServerVariate(NamedTuple):
    """The server's estimate of the mean gradient of all clients (control variate)."""

    values: Floats32  # (P,) zero when a session starts
    num_members: int  # clients in the mean, whether or not they have taken part yet


@dataclass(frozen=True)
class Scaffold(QuadraticObjective):
    r"""SCAFFOLD: correct local steps by the difference between global and client gradient.

    .. math::
        y \leftarrow y - \eta (g - c_i + c), \qquad
        c_i^+ = c_i - c + \frac{x - y}{K \eta}, \qquad
        c \leftarrow c + \frac{|S|}{N} \operatorname{mean}_{i \in S} (c_i^+ - c_i)

    The correction is the gradient of :math:`\langle c - c_i, y - x \rangle`, which is added to the
    cross-entropy.

    Symbols, Karimireddy et al. (2020) -> here
        x, y           -> memo["start"], params
        :math:`c_i`    -> memo["own"], kept at the client
        c              -> memo["common"], broadcast by the server
        K              -> `effective_steps(num_steps, momentum)`
        S              -> clients whose uploads arrived in the round
        N              -> members of the session (all clients without sessions)

    Both variates are zero when a session starts. A client that takes part for the first time in
    mid-session starts at zero. A client without a step keeps its variate and uploads a change of
    zero. If an upload is lost, c lacks that change for good.

    Differs from the paper: momentum is allowed, by way of K. The variant ``as_released`` is the
    code of the warm-start study of clients that come and go: steps are not corrected, and K is the
    number of steps whatever the momentum, so that the variates have no effect. Its server also
    multiplies the mean update by the clients' learning rate: ``--set server.lr=0.03``.

    Two steps of length 0.1 from 1 to 0.8: the mean gradient was 1. With :math:`c_i = 0` and c =
    0.5 the new variate is 0 - 0.5 + 1:

    >>> start, end = np.array([1.0], dtype=np.float32), np.array([0.8], dtype=np.float32)
    >>> summary = TrainingSummary(start, end, num_steps=2, lr=0.1, momentum=0.0)
    >>> objective, broadcast = Scaffold(), {"common": np.array([0.5], dtype=np.float32)}
    >>> state, uploads = objective.finish_round(objective.init(1), broadcast, summary)
    >>> round(float(state.values[0]), 4), round(float(uploads["change"][0]), 4)
    (0.5, 0.5)
    """

    needs_single_model = True
    needs_sgd = True

    variant: Literal["true", "as_released"] = "true"

    def __post_init__(self) -> None:
        check_literals(self)

    # --- client ---

    @property
    def per_session(self) -> bool:
        return True

    def init(self, num_params: int) -> ClientVariate:
        return ClientVariate(np.zeros(num_params, dtype=np.float32))

    def start_tick(
        self, state: ClientVariate, probe: ModelProbe, rows: Ints, changed: bool
    ) -> ClientVariate:
        return state

    def memo(self, state: ClientVariate, start: Floats32) -> dict[str, Floats32]:
        return {"own": state.values}

    def penalty(self, memo: Mapping[str, Any]) -> Quadratic | None:
        if self.variant == "as_released":
            return None
        return Quadratic(centre=memo["start"], slope=memo["common"] - memo["own"])

    def finish_round(
        self, state: ClientVariate, broadcast: Mapping[str, Floats32], summary: TrainingSummary
    ) -> tuple[ClientVariate, dict[str, Floats32]]:
        momentum = summary.momentum if self.variant == "true" else 0.0
        distance = effective_steps(summary.num_steps, momentum) * summary.lr
        if distance == 0:  # no step, or a learning rate of 0
            return state, {"change": np.zeros_like(state.values)}
        gradient = (summary.start.astype(np.float64) - summary.params) / distance
        change = (gradient - broadcast["common"]).astype(np.float32)
        return ClientVariate(state.values + change), {"change": change}

    def validate_delivery(self, delivery: Delivery) -> str | None:
        return check_vector(delivery.values, "common", delivery.num_params)

    # --- server ---

    def init_server(self, num_clients: int, num_params: int) -> ServerVariate:
        return ServerVariate(np.zeros(num_params, dtype=np.float32), num_clients)

    def start_session(self, state: ServerVariate, last: Floats32, members: Ints) -> ServerVariate:
        return ServerVariate(np.zeros_like(state.values), len(members))

    def broadcast(self, state: ServerVariate, clients: Ints) -> dict[str, Floats32]:
        return {"common": np.broadcast_to(state.values, (len(clients), len(state.values)))}

    def validate_claim(self, claim: Claim) -> str | None:
        return first_reason(
            check_names(claim.uploads, "change"),
            check_vector(claim.uploads, "change", claim.num_params),
        )

    def collect(
        self, state: ServerVariate, clients: Ints, uploads: Mapping[str, Floats32]
    ) -> ServerVariate:
        change = uploads["change"].sum(0, dtype=np.float64) / max(state.num_members, 1)
        return state._replace(values=(state.values + change).astype(np.float32))


def effective_steps(num_steps: int, momentum: float) -> float:
    r"""Return the number of plain steps that move as far as `num_steps` steps with momentum.

    .. math::  \Big( K - \rho \frac{1 - \rho^K}{1 - \rho} \Big) \Big/ (1 - \rho)

    for a constant gradient and a velocity that starts at zero. With this number, K', the mean
    gradient of a round is still :math:`(x - y) / (K' \eta)` if gradients hardly change.

    >>> round(effective_steps(5, 0.9), 4), effective_steps(5, 0.0)
    (13.1441, 5.0)
    """
    rest = 1 - momentum
    return (num_steps - momentum * (1 - momentum**num_steps) / rest) / rest
