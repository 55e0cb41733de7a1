"""The SQLite file of a state folder: atomic creation, transactions, one-line errors."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from thalweg.core.errors import RunError
from thalweg.core.files import sync_folder

FORMAT_VERSION = 4  # of the tables; changes with them
APPLICATION_ID = (
    0x7468_6C77  # "thlw" as SQLite's application_id: files of other programs are rejected
)

SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE node (only INTEGER PRIMARY KEY CHECK (only = 0), state BLOB NOT NULL,
    checksum INTEGER NOT NULL);
CREATE TABLE responses (digest TEXT PRIMARY KEY, rnd INTEGER NOT NULL, response BLOB NOT NULL,
    checksum INTEGER NOT NULL);
CREATE TABLE samples (
    number INTEGER PRIMARY KEY,           -- 1, 2, ... in the order of arrival
    slot INTEGER NOT NULL UNIQUE,         -- where its input is
    label INTEGER NOT NULL,               -- -1: not known yet; of a regression 0: known
    target BLOB,                          -- numbers of a regression, float32; none: not known yet
    time REAL NOT NULL,
    name TEXT NOT NULL,                   -- for late labels and to find duplicates; may be ''
    checksum INTEGER NOT NULL,            -- of the slot's bytes
    stream_round INTEGER                  -- the stream round that it is for; NULL: none yet
);
CREATE INDEX by_name ON samples (name) WHERE name <> '';
CREATE INDEX undecided ON samples (label) WHERE stream_round IS NULL;
CREATE TABLE recent (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX by_number ON recent (number);
"""


def checksum_fact(name: str, value: str) -> int:
    """Return the checksum of a fact: of its value and of its name, so that neither can change."""
    return crc32(f"{name}\0{value}".encode())


def open_database(file: Path, identity: str) -> sqlite3.Connection:
    """Open the database of a state folder; create it with this identity if it does not exist."""
    with translate_errors(file.parent):
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))  # accessible only to the owner
        db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        try:
            _check_database(db, file)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA secure_delete = ON")  # overwrites deleted content with zeros
            if db.execute("PRAGMA user_version").fetchone() == (0,):
                _create_tables(db, identity)
                sync_folder(file.parent)
        except BaseException:
            db.close()
            raise
    return db


def _check_database(db: sqlite3.Connection, file: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    (num_tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if owner != APPLICATION_ID and num_tables:
        raise RunError(
            f"{file} is the database of another program; choose another folder (--state)."
        )
    if version not in (0, FORMAT_VERSION):  # 0: a new file
        raise RunError(
            f"{file} was written by another version of thalweg (format {version}, this version "
            f"reads format {FORMAT_VERSION}); use that version, or choose another folder (--state)."
        )
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(str(verdict).splitlines()[-1])


def _create_tables(db: sqlite3.Connection, identity: str) -> None:
    """Create all tables in one transaction; an interrupted creation leaves an empty file."""
    db.executescript(
        f"BEGIN IMMEDIATE;{SCHEMA}PRAGMA application_id = {APPLICATION_ID};PRAGMA user_version = "
        f"{FORMAT_VERSION};INSERT INTO facts VALUES ('identity', '{identity}', "
        f"{checksum_fact('identity', identity)});COMMIT;"
    )


@contextmanager
def transaction(db: sqlite3.Connection, folder: Path) -> Iterator[sqlite3.Connection]:
    """A transaction: an exception rolls back all changes."""
    with translate_errors(folder):
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")


@contextmanager
def translate_errors(folder: Path) -> Iterator[None]:
    """Convert database errors (disk full, damaged file, no permission) to one-line messages."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else f"{error.strerror or error}"
        raise RunError(
            f"cannot write to the state folder {folder}: {reason}. {_advice(full)}"
        ) from error
    except sqlite3.OperationalError as error:
        full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
        reason = "the disk is full" if full else str(error)
        raise RunError(
            f"cannot use the state folder {folder}: {reason}. {_advice(full)}"
        ) from error
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # also in messages of SQLite
        raise damaged_folder_error(folder, str(error)) from error


def damaged_folder_error(folder: Path, reason: str) -> RunError:
    return RunError(
        f"the state folder {folder} is damaged ({reason}); put back a copy of it, or move it away "
        "and join again as another client."
    )


def _advice(full: bool) -> str:
    kept = "What was there before is still there"
    return f"{kept}: make room and start again." if full else f"{kept}."
