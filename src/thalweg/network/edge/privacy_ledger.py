"""The privacy account of a device: what it has disclosed about its data, to all servers.

It is a file of its own, because a state folder belongs to one run. All state folders of a user with
the same data share one account. A charge is on disk before the response is computed: a crash in
between charges for a response that was never sent. A digest over all rows detects damage: a smaller
sum would allow more than the budget.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from thalweg.core.errors import RunError
from thalweg.core.files import FILE_MODE, UNFINISHED, remove_file, rename_file, sync_folder
from thalweg.data import SOURCES
from thalweg.data.search import list_candidates
from thalweg.federation import SurveyRequest, TrainRequest
from thalweg.network.rejections import Rejected, RejectionCode
from thalweg.network.sources.broker import ADDRESS
from thalweg.network.wire import Request
from thalweg.recipes.base import Recipe
from thalweg.recipes.disclosure import compute_response_cost, compute_survey_cost
from thalweg.scenarios import SCENARIOS
from thalweg.theory import PrivacyCost

APPLICATION_ID = 0x7468_6C70  # "thlp" as SQLite's application_id
FORMAT_VERSION = 2
Row = tuple[str, str, float, int]  # of charges
WAIT_S = 30.0  # for another process that uses the account
SCHEMA = """
CREATE TABLE charges (
    data TEXT NOT NULL,       -- digest of the source of the samples
    mechanism TEXT NOT NULL,  -- gaussian or laplace
    size REAL NOT NULL,       -- mu squared, or epsilon, of one release
    count INTEGER NOT NULL,   -- number of such releases
    PRIMARY KEY (data, mechanism, size)
) WITHOUT ROWID;
CREATE TABLE account (
    only INTEGER PRIMARY KEY CHECK (only = 0),
    digest TEXT NOT NULL      -- of all rows of charges
);
"""


class PrivacyLedger:
    """The account of one source of samples, with its budget. Processes can share the file."""

    def __init__(self, file: Path, data: str, max_epsilon: float, delta: float) -> None:
        self.file, self.max_epsilon, self.delta = file, max_epsilon, delta
        self._data = hashlib.sha256(data.encode()).hexdigest()  # a source may contain a password
        with self._translate_errors():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _lock(file.parent):
                if not file.exists():
                    _create(file)
            sync_folder(file.parent)
            with self._open() as db, _transaction(db):
                _check_structure(db)
                self._read(db)

    def read_cost(self) -> PrivacyCost:
        """Return what has been disclosed so far."""
        with self._translate_errors(), self._open() as db, _transaction(db):
            return self._read(db)

    def read_epsilon(self) -> float:
        """Return the epsilon of what has been disclosed so far."""
        return self.read_cost().epsilon(self.delta)

    def charge(self, cost: PrivacyCost) -> None:
        """Add a release to the account, durably, or reject it if the budget does not suffice."""
        releases = [("laplace", size, count) for size, count in cost.laplace.items()]
        if cost.mu_squared > 0:
            releases.append(("gaussian", cost.mu_squared, 1))
        with self._translate_errors(), self._open() as db, _transaction(db, "IMMEDIATE"):
            self._check(self._read(db) + cost)
            for mechanism, size, count in releases:
                db.execute(
                    "INSERT INTO charges VALUES (?, ?, ?, ?) ON CONFLICT (data, mechanism, "
                    "size) DO UPDATE SET count = count + excluded.count",
                    (self._data, mechanism, size, count),
                )
            db.execute("UPDATE account SET digest = ?", (_digest(_read_rows(db)),))

    def check(self, cost: PrivacyCost) -> None:
        """Reject a release for which the budget does not suffice; nothing is charged."""
        self._check(self.read_cost() + cost)

    def _check(self, cost: PrivacyCost) -> None:
        epsilon = cost.epsilon(self.delta)
        if not epsilon <= self.max_epsilon:
            raise Rejected(
                RejectionCode.BUDGET,
                f"with one more response, epsilon of this device's data would be {epsilon:.4g} at "
                f"delta {self.delta:g}, but the owner allows {self.max_epsilon:g} (--max-epsilon). "
                f"The account is {self.file}.",
            )

    def _read(self, db: sqlite3.Connection) -> PrivacyCost:
        """Sum the charges in a transaction; any damage of the file is an error."""
        ((num_pages,),) = db.execute("PRAGMA page_count").fetchall()
        ((page_size,),) = db.execute("PRAGMA page_size").fetchall()
        if self.file.stat().st_size != num_pages * page_size:
            raise sqlite3.DatabaseError("its size is wrong")
        rows = _read_rows(db)
        if db.execute("SELECT digest FROM account").fetchall() != [(_digest(rows),)]:
            raise sqlite3.DatabaseError("its checksum does not match its charges")
        total = PrivacyCost()
        for data, mechanism, size, count in rows:
            if data != self._data:
                continue
            if mechanism == "gaussian":
                total += PrivacyCost(size).times(count)
            else:
                total += PrivacyCost(laplace={size: count})
        return total

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with _connect(self.file) as db:
            db.execute("PRAGMA synchronous = EXTRA")
            yield db

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            # Messages of SQLite can contain parts of a damaged file.
            reason = "".join(each if each.isprintable() else "?" for each in str(error))
            raise RunError(
                f"the privacy account {self.file} cannot be used: {reason}. Without it this device "
                "sends nothing. Put back a copy of it, or choose another file (--privacy-account)."
            ) from error


@dataclass(frozen=True)
class PrivacyGuard:
    """Charges the account of a device for the responses of a recipe."""

    ledger: PrivacyLedger
    recipe: Recipe

    def charge(self, request: Request) -> None:
        """Charge for the response to a request before it is computed, or reject the request."""
        if isinstance(request, TrainRequest):
            self.ledger.charge(compute_response_cost(self.recipe))
        elif isinstance(request, SurveyRequest):
            self.ledger.charge(compute_survey_cost(self.recipe, request.stage))


@contextmanager
def _connect(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a file that exists: a removed account is not created again."""
    uri = f"{file.absolute().as_uri()}?mode=rw"
    db = sqlite3.connect(uri, uri=True, timeout=WAIT_S, isolation_level=None)
    try:
        yield db
    finally:
        db.close()


