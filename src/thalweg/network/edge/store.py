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
from thalweg.network.edge.database import (
    damaged_folder_error,
    lock_folder,
    open_database,
    transaction,
    translate_errors,
)

KEPT_ROUNDS = 2  # replies of the newest round and of so many before it are kept

ExtraWrite = Callable[[sqlite3.Connection], None]  # a part of a change, in the same transaction


@dataclass(frozen=True)
class Membership:
    """The run that a state folder belongs to, and which client of it this is."""

    run: str
    client: int
    plan: str  # TOML


class Store:
    """The state folder of one client, in one process. Made by `Store.open`; any thread may use it."""

    def __init__(self, folder: Path, lock: IO[str] | None, db: sqlite3.Connection) -> None:
        self.folder, self._lock, self._db = folder, lock, db
        self._turn = threading.RLock()  # one change at a time
        self.identity = self.read_fact("identity") or ""

    @classmethod
    def open(cls, folder: Path, timeout_s: float = 0.0) -> Store:
        """Claim a folder, and make it if there is none; wait so long for a process that is about to leave it."""
        folder = Path(folder)
        lock = lock_folder(folder, timeout_s)
        try:
            store = cls(folder, lock, open_database(folder / "state.db", secrets.token_hex(16)))
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

    def read_membership(self) -> Membership | None:
        """The run that the folder belongs to; none: it is new."""
        run, client, plan = map(self.read_fact, ("run", "client", "plan"))
        if run is None or client is None or plan is None:
            return None
        return Membership(run, int(client), plan)

    def join(self, member: Membership) -> None:
        """Belong to a run from now on, as one client of it."""
        self.check(member)
        facts = {"run": member.run, "client": str(member.client), "plan": member.plan}
        with self.transaction() as db:
            write_facts(db, facts)

    def check(self, member: Membership) -> None:
        """Refuse another run or client than the one that the folder belongs to, if it belongs to any."""
        old = self.read_membership()
        if old is not None and (old.run, old.client) != (member.run, member.client):
            raise RunError(
                f"the state folder {self.folder} belongs to client {old.client} of run {old.run}, but the "
                f"server has client {member.client} of run {member.run}; join with another folder (--state)."
            )

    # --- what it remembers ---

    def state(self) -> bytes | None:
        """What the client remembers, as its node stored it; none: nothing yet."""
        return self._read_blob("SELECT state, checksum FROM node")

    def find_response(self, digest: str) -> bytes | None:
        """The reply to an errand that was carried out already; none: it was not, or long ago."""
        return self._read_blob("SELECT reply, checksum FROM replies WHERE digest = ?", digest)

    def commit(
        self,
        state: bytes,
        digest: str | None = None,
        response: bytes = b"",
        rnd: int = -1,
        extra_write: ExtraWrite | None = None,
    ) -> None:
        """Keep a state and, if an errand led to it, the reply to that: both or neither.

        `digest` names the errand, which is one of round `rnd`; `extra_write` is what else changes with it.
        """
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO node VALUES (0, ?, ?)", (state, crc32(state)))
            if digest is not None:
                row = (digest, rnd, response, crc32(response))
                db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", row)
                db.execute("DELETE FROM replies WHERE rnd < ?", (rnd - KEPT_ROUNDS,))
            if extra_write is not None:
                extra_write(db)

    # --- for what else is kept in the same file ---

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A change that is made as a whole or not at all."""
        with self._turn, transaction(self._db, self.folder) as db:
            yield db

    def read_fact(self, name: str) -> str | None:
        """A small thing to remember, kept by `write_facts`."""
        row = self._fetch_one("SELECT value FROM facts WHERE name = ?", name)
        return None if row is None else str(row[0])

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """The tables, while nobody changes them."""
        with self._turn, translate_errors(self.folder):
            yield self._db

    def _read_blob(self, query: str, *values: object) -> bytes | None:
        """Bytes as they were written, or a refusal."""
        row = self._fetch_one(query, *values)
        if row is None:
            return None
        content, checksum = row
        if not isinstance(content, bytes) or crc32(content) != checksum:
            raise damaged_folder_error(
                self.folder, "what the client remembers is not what was written"
            )
        return content

    def _fetch_one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        with self.read_transaction() as db:
            row: tuple[Any, ...] | None = db.execute(query, values).fetchone()
        return row


def write_facts(db: sqlite3.Connection, facts: Mapping[str, str]) -> None:
    """Remember small things, in a transaction."""
    db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
