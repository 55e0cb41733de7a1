"""The process that is a client: it owns the state folder and the data, and answers letters in turn.

What the network starts for every message comes and goes; this stays. It knows no network: letters come over a unix
socket (`edge/socket.py`), and whoever can write to that may be anybody with the right to do so.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from thalweg.core.errors import BadMessage, ThalwegError
from thalweg.edge.accepting import (
    check_is_the_same,
    check_member,
    check_wish,
    plan_from_the_server,
    resident_of,
)
from thalweg.edge.resident import Means, Resident
from thalweg.edge.socket import Parcel, listening, serve_one
from thalweg.edge.store import Member, Store
from thalweg.recipes.joining import (
    Greeting,
    Introduction,
    Invitation,
    Refusal,
    check_versions,
    letter_from,
    letter_of,
)
from thalweg.recipes.messages import Reply
from thalweg.recipes.wire import news_from

INVITATION = "invitation"  # file in the state folder: as what it takes part, for the next start
Event = Mapping[str, Any]


class Daemon:
    """One client, between start and stop. `refused` says why it may not take part, if so."""

    def __init__(
        self,
        store: Store,
        means: Means,
        wish: int | None = None,
        say: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self._store, self._means, self._wish, self._say = store, means, wish, say
        self._resident: Resident | None = None
        self._invitation: Invitation | None = None
        self.refused: str | None = None
        self._come_home()

    def answer(self, parcel: Parcel) -> Parcel:
        """What becomes of one letter. Nothing that comes in can end the process, but a refusal stops it."""
        try:
            return Parcel(parcel.kind, self._answered(parcel))
        except ThalwegError as error:
            return Parcel("refused", reason=str(error))
        except Exception as error:
            traceback.print_exc()
            return Parcel("refused", reason=f"this client failed: {type(error).__name__}: {error}")

    def serve(self, path: Path, is_over: Callable[[], bool] = lambda: False) -> None:
        """Answer letters, one after the other, until it is over or the client is refused."""
        with listening(path) as door:
            door.settimeout(0.5)
            self._say({"event": "ready", "identity": self._store.identity, "socket": str(path)})
            while self.refused is None and not is_over():
                serve_one(door, self.answer)

    def close(self) -> None:
        if self._resident is not None:
            self._resident.close()
            self._resident = None

    def _answered(self, parcel: Parcel) -> bytes:
        if parcel.kind == "greeting":
            return self._introduce(letter_from(parcel.letter, Greeting))
        if parcel.kind == "invitation":
            return self._accept(letter_from(parcel.letter, Invitation))
        if parcel.kind == "refusal":
            return self._leave(letter_from(parcel.letter, Refusal).reason)
        if parcel.kind != "errand":
            raise BadMessage(f"nobody knows letters of the kind {parcel.kind[:40]!r}.")
        if self._resident is None:
            raise BadMessage("this client was not invited yet; greet it first.")
        reply = self._resident.handle(parcel.letter)
        self._tell_of(reply)
        return reply

    # --- joining ---

    def _introduce(self, greeting: Greeting) -> bytes:
        try:
            check_versions(greeting, "the server", "this client")
        except BadMessage as error:
            return self._leave(str(error))
        member = self._store.member()
        own = None if member is None else member.run
        return letter_of(Introduction(self._store.identity, self._wish, own))

    def _accept(self, invitation: Invitation) -> bytes:
        """Join, or stay with the run that we are in; whatever is wrong with it is a refusal, and the end."""
        try:
            check_versions(invitation, "the server", "this client")
            if self._invitation is None:
                self._settle(invitation)
            else:
                check_is_the_same(invitation, self._invitation)
            assert self._resident is not None
            return self._resident.hello()
        except ThalwegError as error:
            return self._leave(str(error))

    def _settle(self, invitation: Invitation) -> None:
        member = Member(invitation.run, invitation.client, invitation.plan)
        check_wish(invitation, self._wish)
        check_member(self._store.member(), member)
        plan = plan_from_the_server(invitation.plan, self._means)
        resident = resident_of(plan, invitation, self._store, self._means)
        try:
            self._store.join(member)
            _write(self._store.folder / INVITATION, letter_of(invitation))
        except BaseException:
            resident.close()
            raise
        self._resident, self._invitation = resident, invitation
        self._say(
            {"event": "joined", "run": member.run, "client": member.client, "plan": plan.title}
        )

    def _come_home(self) -> None:
        """After a restart: go on as the client that we were, so that nobody has to ask again."""
        member, file = self._store.member(), self._store.folder / INVITATION
        if member is None or not file.exists():
            return
        try:
            invitation = letter_from(file.read_bytes(), Invitation)
            if Member(invitation.run, invitation.client, invitation.plan) == member:
                check_versions(invitation, "this state folder", "this client")
                self._settle(invitation)
        except BadMessage as error:
            self._say({"event": "waiting", "reason": f"for an invitation: {error}"})

    def _leave(self, reason: str) -> bytes:
        """We may not, or cannot, take part: say so to both sides, and end."""
        self.refused = reason
        return letter_of(Refusal(reason))

    def _tell_of(self, reply: bytes) -> None:
        assert self._resident is not None
        news = news_from(reply, self._resident.terms)
        if isinstance(news, Reply) and not news.rehearsal:
            losses = news.losses[news.num_steps > 0]
            self._say(
                {
                    "event": "round",
                    "round": news.rnd + 1,
                    "loss": float(losses.mean()) if len(losses) else None,
                    "num_samples": news.num_samples,
                    "num_steps": int(news.num_steps.sum()),
                }
            )


def _write(path: Path, payload: bytes) -> None:
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_bytes(payload)
    os.replace(unfinished, path)


def print_event(event: Event) -> None:
    """One line of JSON on the standard output; whoever reads it may be gone."""
    with suppress(OSError, ValueError):
        print(json.dumps(event), file=sys.stdout, flush=True)