@contextmanager
def _transaction(db: sqlite3.Connection, kind: str = "DEFERRED") -> Iterator[None]:
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Wait until no other process creates an account in the folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _create(file: Path) -> None:
    """Create an account under a temporary name, so that an empty or cut file is always damage."""
    unfinished = file.with_name(file.name + UNFINISHED)
    remove_file(unfinished)  # of an interrupted creation
    os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE))
    with _connect(unfinished) as db:
        db.execute("PRAGMA journal_mode = MEMORY")  # no other file
        db.execute("PRAGMA synchronous = EXTRA")
        with _transaction(db, "IMMEDIATE"):
            for statement in SCHEMA.split(";"):
                db.execute(statement)
            db.execute("INSERT INTO account VALUES (0, ?)", (_digest([]),))
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    rename_file(unfinished, file)


def _check_structure(db: sqlite3.Connection) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    if (owner, version) != (APPLICATION_ID, FORMAT_VERSION):
        raise sqlite3.DatabaseError("it is another file, or of another version")
    (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(str(verdict).splitlines()[-1])


def _read_rows(db: sqlite3.Connection) -> list[Row]:
    return db.execute("SELECT data, mechanism, size, count FROM charges").fetchall()


def _digest(rows: list[Row]) -> str:
    """Return a checksum of all charges; numbers are written exactly."""
    text = "\n".join([f"thalweg privacy account {FORMAT_VERSION}", *sorted(map(repr, rows))])
    return hashlib.sha256(text.encode()).hexdigest()


def name_data(data: str, data_dir: Path | None = None) -> str:
    """Return one name for a source of samples, whether or not it exists yet.

    Options after the question mark are omitted: they choose among the same samples. Of files and
    folders the name is the whole path, of MQTT the host and topic.

    >>> name_data("replay"), name_data("mqtts://me@Host:8883/topic?qos=0")
    ('replay', 'mqtt://host/topic')
    >>> name_data("/data/a/../b.csv?y=price"), name_data("/own.py:read"), name_data("package:read")
    ('/data/b.csv', '/own.py:read', 'package:read')
    """
    location = data.partition("?")[0]
    if location.startswith("replay:"):
        return _name_replayed(location.removeprefix("replay:"), data_dir)
    if location == "replay" or location.startswith("river:"):
        return location
    if broker := ADDRESS.fullmatch(location):
        return f"mqtt://{broker['host'].lower()}/{broker['topic']}"
    file, colon, function = location.rpartition(":")
    is_function = bool(colon) and function.isidentifier()
    if is_function and file.endswith(".py"):
        return f"{Path(file).resolve()}:{function}"
    if is_function and all(part.isidentifier() for part in file.split(".")):
        return location
    return str(Path(location).resolve())


def _name_replayed(name: str, data_dir: Path | None) -> str:
    if name in SCENARIOS or name in SOURCES or name.startswith(("hf:", "river:")):
        return name
    candidates = list_candidates(name, data_dir)  # its data are read before anything is sent
    found = next((path for path in candidates if path.exists()), candidates[0])
    return str(found.resolve())


def default_account() -> Path:
    """Return the account of the current user."""
    import platformdirs

    return platformdirs.user_data_path("thalweg", appauthor=False) / "privacy.db"
