"""Clients of this process, not all of whose replies come in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np

from thalweg.core.talk import Told
from thalweg.core.trees import Tree
from thalweg.core.types import Answers, Floats32, Ints, Job, Refusal, Roster, Updates
from thalweg.engine.embedded import Around, Embedded
from thalweg.recipes.federation import AskingStage
from thalweg.recipes.messages import Reply
from thalweg.recipes.tables import of_one_form, replies_of, updates_of
from thalweg.streams import Faults, Tampers


class Pending(NamedTuple):
    """A reply on its way."""

    due: int  # the round with whose replies it comes, or with those of the next in which anybody trains
    reply: Reply


class UnreliableFederation(Around):
    """An embedded federation between whose clients and the server things go wrong.

    Everybody who is asked trains, and remembers it. Then some replies are lost, and some come with those of a later
    round. Until then their client is not here: it is still sending. A reply that is on its way comes even if its
    client has gone by then; whether it is of any use is for the server to say. Of a rehearsal, what is not there
    in time is lost.
    """

    def __init__(self, inner: Embedded, faults: Faults, seed: int) -> None:
        super().__init__(inner)
        self._faults, self._seed = faults, seed
        self._pending: dict[int, Pending] = {}  # at most one per client

    def roster(self, rnd: int) -> Roster:
        roster = self.inner.roster(rnd)
        sending = [client for client, parcel in self._pending.items() if parcel.due >= rnd]
        here = np.setdiff1d(roster.here, np.array(sending, dtype=np.int64), assume_unique=True)
        return replace(roster, here=here)

    def survey(self, clients: Ints, stage: AskingStage, bank: Floats32, rnd: int) -> Answers:
        answers = self.inner.survey(clients, stage, bank, rnd)
        question = get_args(AskingStage).index(stage)
        silent = self._faults.silences(clients, rnd, self._seed, question)
        if silent.all():
            return {}
        return {name: np.where(silent[:, None], np.nan, rows) for name, rows in answers.items()}

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
    ) -> Updates:
        updates, rehearsal = self._trained(jobs, bank, rnd, told), jobs[0].rehearsal
        clients, place = np.unique(updates.clients, return_inverse=True)
        delays = self._faults.delays(clients, rnd, self._seed, rehearsal)
        if rehearsal:
            return updates.only((delays == 0)[place])
        arriving = sorted(client for client, parcel in self._pending.items() if parcel.due <= rnd)
        arrived = [self._pending.pop(client).reply for client in arriving]
        if not arrived and not delays.any():
            return updates
        replies = list(zip(replies_of(updates, rnd), delays.tolist(), strict=True))
        self._pending |= {
            reply.client: Pending(rnd + delay, _copied(reply))
            for reply, delay in replies
            if delay > 0
        }
        in_time = [reply for reply, delay in replies if delay == 0]
        # What was said when the bank had another number of models cannot be set beside the rest.
        alike = of_one_form([*in_time, *arrived])
        refused = tuple(
            Refusal(reply.client, "its reply has not the form of the others'.")
            for reply in (*in_time, *arrived)
            if reply not in alike
        )
        remarks = {**updates.remarks, **({"refused": len(refused)} if refused else {})}
        came = updates_of(alike, bank.shape[1], rnd)
        return replace(came, remarks=remarks, refusals=refused)

    def _trained(self, jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None) -> Updates:
        """What is sent, which of hostile clients is not what they have learnt."""
        updates, faults = self.inner.train(jobs, bank, rnd, told), self._faults
        if not isinstance(faults, Tampers):
            return updates
        deltas = faults.tampered(updates.deltas, updates.clients, rnd, self._seed)
        count = int(faults.is_hostile(np.unique(updates.clients), self._seed).sum())
        remarks = {**updates.remarks, **({"hostile": count} if count else {})}
        return replace(updates, deltas=deltas, remarks=remarks)

    # --- what a checkpoint must hold ---

    def pending(self) -> Tree:
        """Replies on their way, as plain values; see `restore`."""
        return {
            str(client): {"due": parcel.due, "reply": dict(vars(parcel.reply))}
            for client, parcel in self._pending.items()
        }

    def restore(self, pending: dict[str, Any]) -> None:
        """Take replies on their way from a checkpoint."""
        self._pending = {
            int(client): Pending(parcel["due"], Reply(**parcel["reply"]))
            for client, parcel in pending.items()
        }


def _copied(reply: Reply) -> Reply:
    """With arrays of its own: a row would keep the whole matrix of its round in memory."""
    own: dict[str, Any] = {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in vars(reply).items()
    }
    own |= {name: {k: v.copy() for k, v in own[name].items()} for name in ("reports", "said")}
    return Reply(**own)
