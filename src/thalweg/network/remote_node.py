"""A client on a network: decodes requests, executes them, and encodes responses and its state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from thalweg.core.claims import Delivery, ValidatesDelivery
from thalweg.core.errors import BadMessage, RunError
from thalweg.core.trees import restore_types, tree_from_bytes, tree_to_bytes
from thalweg.engine.node import Node, PredictionTotals
from thalweg.federation import ClientState, SurveyRequest, TrainRequest, TrainResponse
from thalweg.network.rejections import Rejected, RejectionCode
from thalweg.network.wire import MaskRequest, MessageSchema, Request, read_request, to_bytes
from thalweg.recipes.base import find_max_probe_rounds
from thalweg.recipes.disclosure import list_exact_parts

MAX_MISSED_TICKS = 100_000  # that a client collects in one request; about 10 s


class NodeState(NamedTuple):
    """What a device must store between messages."""

    last_round: int  # last round that the client took part in; -1: none yet
    client: Any  # ClientState
    masks: Any = None  # MaskState, if the recipe masks updates


@dataclass(frozen=True, eq=False)
class RemoteNode:
    """A `Node` whose requests and responses are bytes.

    A message that is rejected with an exception leaves the state unchanged.
    """

    node: Node
    schema: MessageSchema
    mask_identity: Any = None  # MaskIdentity; None: of a client without a run and without limits
    charge: Callable[[Request], None] = lambda request: None
    """Charges a privacy account for the response to a request, or rejects the request."""

    def new_client(self) -> NodeState:
        return self._state_template()._replace(client=self.node.new_client())

    def hello(self) -> bytes:
        """The encoded `Hello` of this client.

        If the recipe hides everything else that a client sends, the amount of data is 0: unknown.
        """
        hello = self.node.hello()
        if not list_exact_parts(self.schema.recipe):
            unknown = hello.supply._replace(total=0.0, is_historical=False)
            hello = replace(hello, supply=unknown)
        return to_bytes(hello, self.schema)

    def handle(self, state: NodeState, payload: bytes) -> tuple[NodeState, bytes]:
        """Execute an encoded request; return the new state and the encoded response.

        Store the state before sending the response.
        """
        return self.execute(state, self.read_request(payload))

    def read_request(self, payload: bytes) -> Request:
        """Decode and validate a request."""
        return read_request(payload, self.schema)

    def execute(
        self, state: NodeState, request: Request, earlier: PredictionTotals | None = None
    ) -> tuple[NodeState, bytes]:
        """Execute a decoded request; see `handle` and `Node.train`."""
        self._check_recipient(request, state)
        if isinstance(request, MaskRequest):
            return self._answer_mask_request(state, request)
        if isinstance(request, TrainRequest):
            self._check_broadcast(request)
            self._check_mask_group(state, request)
            self.charge(request)
            client, response = self.node.train(state.client, request, earlier)
            last_round = state.last_round if request.probe_round else request.rnd
            masks, response = self._mask_response(state, request, response)
            return NodeState(last_round, client, masks), to_bytes(response, self.schema)
        self.charge(request)
        client, survey_response = self.node.answer_survey(state.client, request)
        return state._replace(client=client), to_bytes(survey_response, self.schema)

    def _answer_mask_request(
        self, state: NodeState, request: MaskRequest
    ) -> tuple[NodeState, bytes]:
        from thalweg.network.secure_aggregation.client import MaskIdentity, answer_mask_request

        secure_aggregation = self.schema.recipe.secure_aggregation
        assert secure_aggregation is not None  # else `read_request` rejects mask requests
        identity = self.mask_identity or MaskIdentity()
        masks, response = answer_mask_request(request, state.masks, secure_aggregation, identity)
        return state._replace(masks=masks), to_bytes(response, self.schema)

    def _check_broadcast(self, request: TrainRequest) -> None:
        """Reject a train request without the values that the recipe's policies need."""
        for stage in ("memory", "objective", "bank"):
            policy: object = getattr(self.schema.recipe, stage)
            if not isinstance(policy, ValidatesDelivery):
                continue
            delivery = Delivery(
                request.broadcast.get(stage, {}),
                self.schema.num_params,
                len(request.models),
                self.node.clients.num_classes,
            )
            if reason := policy.validate_delivery(delivery):
                raise BadMessage(f"TrainRequest: broadcast of {stage}: {reason}")

    def _check_mask_group(self, state: NodeState, request: TrainRequest) -> None:
        """Reject a train request for which secure aggregation permits no update."""
        secure_aggregation = self.schema.recipe.secure_aggregation
        if secure_aggregation is not None:
            from thalweg.network.secure_aggregation.client import MaskIdentity, check_mask_group

            identity = self.mask_identity or MaskIdentity()
            check_mask_group(request, state.masks, secure_aggregation, identity)

    def _mask_response(
        self, state: NodeState, request: TrainRequest, response: TrainResponse
    ) -> tuple[Any, TrainResponse]:
        """Mask the update if the recipe uses secure aggregation.

        Return the new mask state and the response.
        """
        recipe = self.schema.recipe
        if recipe.secure_aggregation is None:
            return None, response
        from thalweg.network.secure_aggregation.client import mask_update

        return mask_update(response, request, state.masks, recipe.secure_aggregation, recipe)

    def serialise_state(self, state: NodeState) -> bytes:
        return tree_to_bytes(state)

    def restore_state(self, payload: bytes) -> NodeState:
        """Restore a state from `serialise_state`, bit by bit."""
        try:
            state = restore_types(self._state_template(), tree_from_bytes(payload))
            client = self.node.clients.restore_client(
                self.node.client, getattr(state, "client", None)
            )
            if isinstance(state, NodeState) and isinstance(client, ClientState):
                return state._replace(client=client)
            reason = "it is not a client state."
        except (BadMessage, RunError, TypeError) as error:
            reason = str(error)
        raise RunError(
            f"the stored state of client {self.node.client} is damaged, or of another recipe: "
            f"{reason} Join with a new state folder (--state)."
        )

    def _state_template(self) -> NodeState:
        """A state without a client."""
        if self.schema.recipe.secure_aggregation is None:
            return NodeState(-1, None)
        # Needs the optional package cryptography.
        from thalweg.network.secure_aggregation.client import new_mask_state

        return NodeState(-1, None, new_mask_state())

    def _check_recipient(self, request: Request, state: NodeState) -> None:
        """Reject requests for other clients and for rounds that are over.

        A repeated or late request would advance the stream twice.
        """
        if request.client != self.node.client:
            raise Rejected(
                RejectionCode.ROUND,
                f"this is client {self.node.client}, but the request is for client "
                f"{request.client}.",
            )
        most = find_max_probe_rounds(self.schema.recipe)
        if not isinstance(request, SurveyRequest) and request.probe_round > most:
            raise BadMessage(
                f"the request is for probe round {request.probe_round}, but the session start of "
                f"the recipe runs at most {most}."
            )
        is_last_step = isinstance(request, MaskRequest) and request.step in ("sign", "open")
        stream = self.node.clients.stream
        missed = request.rnd - state.client.stream_round
        if stream.collects_when_absent and missed * stream.ticks > MAX_MISSED_TICKS:
            raise Rejected(
                RejectionCode.ROUND,
                f"the request is for round {request.rnd + 1}, before which this client would have "
                f"to collect the samples of {missed} rounds with {stream.ticks} ticks each, more "
                f"than {MAX_MISSED_TICKS} ticks in all.",
            )
        over = state.last_round - is_last_step
        if request.rnd <= over:
            raise Rejected(
                RejectionCode.ROUND,
                f"round {request.rnd + 1} is over for client {self.node.client}, which has taken "
                f"part in round {state.last_round + 1}; the request is repeated or late.",
            )
