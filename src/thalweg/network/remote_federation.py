"""The server's side of a network: questions and orders go out as bytes, and what comes back is sorted."""

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
    MaskResponse,
    Request,
    Response,
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
    tabulate_answers,
)
from thalweg.network.limits import (
    Limits,
    check_survey_response,
    check_train_response,
    find_oversized_updates,
)
from thalweg.network.wire import MessageSchema, check_matches_request, read_response, to_bytes

ResponseType = TypeVar("ResponseType", TrainResponse, SurveyResponse, MaskResponse)
Packet = tuple[int, bytes]  # to a client, or from one
NO_PARAMS: Floats32 = np.empty(
    (0, 0), dtype=np.float32
)  # of an open order the models' numbers will do


class Transport(Protocol):
    """Carries bytes to clients and back; all that a network has to offer."""

    def __call__(self, packets: Iterable[Packet]) -> Iterable[Packet]:
        """Send each client its letter; what comes back, with its sender, until the round is closed.

        In any order; some may be missing, come twice, or be late ones of an earlier round. The sender is who
        the network knows it to be, not who it says it is.
        """
        ...


class RemoteFederation:
    """A `Federation` of clients at the other end of a network.

    What cannot be used is refused and the round goes on without it: whose message is damaged, or of another
    form than the others', or claims what its `Limits` or the recipe's policies do not believe, counts as not
    heard. A reply to an order of an earlier round is handed on with the
    replies of the next one, if the recipe's rule of staleness wants it. Only if all that were asked, and more than
    one, send numbers that are not finite does the run stop, as it would with clients in this process: a single one
    may have invented them.
    """

    def __init__(
        self,
        schema: MessageSchema,
        transport: Transport,
        roster: Callable[[int], Roster],
        awaited: Ints = NO_REQUESTS,
        limits: Limits | None = None,
    ) -> None:
        """`awaited` are the open orders of a run that goes on, `ServerState.open_requests`."""
        self._limits = limits or Limits()
        self._schema, self._transport, self.roster = schema, transport, roster
        self._max_staleness = max_wait(schema.recipe.staleness)
        self._pending: dict[
            int, dict[int, TrainRequest]
        ] = {}  # by client and round; what is left of them
        for client, rnd in awaited.tolist():
            model = np.zeros(1, dtype=np.int64)
            self._keep_pending(TrainRequest(rnd, client, model, np.ones(1), NO_PARAMS))
        self._late: dict[
            tuple[int, int], TrainResponse
        ] = {}  # by client and round, until they are used
        self.rejected: list[str] = []  # in the last round, and why
        self._rejections: list[Rejection] = []  # in this round

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        policy = self._schema.survey_policies[stage]
        shown = bank if policy.sends_models else bank[:0]
        questions = {
            client: SurveyRequest(rnd, client, stage, shown) for client in clients.tolist()
        }
        answers = self._exchange(questions, SurveyResponse, rnd)
        values = [answers[client].values if client in answers else {} for client in questions]
        alike = drop_odd_lengths(values)
        for client, said, kept in zip(questions, values, alike, strict=True):
            if len(kept) < len(said):
                self._reject(client, "SurveyResponse: it has not the length of the others'.")
        return tabulate_answers(alike, type(policy).__name__)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        orders = {order.client: order for order in make_train_requests(jobs, bank, rnd, broadcast)}
        extra_metrics: dict[str, int] = {}
        heard = self._collect_responses(orders, rnd, extra_metrics)
        replies = [heard[client] for client in orders if client in heard]
        is_probe_round = jobs[0].probe_round > 0
        if not is_probe_round:
            replies += [self._late.pop(key) for key in sorted(self._late)]
        alike = self._drop_outliers(replies)
        if not is_probe_round:
            self._close_pending(replies, rnd)
            for client in orders.keys() - heard.keys():
                self._keep_pending(orders[client])
        rejections, self._rejections = tuple(self._rejections), []
        self.rejected = [str(refusal) for refusal in rejections]
        extra_metrics |= {"rejected": len(rejections)} if rejections else {}
        updates = build_updates(alike, bank.shape[1], rnd)
        return replace(updates, extra_metrics=extra_metrics, rejections=rejections)

    def _collect_responses(
        self, orders: Mapping[int, TrainRequest], rnd: int, extra_metrics: dict[str, int]
    ) -> dict[int, TrainResponse]:
        """Replies by client; if updates are masked, everybody's is the mean, as in `recipes.sums`."""
        if self._schema.recipe.secure_aggregation is None:
            return self._exchange(orders, TrainResponse, rnd)
        from thalweg.network.secure_aggregation.server import (
            run_masked_round,  # needs a package that not everybody has
        )

        outcome = run_masked_round(
            self._schema.recipe,
            orders,
            lambda calls: self._exchange(calls, MaskResponse, rnd),
            lambda circled: self._exchange(circled, TrainResponse, rnd),
        )
        if outcome.metric:
            extra_metrics[outcome.metric] = 1
        self._rejections += outcome.rejections
        return {reply.client: reply for reply in outcome.replies}

    def _drop_outliers(self, replies: Sequence[TrainResponse]) -> list[TrainResponse]:
        """Those that can be set beside each other, and are not much longer than most."""
        longer = find_oversized_updates(replies, self._limits)
        for place, reason in longer.items():
            self._reject(replies[place].client, reason)
        usual = [reply for place, reply in enumerate(replies) if place not in longer]
        alike = select_uniform_responses(usual)
        for reply in usual:
            if reply not in alike:
                self._reject(reply.client, "its reply has not the form of the others'.")
        return alike

    def _reject(self, client: int, reason: str) -> None:
        self._rejections.append(Rejection(client, reason))

    def _exchange(
        self, asked: Mapping[int, Request], kind: type[ResponseType], rnd: int
    ) -> dict[int, ResponseType]:
        """What was heard in time, by client; late replies are put aside."""
        # One at a time: a cohort's models together may be larger than the memory.
        packets = ((client, to_bytes(message, self._schema)) for client, message in asked.items())
        came: dict[int, ResponseType] = {}
        diverged: dict[int, Diverged] = {}
        for sender, payload in self._transport(packets):
            is_awaited = sender in asked and sender not in came
            try:
                if not is_awaited and sender not in self._pending:
                    raise BadMessage("nobody asked, or it has answered already.")
                message = read_response(payload, self._schema)
                if self._store_late(sender, message, rnd):
                    continue
                if not is_awaited:
                    raise BadMessage("nobody asked, or it has answered already.")
                self._check(message, asked[sender])
                assert isinstance(message, kind)
                came[sender] = message
            except (BadMessage, Diverged) as error:
                self._reject(sender, str(error))
                if isinstance(error, Diverged) and is_awaited:
                    diverged[sender] = error
        if len(diverged) == len(asked) > 1:
            raise next(iter(diverged.values()))
        return came

    def _check(self, message: Response, asked: Request) -> None:
        """Is it what was asked for, and can it be true?"""
        check_matches_request(message, asked)
        recipe, limits = self._schema.recipe, self._limits
        if isinstance(message, TrainResponse) and isinstance(asked, TrainRequest):
            check_train_response(message, asked, recipe, limits)
        elif isinstance(message, SurveyResponse) and isinstance(asked, SurveyRequest):
            check_survey_response(message, asked, recipe, limits)

    # --- orders that nobody has answered yet ---

    def _store_late(self, sender: int, message: Response, rnd: int) -> bool:
        """Is it the reply to an open order of an earlier round? Then it is kept for the next replies."""
        order = self._pending.get(sender, {}).get(message.rnd)
        key = (sender, message.rnd)
        if order is None or key in self._late or rnd - message.rnd > self._max_staleness:
            return False
        self._check(message, order)
        if isinstance(message, TrainResponse):
            self._late[key] = message
        return True

    def _keep_pending(self, order: TrainRequest) -> None:
        if self._max_staleness:
            self._pending.setdefault(order.client, {})[order.rnd] = replace(
                order,
                params=NO_PARAMS,
                broadcast={
                    stage: values for stage, values in order.broadcast.items() if stage == "bank"
                },
            )

    def _close_pending(self, replies: Iterable[TrainResponse], rnd: int) -> None:
        """Forget orders that are answered, that a newer reply has overtaken, or that are too old."""
        newest: dict[int, int] = {}
        for reply in replies:
            newest[reply.client] = max(newest.get(reply.client, -1), reply.rnd)
        self._pending = {
            client: still
            for client, orders in self._pending.items()
            if (
                still := {
                    then: order
                    for then, order in orders.items()
                    if then > newest.get(client, -1) and rnd - then < self._max_staleness
                }
            )
        }
