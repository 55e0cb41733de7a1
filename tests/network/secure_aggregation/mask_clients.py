"""Clients of secure aggregation in one process, for a server that the test plays itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from thalweg.aggregation import Masked
from thalweg.core.types import Ints
from thalweg.federation import Octets, TrainRequest, TrainResponse
from thalweg.network.secure_aggregation.client import (
    RECEIVED,
    MaskIdentity,
    answer_mask_request,
    check_mask_group,
    mask_update,
    new_mask_state,
)
from thalweg.network.secure_aggregation.keys import KEY_FIELDS, encode_weights
from thalweg.network.wire import MaskRequest, MaskResponse, MaskStep
from thalweg.recipes import fedavg

RULE = Masked()
RECIPE = replace(fedavg(), secure_aggregation=RULE)
RUN = "run"
UPDATE = np.array([0.5, -1.0, 0.25], dtype=np.float32)


def make_train_request(client: int, rnd: int = 0, lr_scale: float = 1.0) -> TrainRequest:
    zero, params = np.zeros(1, dtype=np.int64), np.zeros((1, 3), dtype=np.float32)
    return TrainRequest(rnd, client, zero, np.full(1, lr_scale), params)


def make_response(
    client: int, update: np.ndarray = UPDATE, steps: int = 2, rnd: int = 0
) -> TrainResponse:
    zero, num_steps = np.zeros(1, dtype=np.int64), np.array([steps])
    return TrainResponse(rnd, client, zero, update[None], 7, num_steps, np.ones(1), zero, zero)


def to_column(numbers: list[int]) -> Octets:
    return np.array(numbers, dtype=np.uint8)[:, None]


class MaskClients:
    """Clients 0 to n-1, with the messages that they have sent in a round."""

    def __init__(
        self,
        number: int = 4,
        rnd: int = 0,
        identities: Mapping[int, MaskIdentity] | None = None,
    ) -> None:
        self.rnd, self.members = rnd, np.arange(number)
        self.states = {client: new_mask_state() for client in range(number)}
        self.identities = {client: MaskIdentity(RUN) for client in range(number)}
        self.identities |= dict(identities or {})
        self.encrypted: dict[int, Octets] = {}
        self.signatures: dict[int, Octets] = {}

    def answer(self, request: MaskRequest) -> MaskResponse:
        """Pass a request to its client; the state changes unless the client rejects it."""
        client = request.client
        self.states[client], response = answer_mask_request(
            request, self.states[client], RULE, self.identities[client]
        )
        return response

    def ask(
        self, client: int, step: MaskStep, members: Ints | None = None, **values: Octets
    ) -> MaskResponse:
        members = self.members if members is None else members
        return self.answer(MaskRequest(self.rnd, client, step, members, values=values))

    def exchange_keys(self) -> dict[str, Octets]:
        """Let all clients send their keys; return these as one table."""
        responses = [self.ask(client, "keys") for client in self.states]
        self.keys = {
            name: np.concatenate([response.values[name] for response in responses])
            for name in (*KEY_FIELDS, "signatures")
        }
        return self.keys

    def exchange_shares(self) -> None:
        for client in self.states:
            response = self.ask(client, "shares", **self.keys)
            self.encrypted[client] = response.values["encrypted_shares"]

    def prepare(self) -> MaskClients:
        """Exchange keys and shares."""
        self.exchange_keys()
        self.exchange_shares()
        return self

    def send_update(
        self,
        client: int,
        request: TrainRequest | None = None,
        response: TrainResponse | None = None,
    ) -> TrainResponse:
        request = request or make_train_request(client, self.rnd)
        if request.mask_group is None:
            request = replace(request, mask_group=self.members)
        state, identity = self.states[client], self.identities[client]
        check_mask_group(request, state, RULE, identity)
        response = response or make_response(client, rnd=self.rnd)
        self.states[client], masked = mask_update(response, request, state, RULE, RECIPE)
        return masked

    def sign(
        self, client: int, statuses: list[int] | None = None, weights: list[int] | None = None
    ) -> None:
        number = len(self.members)
        self.signatures[client] = self.ask(
            client,
            "sign",
            statuses=to_column(statuses or [RECEIVED] * number),
            weights=encode_weights(np.array(weights or [1] * number)),
        ).values["signatures"][0]

    def open(self, client: int, **changes: Octets) -> Octets:
        """Let a client reveal its shares, with the signatures so far."""
        none = np.zeros(96, dtype=np.uint8)
        values = {
            "signatures": np.stack(
                [self.signatures.get(member, none) for member in self.members.tolist()]
            ),
            "encrypted_shares": np.stack(
                [self.encrypted[member][client] for member in self.members.tolist()]
            ),
        }
        return self.ask(client, "open", **{**values, **changes}).values["shares"]
