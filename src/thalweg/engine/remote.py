"""A client at the other end of a network: bytes come in, bytes go out, and what it remembers is bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from thalweg.core.errors import BadMessage, RunError
from thalweg.core.trees import like, tree_from_bytes, tree_to_bytes
from thalweg.engine.node import Node
from thalweg.recipes.client import ClientState
from thalweg.recipes.messages import Call, Errand, Order, Reply
from thalweg.recipes.wire import Terms, errand_from, to_bytes


class NodeState(NamedTuple):
    """All that a device must keep between messages."""

    trained: int  # the last round it took part in; -1: none yet
    client: Any  # ClientState
    masks: Any = None  # MaskState, if the recipe masks updates


@dataclass(frozen=True, eq=False)
class RemoteNode:
    """A node behind bytes. A message that is refused, by an exception, has changed nothing."""

    node: Node
    terms: Terms

    def newborn(self) -> NodeState:
        return self._form()._replace(client=self.node.newborn())

    def hello(self) -> bytes:
        """What it says when it joins."""
        return to_bytes(self.node.hello(), self.terms)

    def handle(self, state: NodeState, payload: bytes) -> tuple[NodeState, bytes]:
        """Carry out an order or answer a question. Keep the new state before the bytes are sent."""
        return self.carry_out(state, self.read(payload))

    def read(self, payload: bytes) -> Errand:
        """What is asked of it; refuses what is not an errand at all."""
        return errand_from(payload, self.terms)

    def carry_out(self, state: NodeState, errand: Errand) -> tuple[NodeState, bytes]:
        """As `handle`, of an errand that was read."""
        self._check_is_for_us(errand, state)
        if isinstance(errand, Call):
            return self._give(state, errand)
        if isinstance(errand, Order):
            client, reply = self.node.train(state.client, errand)
            trained = state.trained if errand.rehearsal else errand.rnd
            masks, reply = self._masked(state, errand, reply)
            after = NodeState(trained, client, masks)
            return after, to_bytes(reply, self.terms)
        client, answer = self.node.answer(state.client, errand)
        return state._replace(client=client), to_bytes(answer, self.terms)

    def _give(self, state: NodeState, call: Call) -> tuple[NodeState, bytes]:
        """What a masked sum needs of this client."""
        from thalweg.recipes.masks import given

        assert self.terms.recipe.secrecy is not None  # or there are no calls
        masks, token = given(call, state.masks, self.terms.recipe.secrecy)
        return state._replace(masks=masks), to_bytes(token, self.terms)

    def _masked(self, state: NodeState, order: Order, reply: Reply) -> tuple[Any, Reply]:
        """The reply, if the recipe wants it under masks, and what is to be remembered of them."""
        recipe = self.terms.recipe
        if recipe.secrecy is None:
            return None, reply
        from thalweg.recipes.masks import masked_reply

        return masked_reply(reply, order, state.masks, recipe.secrecy, recipe)

    def stored(self, state: NodeState) -> bytes:
        return tree_to_bytes(state)

    def restored(self, payload: bytes) -> NodeState:
        """The state that `stored` was given, to the bit."""
        try:
            state = like(self._form(), tree_from_bytes(payload))
            client = self.node.clients.revived(self.node.client, getattr(state, "client", None))
            if isinstance(state, NodeState) and isinstance(client, ClientState):
                return state._replace(client=client)
            reason = "it has not the form of a state."
        except (BadMessage, TypeError) as error:
            reason = str(error)
        raise RunError(
            f"the stored state of client {self.node.client} is damaged, or of another recipe: {reason}"
        )

    def _form(self) -> NodeState:
        """A state without a client."""
        if self.terms.recipe.secrecy is None:
            return NodeState(-1, None)
        from thalweg.recipes.masks import new_mask_state  # needs a package that not everybody has

        return NodeState(-1, None, new_mask_state())

    def _check_is_for_us(self, message: Errand, state: NodeState) -> None:
        if message.client != self.node.client:
            raise BadMessage(
                f"this is client {self.node.client}, but the message is for {message.client}."
            )
        # A second delivery would move the stream twice, and an old one back in time.
        over = state.trained - (isinstance(message, Call) and message.step == "open")
        if message.rnd <= over:
            raise BadMessage(
                f"round {message.rnd + 1} is over for client {self.node.client}, which has taken part "
                f"in round {state.trained + 1}; the message came twice, or too late."
            )
