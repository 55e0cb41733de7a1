"""A client at the other end of a network: bytes come in, bytes go out, and what it remembers is bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from thalweg.core.errors import BadMessage, RunError
from thalweg.core.trees import restore_types, tree_from_bytes, tree_to_bytes
from thalweg.engine.node import Node
from thalweg.federation import ClientState, MaskRequest, Request, TrainRequest, TrainResponse
from thalweg.network.wire import MessageSchema, read_request, to_bytes


class NodeState(NamedTuple):
    """All that a device must keep between messages."""

    last_round: int  # the last round it took part in; -1: none yet
    client: Any  # ClientState
    masks: Any = None  # MaskState, if the recipe masks updates


@dataclass(frozen=True, eq=False)
class RemoteNode:
    """A node behind bytes. A message that is refused, by an exception, has changed nothing."""

    node: Node
    terms: MessageSchema

    def new_client(self) -> NodeState:
        return self._state_template()._replace(client=self.node.new_client())

    def hello(self) -> bytes:
        """What it says when it joins."""
        return to_bytes(self.node.hello(), self.terms)

    def handle(self, state: NodeState, payload: bytes) -> tuple[NodeState, bytes]:
        """Carry out an order or answer a question. Keep the new state before the bytes are sent."""
        return self.execute(state, self.read_request(payload))

    def read_request(self, payload: bytes) -> Request:
        """What is asked of it; refuses what is not an errand at all."""
        return read_request(payload, self.terms)

    def execute(self, state: NodeState, errand: Request) -> tuple[NodeState, bytes]:
        """As `handle`, of an errand that was read."""
        self._check_recipient(errand, state)
        if isinstance(errand, MaskRequest):
            return self._answer_mask_request(state, errand)
        if isinstance(errand, TrainRequest):
            client, reply = self.node.train(state.client, errand)
            last_round = state.last_round if errand.probe_round else errand.rnd
            masks, reply = self._mask_response(state, errand, reply)
            after = NodeState(last_round, client, masks)
            return after, to_bytes(reply, self.terms)
        client, answer = self.node.answer_survey(state.client, errand)
        return state._replace(client=client), to_bytes(answer, self.terms)

    def _answer_mask_request(self, state: NodeState, call: MaskRequest) -> tuple[NodeState, bytes]:
        """What a masked sum needs of this client."""
        from thalweg.network.secure_aggregation.client import answer_mask_request

        assert self.terms.recipe.secure_aggregation is not None  # or there are no calls
        masks, token = answer_mask_request(call, state.masks, self.terms.recipe.secure_aggregation)
        return state._replace(masks=masks), to_bytes(token, self.terms)

    def _mask_response(
        self, state: NodeState, order: TrainRequest, reply: TrainResponse
    ) -> tuple[Any, TrainResponse]:
        """The reply, if the recipe wants it under masks, and what is to be remembered of them."""
        recipe = self.terms.recipe
        if recipe.secure_aggregation is None:
            return None, reply
        from thalweg.network.secure_aggregation.client import mask_update

        return mask_update(reply, order, state.masks, recipe.secure_aggregation, recipe)

    def serialize_state(self, state: NodeState) -> bytes:
        return tree_to_bytes(state)

    def restore_state(self, payload: bytes) -> NodeState:
        """The state that `stored` was given, to the bit."""
        try:
            state = restore_types(self._state_template(), tree_from_bytes(payload))
            client = self.node.clients.restore_client(
                self.node.client, getattr(state, "client", None)
            )
            if isinstance(state, NodeState) and isinstance(client, ClientState):
                return state._replace(client=client)
            reason = "it has not the form of a state."
        except (BadMessage, RunError, TypeError) as error:
            reason = str(error)
        raise RunError(
            f"the stored state of client {self.node.client} is damaged, or of another recipe: {reason}"
        )

    def _state_template(self) -> NodeState:
        """A state without a client."""
        if self.terms.recipe.secure_aggregation is None:
            return NodeState(-1, None)
        from thalweg.network.secure_aggregation.client import (
            new_mask_state,  # needs a package that not everybody has
        )

        return NodeState(-1, None, new_mask_state())

    def _check_recipient(self, message: Request, state: NodeState) -> None:
        if message.client != self.node.client:
            raise BadMessage(
                f"this is client {self.node.client}, but the message is for {message.client}."
            )
        # A second delivery would move the stream twice, and an old one back in time.
        over = state.last_round - (isinstance(message, MaskRequest) and message.step == "open")
        if message.rnd <= over:
            raise BadMessage(
                f"round {message.rnd + 1} is over for client {self.node.client}, which has taken part "
                f"in round {state.last_round + 1}; the message came twice, or too late."
            )
