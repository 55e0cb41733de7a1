"""The clients of a run: their identities, their numbers, and the last node of each.

Stored in the run folder (`clients.json`), so that a restarted server recognises its clients, and
clients recognise the run by its id.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from thalweg.core.errors import RunError
from thalweg.core.files import seal, sync_folder, unseal, write_file
from thalweg.network.flower.node_keys import NodeKeys
from thalweg.network.handshake import IDENTITY, IdentityResponse
from thalweg.network.rejections import Rejected, RejectionCode

FILE = "clients.json"


@dataclass
class ClientEntry:
    """One client of the run."""

    number: int
    node: int  # Flower's id of its last node
    key: str = ""  # digest of the public key of its node; empty: without keys


class ClientRegistry:
    """The map from identities to numbers 0 .. N-1. A client that has joined keeps its number.

    A node has one number: a new client at a known node takes the number of the previous one, so
    that a node cannot take several numbers. Flower identifies a node by its key. A device that lost
    its state folder therefore gets its number again if it joins with the same key. Without keys it
    is a new node: it gets another number, and its old number remains in use.

    With keys (`node_keys` is the file of `NodeKeys`), an identity belongs to the key with which it
    joined first: another key cannot use it, even if the identity is known.
    """

    def __init__(self, folder: Path, num_clients: int, node_keys: Path | None = None) -> None:
        self._path, self.num_clients = folder / FILE, num_clients
        self._node_keys = node_keys
        self.run, self.entries = secrets.token_hex(16), dict[str, ClientEntry]()
        if self._path.exists():
            self._read()
        else:
            self._write()

    @property
    def taken(self) -> set[int]:
        """The numbers in use."""
        return {entry.number for entry in self.entries.values()}

    def find_number(self, response: IdentityResponse, node: int) -> int:
        """Return the client's number: known, of its node, requested or lowest free, in this
        order.
        """
        if response.run not in (None, self.run):
            raise Rejected(
                RejectionCode.RUN,
                f"the server has run {self.run}, this client's state folder belongs to run "
                f"{response.run}; join with another folder (--state).",
            )
        self._check_key(response.identity, node)
        at_node = [entry for entry in self.entries.values() if entry.node == node]
        known = self.entries.get(response.identity) or (at_node[0] if at_node else None)
        if known is not None:
            if response.requested_number not in (None, known.number):
                raise Rejected(
                    RejectionCode.CLIENT_NUMBER,
                    f"the server has this client as number {known.number}, it requests "
                    f"{response.requested_number}; join with --client {known.number}, or with "
                    "another state folder (--state).",
                )
            return known.number
        taken = self.taken
        if response.requested_number is not None and (
            response.requested_number in taken or response.requested_number >= self.num_clients
        ):
            why = (
                "another client has it"
                if response.requested_number in taken
                else f"the run has {self.num_clients} clients, counted from 0"
            )
            raise Rejected(
                RejectionCode.CLIENT_NUMBER,
                f"this client requests number {response.requested_number}, but {why}.",
            )
        free = [number for number in range(self.num_clients) if number not in taken]
        if not free:
            raise Rejected(
                RejectionCode.FULL,
                f"the run has {self.num_clients} clients, and all of them have joined already; "
                "increase world.num_clients, or join with the state folder of a client that left.",
            )
        return free[0] if response.requested_number is None else response.requested_number

    def record(self, identity: str, number: int, node: int) -> None:
        """Store the client's number and node; remove another client with the same number."""
        entry = ClientEntry(number, node, self._find_key(node))
        if self.entries.get(identity) == entry:
            return
        self.entries = self._without(number) | {identity: entry}
        self._write()

    def remove(self, number: int) -> None:
        """Remove the client with this number, which has never joined."""
        self.entries = self._without(number)
        self._write()

    def _without(self, number: int) -> dict[str, ClientEntry]:
        return {each: entry for each, entry in self.entries.items() if entry.number != number}

    def _find_key(self, node: int) -> str:
        """Return the digest of the key of a node; empty: without keys, or not known."""
        return "" if self._node_keys is None else NodeKeys(self._node_keys).find_digest(node)

    def _check_key(self, identity: str, node: int) -> None:
        known = self.entries.get(identity)
        if self._node_keys is None or known is None or known.key == "":
            return
        if known.key != self._find_key(node):
            raise Rejected(
                RejectionCode.KEY,
                f"client {known.number} joined with another key than that of node {node}; was its "
                "state folder copied? A new key needs a new state folder (--state).",
            )

    def _read(self) -> None:
        try:
            plain = unseal(self._path.read_bytes())
            self.run = str(plain["run"])
            self.entries = {
                str(identity): ClientEntry(
                    int(entry["number"]), int(entry["node"]), str(entry["key"])
                )
                for identity, entry in plain["clients"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{self._path} (the clients of the run) is damaged: {error}.") from error
        numbers = [entry.number for entry in self.entries.values()]
        if not IDENTITY.fullmatch(self.run) or len(set(numbers)) != len(numbers):
            raise RunError(
                f"{self._path} is damaged: two clients have the same number, or the run id is "
                "invalid."
            )

    def _write(self) -> None:
        clients = {identity: vars(entry) for identity, entry in self.entries.items()}
        try:
            write_file(self._path, seal({"run": self.run, "clients": clients}))
            sync_folder(self._path.parent)
        except OSError as error:
            raise RunError(f"cannot write {self._path}: {error.strerror}.") from error
