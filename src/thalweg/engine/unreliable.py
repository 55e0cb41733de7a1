"""Simulated faults: responses that are lost, late or forged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np

from thalweg.core.capabilities import Broadcast
from thalweg.core.trees import Tree
from thalweg.core.types import Floats32, Ints, Job, Rejection, Roster, SurveyResponses, Updates
from thalweg.engine.simulated import FederationWrapper, SimulatedFederation
from thalweg.federation import (
    SurveyStage,
    TrainResponse,
    build_updates,
    select_uniform_responses,
    split_updates,
)
from thalweg.streams import Faults, TampersUpdates


class PendingResponse(NamedTuple):
    """A response that has not arrived yet."""

    due: int  # it arrives in this round, or in the next one in which clients train
    response: TrainResponse


class UnreliableFederation(FederationWrapper):
    """Adds faults to a federation: responses are lost, late or forged, as specified by `Faults`.

    All chosen clients train and keep their new state. Then some responses are lost, and some arrive
    in a later round. Until then their client is not present. A late response arrives even if its
    client is absent by then; the server decides whether to use it. Late responses of a probe round
    are lost.
    """

    def __init__(self, inner: SimulatedFederation, faults: Faults, seed: int) -> None:
        super().__init__(inner)
        self._faults, self._seed = faults, seed
        self._pending: dict[int, PendingResponse] = {}  # at most one per client

    def roster(self, rnd: int) -> Roster:
        roster = self.inner.roster(rnd)
        sending = [
            client
            for client, pending_response in self._pending.items()
            if pending_response.due >= rnd
        ]
        present = np.setdiff1d(
            roster.present, np.array(sending, dtype=np.int64), assume_unique=True
        )
        return replace(roster, present=present)

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        responses = self.inner.survey(clients, stage, bank, rnd)
        number = get_args(SurveyStage).index(stage)
        is_lost = self._faults.draw_lost_responses(clients, rnd, self._seed, number)
        if is_lost.all():
            return {}
        return {name: np.where(is_lost[:, None], np.nan, rows) for name, rows in responses.items()}

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        updates, probe_round = self._train_inner(jobs, bank, rnd, broadcast), jobs[0].probe_round
        clients, client_index = np.unique(updates.clients, return_inverse=True)
        delays = self._faults.draw_delays(clients, rnd, self._seed, probe_round)
        if probe_round:
            return updates.only((delays == 0)[client_index])
        arriving = sorted(
            client
            for client, pending_response in self._pending.items()
            if pending_response.due <= rnd
        )
        arrived = [self._pending.pop(client).response for client in arriving]
        if not arrived and not delays.any():
            return updates
        responses = list(zip(split_updates(updates, rnd), delays.tolist(), strict=True))
        self._pending |= {
            response.client: PendingResponse(rnd + delay, _copy_response(response))
            for response, delay in responses
            if delay > 0
        }
        in_time = [response for response, delay in responses if delay == 0]
        # A late response may be for another number of models than the others.
        alike = select_uniform_responses([*in_time, *arrived])
        rejected = tuple(
            Rejection(response.client, "its response has another form than the others.")
            for response in (*in_time, *arrived)
            if response not in alike
        )
        extra_metrics = {
            **updates.extra_metrics,
            **({"rejected": len(rejected)} if rejected else {}),
        }
        came = build_updates(alike, bank.shape[1], rnd)
        return replace(came, extra_metrics=extra_metrics, rejections=rejected)

    def _train_inner(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None
    ) -> Updates:
        """Train, and replace the updates of hostile clients by forged ones."""
        updates, faults = self.inner.train(jobs, bank, rnd, broadcast), self._faults
        if not isinstance(faults, TampersUpdates):
            return updates
        deltas = faults.tamper(updates.deltas, updates.clients, rnd, self._seed)
        count = int(faults.is_hostile(np.unique(updates.clients), self._seed).sum())
        extra_metrics = {**updates.extra_metrics, **({"hostile": count} if count else {})}
        return replace(updates, deltas=deltas, extra_metrics=extra_metrics)

    # --- checkpoints ---

    def pending(self) -> Tree:
        """Return the responses that have not arrived yet, for `restore`."""
        return {
            str(client): {"due": pending.due, "response": dict(vars(pending.response))}
            for client, pending in self._pending.items()
        }

    def restore(self, pending: dict[str, Any]) -> None:
        """Restore the responses that have not arrived yet from a checkpoint."""
        self._pending = {
            int(client): PendingResponse(
                pending_response["due"], TrainResponse(**pending_response["response"])
            )
            for client, pending_response in pending.items()
        }


def _copy_response(response: TrainResponse) -> TrainResponse:
    """Copy the arrays of a response: a row would keep the matrix of its round in memory."""
    own: dict[str, Any] = {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in vars(response).items()
    }
    own |= {name: {k: v.copy() for k, v in own[name].items()} for name in ("reports", "uploads")}
    return TrainResponse(**own)
