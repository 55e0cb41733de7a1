"""The privacy account of a device: what it has disclosed about its data, to all servers.

It is a file of its own, because a state folder belongs to one run. All state folders of a user with
the same data share one account. A charge is on disk before the response is computed: a crash in
between charges for a response that was never sent.
"""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from thalweg.core.errors import RunError
from thalweg.core.files import sync_folder
from thalweg.federation import SurveyRequest, TrainRequest
from thalweg.network.rejections import Rejected, RejectionCode
from thalweg.network.wire import Request
from thalweg.recipes.base import Recipe
from thalweg.recipes.disclosure import compute_response_cost, compute_survey_cost
from thalweg.theory import PrivacyCost

APPLICATION_ID = 0x7468_6C70  # "thlp" as SQLite's application_id
FORMAT_VERSION = 1
WAIT_S = 30.0  # for another process that uses the account
SCHEMA = """
CREATE TABLE charges (
    data TEXT NOT NULL,       -- digest of the source of the samples
    mechanism TEXT NOT NULL,  -- gaussian or laplace
    size REAL NOT NULL,       -- mu squared, or epsilon, of one release
    count INTEGER NOT NULL,   -- number of such releases
    PRIMARY KEY (data, mechanism, size)
) WITHOUT ROWID;
"""


class PrivacyLedger:
    """The account of one source of samples, with its budget. Processes can share the file."""

    def __init__(self, file: Path, data: str, max_epsilon: float, delta: float) -> None:
        self.file, self.max_epsilon, self.delta = file, max_epsilon, delta
        self._data = hashlib.sha256(data.encode()).hexdigest()  # a source may contain a password
        with self._translate_errors():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
            with self._open() as db:
                self._prepare(db)
            sync_folder(file.parent)

    def read_cost(self) -> PrivacyCost:
        """Return what has been disclosed so far."""
        with self._translate_errors(), self._open() as db:
            return self._read(db)

    def read_epsilon(self) -> float:
        """Return the epsilon of what has been disclosed so far."""
        return self.read_cost().epsilon(self.delta)

    def charge(self, cost: PrivacyCost) -> None:
        """Add a release to the account, durably, or reject it if the budget does not suffice."""
        releases = [("laplace", size, count) for size, count in cost.laplace.items()]
        if cost.mu_squared > 0:
            releases.append(("gaussian", cost.mu_squared, 1))
        with self._translate_errors(), self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                self._check(self._read(db) + cost)
                for mechanism, size, count in releases:
                    db.execute(
                        "INSERT INTO charges VALUES (?, ?, ?, ?) ON CONFLICT (data, mechanism, "
                        "size) DO UPDATE SET count = count + excluded.count",
                        (self._data, mechanism, size, count),
                    )
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

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
        total = PrivacyCost()
        rows = db.execute(
            "SELECT mechanism, size, count FROM charges WHERE data = ?", (self._data,)
        )
        for mechanism, size, count in rows.fetchall():
            if not (isinstance(size, float) and 0 < size < math.inf and count > 0):
                raise sqlite3.DatabaseError("it has an impossible charge")
            if mechanism == "gaussian":
                total += PrivacyCost(size).times(count)
            else:
                total += PrivacyCost(laplace={size: count})
        return total

    def _prepare(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")  # another process may create the tables at the same time
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (owner,) = db.execute("PRAGMA application_id").fetchone()
        if version == 0 and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            db.execute(SCHEMA)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        elif (owner, version) != (APPLICATION_ID, FORMAT_VERSION):
            raise sqlite3.DatabaseError("it is another file, or of another version")
        (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(str(verdict).splitlines()[-1])
        db.execute("COMMIT")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.file, timeout=WAIT_S, isolation_level=None)
        try:
            db.execute("PRAGMA synchronous = EXTRA")
            yield db
        finally:
            db.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise RunError(
                f"the privacy account {self.file} cannot be used: {error}. Without it this device "
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


def name_data(data: str) -> str:
    """Return one name for a source of samples: of a file its whole path.

    >>> name_data("replay"), name_data("mqtt://host/topic")
    ('replay', 'mqtt://host/topic')
    """
    source = data.removeprefix("replay:")
    path, question, rest = source.partition("?")
    return str(Path(path).resolve()) + question + rest if os.path.exists(path) else source


def default_account() -> Path:
    """Return the account of the current user."""
    import platformdirs

    return platformdirs.user_data_path("thalweg", appauthor=False) / "privacy.db"
