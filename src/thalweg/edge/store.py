"""What a device keeps on disk: who it is, where it belongs, what it remembers, what it answered.

One SQLite file in write-ahead mode, written to the disk with every change, so that a process may be killed, or
the power fail, at any moment: all of a change is there or nothing of it.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from zlib import crc32

from thalweg.core.errors import RunError
from thalweg.edge.database import claimed, damaged, one_line, opened, transaction

KEPT_ROUNDS = 2  # replies of the newest round and of so many before it are kept

Also = Callable[[sqlite3.Connection], None]  # a part of a change, in the same transaction


@dataclass(frozen=True)
class Member:
    """The run that a state folder belongs to, and which client of it this is."""

    run: str
    client: int
    plan: str  # TOML


class Store:
    """The state folder of one client, in one process. Made by `Store.open`; any thread may use it."""

    def __init__(self, folder: Path, lock: IO[str] | None, db: sqlite3.Connection) -> None:
        self.folder, self._lock, self._db = folder, lock, db
        self._turn = threading.RLock()  # one change at a time
        self.identity = self.fact("identity") or ""

    @classmethod
    def open(cls, folder: Path, patience_s: float = 0.0) -> Store:
        """Claim a folder, and make it if there is none; wait so long for a process that is about to leave it."""
        folder = Path(folder)
        lock = claimed(folder, patience_s)
        try:
            store = cls(folder, lock, opened(folder / "state.db", secrets.token_hex(16)))
        except BaseException:
            if lock is not None:
                lock.close()
            raise
        try:
            store.state()  # if it is damaged, say so now
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Let go of the folder. Nothing has to be written: every change already was."""
        with self._turn:
            self._db.close()
            if self._lock is not None:
                self._lock.close()

    # --- where it belongs ---

    def member(self) -> Member | None:
        """The run that the folder belongs to; none: it is new."""
        run, client, plan = map(self.fact, ("run", "client", "plan"))
        if run is None or client is None or plan is None:
            return None
        return Member(run, int(client), plan)

    def join(self, member: Member) -> None:
        """Belong to a run from now on, as one client of it."""
        self.check(member)
        facts = {"run": member.run, "client": str(member.client), "plan": member.plan}
        with self.transaction() as db:
            note(db, facts)

    def check(self, member: Member) -> None:
        """Refuse another run or client than the one that the folder belongs to, if it belongs to any."""
        old = self.member()
        if old is not None and (old.run, old.client) != (member.run, member.client):
            raise RunError(
                f"the state folder {self.folder} belongs to client {old.client} of run {old.run}, but the "
                f"server has client {member.client} of run {member.run}; join with another folder (--state)."
            )

    # --- what it remembers ---

    def state(self) -> bytes | None:
        """What the client remembers, as its node stored it; none: nothing yet."""
        return self._whole("SELECT state, checksum FROM node")

    def reply(self, digest: str) -> bytes | None:
        """The reply to an errand that was carried out already; none: it was not, or long ago."""
        return self._whole("SELECT reply, checksum FROM replies WHERE digest = ?", digest)

    def commit(
        self,
        state: bytes,
        digest: str | None = None,
        reply: bytes = b"",
        rnd: int = -1,
        also: Also | None = None,
    ) -> None:
        """Keep a state and, if an errand led to it, the reply to that: both or neither.

        `digest` names the errand, which is one of round `rnd`; `also` is what else changes with it.
        """
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO node VALUES (0, ?, ?)", (state, crc32(state)))
            if digest is not None:
                row = (digest, rnd, reply, crc32(reply))
                db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", row)
                db.execute("DELETE FROM replies WHERE rnd < ?", (rnd - KEPT_ROUNDS,))
            if also is not None:
                also(db)

    # --- for what else is kept in the same file ---

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A change that is made as a whole or not at all."""
        with self._turn, transaction(self._db, self.folder) as db:
            yield db

    def fact(self, name: str) -> str | None:
        """A small thing to remember, kept by `note`."""
        row = self._one("SELECT value FROM facts WHERE name = ?", name)
        return None if row is None else str(row[0])

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The tables, while nobody changes them."""
        with self._turn, one_line(self.folder):
            yield self._db

    def _whole(self, query: str, *values: object) -> bytes | None:
        """Bytes as they were written, or a refusal."""
        row = self._one(query, *values)
        if row is None:
            return None
        content, checksum = row
        if not isinstance(content, bytes) or crc32(content) != checksum:
            raise damaged(self.folder, "what the client remembers is not what was written")
        return content

    def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        with self.reading() as db:
            row: tuple[Any, ...] | None = db.execute(query, values).fetchone()
        return row


def note(db: sqlite3.Connection, facts: Mapping[str, str]) -> None:
    """Remember small things, in a transaction."""
    db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
