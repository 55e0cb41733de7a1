"""The durable state of a device: identity, membership, client state, and recent responses.

One SQLite file in write-ahead mode with synchronous writes: after a crash or a power failure each
change is either complete or absent.
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
from thalweg.core.files import lock_folder, make_folder
from thalweg.network.edge.database import (
    checksum_fact,
    damaged_folder_error,
    open_database,
    transaction,
    translate_errors,
)

KEPT_ROUNDS = 2  # responses of the newest round and of this many before it are kept

ExtraWrite = Callable[[sqlite3.Connection], None]  # additional writes in the same transaction


@dataclass(frozen=True)
class Membership:
    """The run to which a state folder belongs, and the number of this client."""

    run: str
    client: int
    plan: str  # TOML


class Store:
    """The state folder of one client. Created by `Store.open`; thread-safe."""

    def __init__(self, folder: Path, lock: IO[str] | None, db: sqlite3.Connection) -> None:
        self.folder, self._lock, self._db = folder, lock, db
        self._thread_lock = threading.RLock()  # one change at a time
        self.identity = self.read_fact("identity") or ""

    @classmethod
    def open(cls, folder: Path, timeout_s: float = 0.0) -> Store:
        """Lock a folder, create it if necessary, and open its store."""
        folder = Path(folder)
        lock = _lock(folder, timeout_s)
        try:
            store = cls(folder, lock, open_database(folder / "state.db", secrets.token_hex(16)))
        except BaseException:
            if lock is not None:
                lock.close()
            raise
        try:
            store.state()  # detect damage immediately
            store.check_facts()
            store.erase_deleted()
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Release the folder. All changes are already on disk."""
        with self._thread_lock:
            self._db.close()
            if self._lock is not None:
                self._lock.close()

    # --- membership ---

    def read_membership(self) -> Membership | None:
        """The run to which the folder belongs; None: it is new."""
        run, client, plan = map(self.read_fact, ("run", "client", "plan"))
        if run is None or client is None or plan is None:
            return None
        return Membership(run, int(client), plan)

    def join(self, member: Membership) -> None:
        """Bind the folder to a run, as one client of it."""
        self.check(member)
        facts = {"run": member.run, "client": str(member.client), "plan": member.plan}
        with self.transaction() as db:
            write_facts(db, facts)

    def check(self, member: Membership) -> None:
        """Reject a run or client other than that of the folder."""
        old = self.read_membership()
        if old is not None and (old.run, old.client) != (member.run, member.client):
            raise RunError(
                f"the state folder {self.folder} belongs to client {old.client} of run {old.run}, "
                f"but the server has client {member.client} of run {member.run}; join with another "
                "folder (--state)."
            )

    # --- client state ---

    def state(self) -> bytes | None:
        """The stored client state; None: none yet."""
        return self._read_blob("SELECT state, checksum FROM node")

    def find_response(self, digest: str) -> bytes | None:
        """The stored response to a repeated request; None: not found."""
        return self._read_blob("SELECT response, checksum FROM responses WHERE digest = ?", digest)

    def commit(
        self,
        state: bytes,
        digest: str | None = None,
        response: bytes = b"",
        rnd: int = -1,
        extra_write: ExtraWrite | None = None,
    ) -> None:
        """Store a state and, optionally, the response to the request that caused it, atomically.

        `digest` identifies the request of round `rnd`; `extra_write` is executed in the same
        transaction.
        """
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO node VALUES (0, ?, ?)", (state, crc32(state)))
            if digest is not None:
                row = (digest, rnd, response, crc32(response))
                db.execute("INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?)", row)
                db.execute("DELETE FROM responses WHERE rnd < ?", (rnd - KEPT_ROUNDS,))
            if extra_write is not None:
                extra_write(db)

    def erase_deleted(self) -> None:
        """Remove deleted and replaced content from the write-ahead log; tables have zeros there."""
        with self.read_transaction() as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # --- other tables in the same file ---

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A change that is complete or absent."""
        with self._thread_lock, transaction(self._db, self.folder) as db:
            yield db

    def read_fact(self, name: str) -> str | None:
        """A small value stored by `write_facts`."""
        row = self._fetch_one("SELECT value, checksum FROM facts WHERE name = ?", name)
        return None if row is None else self._check_fact(name, *row)

    def _check_fact(self, name: Any, value: Any, checksum: Any) -> str:
        if not isinstance(value, str) or checksum_fact(name, value) != checksum:
            raise damaged_folder_error(self.folder, "a stored value has changed")
        return value

    def check_facts(self) -> None:
        """Verify all stored values. A changed name would hide a value, such as a privacy budget."""
        with self.read_transaction() as db:
            rows = db.execute("SELECT name, value, checksum FROM facts").fetchall()
        for row in rows:
            self._check_fact(*row)

    @contextmanager
    def read_transaction(self) -> Iterator[sqlite3.Connection]:
        """Read access to the tables without concurrent changes."""
        with self._thread_lock, translate_errors(self.folder):
            yield self._db

    def _read_blob(self, query: str, *values: object) -> bytes | None:
        """Stored bytes with a verified checksum."""
        row = self._fetch_one(query, *values)
        if row is None:
            return None
        content, checksum = row
        if not isinstance(content, bytes) or crc32(content) != checksum:
            raise damaged_folder_error(self.folder, "the stored client state has changed")
        return content

    def _fetch_one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        with self.read_transaction() as db:
            row: tuple[Any, ...] | None = db.execute(query, values).fetchone()
        return row


def _lock(folder: Path, timeout_s: float) -> IO[str] | None:
    with translate_errors(folder):
        make_folder(folder)
        try:
            return lock_folder(folder, timeout_s)
        except BlockingIOError:
            raise RunError(
                f"another process uses the state folder {folder}; stop it, or choose another "
                "folder (--state)."
            ) from None


def write_facts(db: sqlite3.Connection, facts: Mapping[str, str]) -> None:
    """Store small values in a transaction."""
    rows = [(name, value, checksum_fact(name, value)) for name, value in facts.items()]
    db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", rows)
