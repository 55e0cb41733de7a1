"""A federation whose clients are on a network: sends requests and validates the responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from thalweg.core.capabilities import Broadcast
from thalweg.core.errors import BadMessage, Diverged
from thalweg.core.types import Floats32, Ints, Job, Rejection, Roster, SurveyResponses, Updates
from thalweg.federation import (
    NO_REQUESTS,
    SurveyRequest,
    SurveyResponse,
    SurveyStage,
    TrainRequest,
    TrainResponse,
    build_updates,
    drop_odd_lengths,
    make_train_requests,
    max_wait,
    select_uniform_responses,
    tabulate_responses,
)
from thalweg.network.limits import (
    Limits,
    bound_survey_values,
    bound_train_reports,
    check_response,
    find_oversized_updates,
)
from thalweg.network.wire import (
    MaskResponse,
    MessageSchema,
    Request,
    Response,
    check_matches_request,
    read_response,
    to_bytes,
)

ResponseType = TypeVar("ResponseType", bound=Response)
Packet = tuple[int, bytes]  # recipient or sender, and an encoded message
NO_PARAMS: Floats32 = np.empty((0, 0), dtype=np.float32)  # pending requests keep no parameters
UNEXPECTED = "no response of this client was expected, or it has responded already."


class Transport(Protocol):
    """Sends bytes to clients and receives their responses."""

    def __call__(self, packets: Iterable[Packet]) -> Iterable[Packet]:
        """Send each packet to its client; yield responses with their senders until the round ends.

        Responses come in any order. Some may be missing, duplicated, or late ones of an earlier
        round. The sender is the one that the network has authenticated.
        """
        ...


class RemoteFederation:
    """A `Federation` of clients on a network.

    Invalid responses are rejected, and the round continues without them: damaged messages, shapes
    that differ from those of the other clients, values beyond the `Limits` or impossible for the
    recipe's policies. Values that are implausible among those of the other clients are replaced by
    the median (`Limits.report_factor`) and reported in the same way. A late response joins the
    responses of the next round if the recipe's staleness policy accepts it.

    A client with numbers that are not finite is rejected, too. The run stops only if all of several
    clients sent such numbers, as a simulation would; a single client could have forged them.
    """

    def __init__(
        self,
        schema: MessageSchema,
        transport: Transport,
        roster: Callable[[int], Roster],
        awaited: Ints = NO_REQUESTS,
        limits: Limits | None = None,
        run: str = "",
    ) -> None:
        """`awaited` are the open requests of a resumed run, `ServerState.open_requests`.

        `run` is what clients bind the keys of secure aggregation to: `Invitation.common_digest`.
        """
        self._run = run
        self._limits = limits or Limits()
        self._schema, self._transport, self.roster = schema, transport, roster
        self._max_staleness = max_wait(schema.recipe.staleness)
        self._pending: dict[int, dict[int, TrainRequest]] = {}  # by client and round
        for client, rnd in awaited.tolist():
            model = np.zeros(1, dtype=np.int64)
            self._keep_pending(TrainRequest(rnd, client, model, np.ones(1), NO_PARAMS))
        self._late: dict[tuple[int, int], TrainResponse] = {}  # by client and round, until used
        self.rejected: list[str] = []  # rejections of the last round
        self._rejections: list[Rejection] = []  # of the current round
        self._num_bounded = 0  # responses of the current round with replaced values

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        policy = self._schema.survey_policies[stage]
        sent = bank if policy.sends_models else bank[:0]
        requests = {client: SurveyRequest(rnd, client, stage, sent) for client in clients.tolist()}
        responses = self._exchange(requests, SurveyResponse, rnd)
        values = [responses[client].values if client in responses else {} for client in requests]
        uniform = drop_odd_lengths(values)
        for client, received, kept in zip(requests, values, uniform, strict=True):
            if len(kept) < len(received):
                self._reject(client, "SurveyResponse: its length differs from that of most others.")
        bounded, changed = bound_survey_values(uniform, policy, self._limits)
        for index, reason in changed.items():
            self._report_bounded(clients[index], reason)
        return tabulate_responses(bounded, type(policy).__name__)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        requests = {
            request.client: request for request in make_train_requests(jobs, bank, rnd, broadcast)
        }
        extra_metrics: dict[str, int] = {}
        in_time = self._collect_responses(requests, rnd, extra_metrics)
        responses = [in_time[client] for client in requests if client in in_time]
        is_probe_round = jobs[0].probe_round > 0
        if not is_probe_round:
            responses += [self._late.pop(key) for key in sorted(self._late)]
        accepted, changed = bound_train_reports(self._drop_outliers(responses), self._limits)
        for index, reason in changed.items():
            self._report_bounded(accepted[index].client, reason)
        if not is_probe_round:
            self._close_pending(responses, rnd)
            for client in requests.keys() - in_time.keys():
                self._keep_pending(requests[client])
        rejections, self._rejections = tuple(self._rejections), []
        self.rejected = [str(rejection) for rejection in rejections]
        num_bounded, self._num_bounded = self._num_bounded, 0
        num_rejected = len(rejections) - num_bounded
        extra_metrics |= {"rejected": num_rejected} if num_rejected else {}
        extra_metrics |= {"bounded": num_bounded} if num_bounded else {}
        updates = build_updates(accepted, bank.shape[1], rnd)
        return replace(updates, extra_metrics=extra_metrics, rejections=rejections)

    def _collect_responses(
        self, requests: Mapping[int, TrainRequest], rnd: int, extra_metrics: dict[str, int]
    ) -> dict[int, TrainResponse]:
        """Responses by client; with secure aggregation, every update is the mean of all."""
        if self._schema.recipe.secure_aggregation is None:
            return self._exchange(requests, TrainResponse, rnd)
        # Needs the optional package cryptography.
        from thalweg.network.secure_aggregation.server import run_masked_round

        result = run_masked_round(
            self._schema.recipe,
            requests,
            lambda mask_requests: self._exchange(mask_requests, MaskResponse, rnd),
            lambda train_requests: self._exchange(train_requests, TrainResponse, rnd),
            self._run,
        )
        if result.metric:
            extra_metrics[result.metric] = 1
        self._rejections += result.rejections
        return {response.client: response for response in result.responses}

    def _drop_outliers(self, responses: Sequence[TrainResponse]) -> list[TrainResponse]:
        """Reject oversized updates, and responses whose shapes differ from those of most others."""
        oversized = find_oversized_updates(responses, self._limits)
        for index, reason in oversized.items():
            self._reject(responses[index].client, reason)
        others = [response for index, response in enumerate(responses) if index not in oversized]
        uniform = select_uniform_responses(others)
        for response in others:
            if response not in uniform:
                reason = "TrainResponse: its names or shapes differ from those of most others."
                self._reject(response.client, reason)
        return uniform

    def _reject(self, client: int, reason: str) -> None:
        self._rejections.append(Rejection(client, reason))

    def _report_bounded(self, client: int, reason: str) -> None:
        self._reject(int(client), reason)
        self._num_bounded += 1

    def _exchange(
        self, requests: Mapping[int, Request], kind: type[ResponseType], rnd: int
    ) -> dict[int, ResponseType]:
        """Send requests and return the valid responses that came in time; store late ones."""
        # Encoded one at a time: all models of a cohort together may not fit into memory.
        packets = (
            (client, to_bytes(request, self._schema)) for client, request in requests.items()
        )
        responses: dict[int, ResponseType] = {}
        diverged: dict[int, Diverged] = {}
        for sender, payload in self._transport(packets):
            is_awaited = sender in requests and sender not in responses
            try:
                if not is_awaited and sender not in self._pending:
                    raise BadMessage(UNEXPECTED)
                response = read_response(payload, self._schema)
                if self._store_late(sender, response, rnd):
                    continue
                if not is_awaited:
                    raise BadMessage(UNEXPECTED)
                self._check(response, requests[sender])
                assert isinstance(response, kind)
                responses[sender] = response
            except (BadMessage, Diverged) as error:
                self._reject(sender, str(error))
                if isinstance(error, Diverged) and is_awaited:
                    diverged[sender] = error
        if len(diverged) == len(requests) > 1:
            raise next(iter(diverged.values()))
        return responses

    def _check(self, response: Response, request: Request) -> None:
        check_matches_request(response, request)
        check_response(response, request, self._schema.recipe, self._limits)

    # --- requests of earlier rounds without a response ---

    def _store_late(self, sender: int, response: Response, rnd: int) -> bool:
        """Keep a valid response to a pending request of an earlier round.

        Return whether it was one.
        """
        request = self._pending.get(sender, {}).get(response.rnd)
        key = (sender, response.rnd)
        if request is None or key in self._late or rnd - response.rnd > self._max_staleness:
            return False
        self._check(response, request)
        if isinstance(response, TrainResponse):
            self._late[key] = response
        return True

    def _keep_pending(self, request: TrainRequest) -> None:
        """Store a request without its parameters, if late responses are accepted."""
        if self._max_staleness:
            bank_broadcast = {k: v for k, v in request.broadcast.items() if k == "bank"}
            self._pending.setdefault(request.client, {})[request.rnd] = replace(
                request, params=NO_PARAMS, broadcast=bank_broadcast
            )

    def _close_pending(self, responses: Iterable[TrainResponse], rnd: int) -> None:
        """Forget requests with a response, older ones of the same client, and those too old."""
        newest: dict[int, int] = {}
        for response in responses:
            newest[response.client] = max(newest.get(response.client, -1), response.rnd)
        still_open = {
            client: {
                sent_in: request
                for sent_in, request in requests.items()
                if sent_in > newest.get(client, -1) and rnd - sent_in < self._max_staleness
            }
            for client, requests in self._pending.items()
        }
        self._pending = {client: requests for client, requests in still_open.items() if requests}
