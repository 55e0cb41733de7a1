from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from thalweg.core.capabilities import ModelProbe
from thalweg.core.claims import Claim, check_vector
from thalweg.core.config import check_literals
from thalweg.core.types import Floats32, Ints
from thalweg.local.base import Batch, Memo, Model, TrainingSummary
from thalweg.local.cross_entropy import CrossEntropy

if TYPE_CHECKING:
    from torch import Tensor


class ClientVariate(NamedTuple):
    """What a client takes for its own gradient."""

    values: Floats32  # (P,) zero before its first round in a session


class ServerVariate(NamedTuple):
    """What the server takes for everybody's gradient."""

    values: Floats32  # (P,) zero as a session begins
    num_members: int  # clients that it is a mean over, whether they have taken part yet or not


@dataclass(frozen=True)
class Scaffold:
    r"""SCAFFOLD: every step is corrected by how a client's gradient differs from everybody's.

    .. math::
        y \leftarrow y - \eta (g - c_i + c), \qquad
        c_i^+ = c_i - c + \frac{x - y}{K \eta}, \qquad
        c \leftarrow c + \frac{|S|}{N} \operatorname{mean}_{i \in S} (c_i^+ - c_i)

    The correction is the gradient of :math:`\langle c - c_i, y - x \rangle`, which is added to the
    cross-entropy.

    Symbols, Karimireddy et al. 2020 -> here
        x, y           -> memo["start"], params
        :math:`c_i`    -> memo["own"], kept at the client
        c              -> memo["common"], told by the server
        K              -> `effective_steps(num_steps, momentum)`
        S, N           -> the clients heard in a round, members of the session (all clients without sessions)

    Both variates are zero as a session begins. A client that takes part for the first time in mid-session starts
    at zero, as those before it did. One that took no step keeps what it has and says that nothing changed. If the
    message of a client is lost, c lacks that change for good.

    ``as_released`` is what the code of the study of clients that come and go does: the steps are not corrected,
    and K is the number of steps whatever the momentum, so that the variates are kept but do nothing. Its server
    also multiplies the mean update by the clients' learning rate: ``--set server.lr=0.03``.
    """

    variant: Literal["true", "as_released"] = "true"

    def __post_init__(self) -> None:
        check_literals(self)

    # --- at the client ---

    @property
    def per_session(self) -> bool:
        return True

    def init(self, num_params: int) -> ClientVariate:
        return ClientVariate(np.zeros(num_params, dtype=np.float32))

    def start_tick(
        self, state: ClientVariate, look: ModelProbe, rows: Ints, changed: bool
    ) -> ClientVariate:
        return state

    def memo(self, state: ClientVariate, start: Floats32) -> dict[str, Floats32]:
        return {"own": state.values}

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        fit = CrossEntropy().loss(model, params, batch, memo)
        if self.variant == "as_released":
            return fit
        correction = memo["common"] - memo["own"]
        return fit + (correction * (params - memo["start"])).sum(1)

    def finish_round(
        self, state: ClientVariate, broadcast: Mapping[str, Floats32], summary: TrainingSummary
    ) -> tuple[ClientVariate, dict[str, Floats32]]:
        momentum = summary.momentum if self.variant == "true" else 0.0
        travelled = effective_steps(summary.num_steps, momentum) * summary.lr
        if travelled == 0:  # no step, or steps of no length
            return state, {"change": np.zeros_like(state.values)}
        slope = (summary.start.astype(np.float64) - summary.params) / travelled
        change = (slope - broadcast["common"]).astype(np.float32)
        return ClientVariate(state.values + change), {"change": change}

    # --- at the server ---

    def init_server(self, num_clients: int, num_params: int) -> ServerVariate:
        return ServerVariate(np.zeros(num_params, dtype=np.float32), num_clients)

    def start_session(self, notes: ServerVariate, last: Floats32, members: Ints) -> ServerVariate:
        return ServerVariate(np.zeros_like(notes.values), len(members))

    def broadcast(self, notes: ServerVariate, clients: Ints) -> dict[str, Floats32]:
        return {"common": np.broadcast_to(notes.values, (len(clients), len(notes.values)))}

    def validate_claim(self, claim: Claim) -> str | None:
        return check_vector(claim.uploads, "change", claim.num_params)

    def collect(
        self, notes: ServerVariate, clients: Ints, uploads: Mapping[str, Floats32]
    ) -> ServerVariate:
        change = uploads["change"].sum(0, dtype=np.float64) / max(notes.num_members, 1)
        return notes._replace(values=(notes.values + change).astype(np.float32))


def effective_steps(num_steps: int, momentum: float) -> float:
    r"""How many plain steps of a constant gradient lead as far as `num_steps` with momentum.

    .. math::  \Big( K - \rho \frac{1 - \rho^K}{1 - \rho} \Big) \Big/ (1 - \rho)

    The velocity starts at zero. With it the mean gradient of a round is still
    :math:`(x - y) / (K' \eta)` if gradients hardly change.

    >>> round(effective_steps(5, 0.9), 4), effective_steps(5, 0.0)
    (13.1441, 5.0)
    """
    slow = 1 - momentum
    return (num_steps - momentum * (1 - momentum**num_steps) / slow) / slow
