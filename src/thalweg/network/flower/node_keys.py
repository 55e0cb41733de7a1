"""The nodes of the registered public keys (`node_keys.json` in the server's state folder).

Flower gives a key a node id when it is registered, and never another one. The file maps node ids
to digests of keys, so that the ServerApp can bind the identity of a client to its key, and so that
a key can be revoked.
"""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization as form

from thalweg.core.errors import RunError
from thalweg.core.files import seal, sync_folder, unseal, write_file

FILE = "node_keys.json"


@dataclass
class NodeKey:
    """A registered key."""

    node: int  # Flower's id of its node
    digest: str  # of the public key
    is_revoked: bool = False


class NodeKeys:
    """The registered keys; stored in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.keys: list[NodeKey] = []
        if path.exists():
            self._read()

    def is_revoked(self, digest: str) -> bool:
        return any(key.digest == digest and key.is_revoked for key in self.keys)

    def find_digest(self, node: int) -> str:
        """Return the digest of the key of a node; empty: it is not known, or revoked."""
        found = [key.digest for key in self.keys if key.node == node and not key.is_revoked]
        return found[0] if found else ""

    def add(self, node: int, digest: str) -> None:
        """Add a key, in place of its entry in an older database of Flower."""
        self.keys = [key for key in self.keys if key.digest != digest]
        self.keys.append(NodeKey(node, digest))
        self._write()

    def revoke(self, key: NodeKey) -> None:
        key.is_revoked = True
        self._write()

    def _read(self) -> None:
        try:
            plain = unseal(self._path.read_bytes())
            self.keys = [
                NodeKey(int(key["node"]), str(key["digest"]), bool(key["is_revoked"]))
                for key in plain["keys"]
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{self._path} (the keys of the nodes) is damaged: {error}.") from error

    def _write(self) -> None:
        try:
            write_file(self._path, seal({"keys": [asdict(key) for key in self.keys]}))
            sync_folder(self._path.parent)
        except OSError as error:
            raise RunError(f"cannot write {self._path}: {error.strerror}.") from error


def find_registered_node(database: Path, file: Path) -> int | None:
    """Return the node of a key that an earlier process registered, from Flower's database.

    None if the key or the database is not there. Flower's commands do not report it.
    """
    key = form.load_ssh_public_key(file.read_bytes())
    public = key.public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
            query = "SELECT node_id FROM node WHERE public_key = ?"
            row = db.execute(query, (public,)).fetchone()
    except sqlite3.Error:
        return None
    return None if row is None else int(row[0]) % 2**64  # stored as a signed number


def compute_key_digest(file: Path) -> str:
    """Return the digest of a public key in OpenSSH format, without its comment."""
    try:
        words = file.read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"cannot read the public key {file}: {error}.") from error
    if len(words) < 2:
        raise RunError(f"{file} must be a public key in OpenSSH format.")
    return hashlib.sha256(" ".join(words[:2]).encode()).hexdigest()
