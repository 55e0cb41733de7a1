"""How a client joins a run: who are you, who am I, this is the run, I have what it takes.

    server -> node    Greeting      who are you?
    node -> server    Introduction  an identity of its own, and the run that it belongs to, if any
    server -> node    Invitation    the client's number, the plan, and what its data must look like
    node -> server    Hello, as in `messages`, or a Refusal

Either side may refuse, and says why with both sides shown. These letters are older than any agreement, so that they
are the same in every version; after them both sides hold the same `Terms`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from thalweg import __version__
from thalweg.core.errors import BadMessage
from thalweg.core.trees import tree_from_bytes, tree_to_bytes
from thalweg.network.fields import FieldReader
from thalweg.network.wire import FORMAT

HANDSHAKE_FORMAT = 1  # the form of these letters, and of nothing else
MAX_HANDSHAKE_BYTES = 1 << 20  # bytes
MAX_PLAN_CHARS = 1 << 18  # characters
MAX_SCHEMA_CHARS = 1 << 18
MAX_REASON_CHARS = 4000
IDENTITY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class IdentityRequest:
    """The server asks a node that it does not know who it is."""

    run: str  # 32 hex digits, as identities
    version: str = __version__
    format: int = FORMAT  # of the messages that follow


@dataclass(frozen=True)
class IdentityResponse:
    """A client says who it is: not where it is, nor what it is called in this run."""

    identity: str  # 32 hex digits, made once and kept with its state
    requested_number: int | None = None  # the number that it would like to have
    run: str | None = None  # the run that its state belongs to; none: none yet
    version: str = __version__
    format: int = FORMAT


@dataclass(frozen=True)
class Invitation:
    """The server gives a client its number, the plan of the run, and what it must have to take part."""

    run: str
    client: int
    plan: str  # as TOML
    shape: tuple[int, ...]  # of one sample, as the net wants it
    num_classes: int
    num_params: int  # P
    live: bool  # do clients bring data of their own?
    schema: str = ""  # if so, what these must look like (`edge/schema.py`)
    version: str = __version__
    format: int = FORMAT


@dataclass(frozen=True)
class JoinRejection:
    """One side will not have the other, and says why."""

    reason: str


HandshakeMessage = IdentityRequest | IdentityResponse | Invitation | JoinRejection
J = TypeVar("J", bound=HandshakeMessage)


def handshake_to_bytes(message: HandshakeMessage) -> bytes:
    """A message of the beginning as bytes.

    >>> handshake_from_bytes(handshake_to_bytes(JoinRejection("too old")), JoinRejection).reason
    'too old'
    """
    plain: dict[str, Any] = dict(vars(message))
    if isinstance(message, Invitation):
        plain["shape"] = np.array(message.shape, dtype=np.int64)
    if isinstance(message, JoinRejection):
        plain["reason"] = message.reason[:MAX_REASON_CHARS]
    kind = type(message).__name__
    _read(kind, plain)
    return tree_to_bytes({"joining": HANDSHAKE_FORMAT, "kind": kind, "fields": plain})


def handshake_from_bytes(payload: bytes, kind: type[J]) -> J:
    """A message of the beginning, unpacked and checked; a refusal in its place is raised."""
    if len(payload) > MAX_HANDSHAKE_BYTES:
        raise BadMessage(
            f"a letter of {len(payload)} bytes is too long: at most {MAX_HANDSHAKE_BYTES}."
        )
    tree = tree_from_bytes(payload, MAX_HANDSHAKE_BYTES)
    if not isinstance(tree, dict) or tree.keys() != {"joining", "kind", "fields"}:
        raise BadMessage("this is no letter of joining: expected joining, kind and fields.")
    head = FieldReader("the letter", {name: tree[name] for name in ("joining", "kind")})
    if (form := head.read_int("joining")) != HANDSHAKE_FORMAT:
        raise BadMessage(f"this letter of joining has form {form}, expected {HANDSHAKE_FORMAT}.")
    message = _read(head.read_choice("kind", {kind.__name__, "JoinRejection"}), tree["fields"])
    if isinstance(message, kind):
        return message
    assert isinstance(message, JoinRejection)
    raise BadMessage(message.reason)


def check_versions(
    theirs: IdentityRequest | IdentityResponse | Invitation, they: str, we: str
) -> None:
    """Refuse somebody of another version: the numbers would differ, or the messages.

    >>> check_versions(IdentityRequest("0" * 32, version="9.9", format=2), "the server", "this client")
    Traceback (most recent call last):
    thalweg.core.errors.BadMessage: the server has thalweg 9.9 (messages of format 2), this client has
    thalweg ... (messages of format ...); install the same version on both.
    """
    if (theirs.version, theirs.format) != (__version__, FORMAT):
        raise BadMessage(
            f"{they} has thalweg {theirs.version} (messages of format {theirs.format}), {we} has thalweg "
            f"{__version__} (messages of format {FORMAT}); install the same version on both."
        )


# --- one reader per kind: takes every field out and checks it ---


def _read(kind: str, plain: Any) -> HandshakeMessage:
    fields = FieldReader(kind, plain)
    message = READERS[kind](fields)
    fields.check_empty()
    return message


def _read_identity_request(fields: FieldReader) -> IdentityRequest:
    return IdentityRequest(_read_identity(fields, "run"), **_read_versions(fields))


def _read_identity_response(fields: FieldReader) -> IdentityResponse:
    return IdentityResponse(
        identity=_read_identity(fields, "identity"),
        requested_number=None
        if fields.pop_if_none("requested_number")
        else fields.read_int("requested_number"),
        run=None if fields.pop_if_none("run") else _read_identity(fields, "run"),
        **_read_versions(fields),
    )


def _read_invitation(fields: FieldReader) -> Invitation:
    return Invitation(
        run=_read_identity(fields, "run"),
        client=fields.read_int("client"),
        plan=fields.read_text("plan", MAX_PLAN_CHARS),
        shape=tuple(fields.read_counts("shape").tolist()),
        num_classes=fields.read_int("num_classes"),
        num_params=fields.read_int("num_params"),
        live=fields.read_bool("live"),
        schema=fields.read_text("schema", MAX_SCHEMA_CHARS),
        **_read_versions(fields),
    )


def _read_join_rejection(fields: FieldReader) -> JoinRejection:
    return JoinRejection(fields.read_text("reason", MAX_REASON_CHARS))


def _read_identity(fields: FieldReader, name: str) -> str:
    value = fields.read_text(name, 32)
    if not IDENTITY.fullmatch(value):
        raise BadMessage(f"{fields.where}: {name} must be 32 hex digits, got {value!r}.")
    return value


def _read_versions(fields: FieldReader) -> dict[str, Any]:
    return {"version": fields.read_text("version", 64), "format": fields.read_int("format")}


READERS: dict[str, Callable[[FieldReader], HandshakeMessage]] = {
    "IdentityRequest": _read_identity_request,
    "IdentityResponse": _read_identity_response,
    "Invitation": _read_invitation,
    "JoinRejection": _read_join_rejection,
}
