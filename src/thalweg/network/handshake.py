"""Messages by which a client joins a run, and their encoding.

    server -> client    IdentityRequest
    client -> server    IdentityResponse  the client's identity, and the run it belongs to, if any
    server -> client    Invitation        the client's number, the plan, and the form of the data
    client -> server    Hello (`federation.messages`), or a JoinRejection

Either side can reject the other with a `JoinRejection`, which has a code and no other content
(`network/rejections.py`). Handshake messages have a format number of their own, which changes less
often than that of the other messages, so that different versions can still report that they differ.
After the handshake both sides have the same `MessageSchema`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from thalweg import __version__
from thalweg.core.errors import BadMessage
from thalweg.core.trees import tree_from_bytes, tree_to_bytes
from thalweg.network.fields import FieldReader
from thalweg.network.rejections import Rejected, RejectionCode
from thalweg.network.wire import FORMAT

HANDSHAKE_FORMAT = 4
MAX_HANDSHAKE_BYTES = 1 << 20
MAX_PLAN_CHARS = 1 << 18
MAX_SCHEMA_CHARS = 1 << 18
MAX_TENSORS_CHARS = 1 << 18
IDENTITY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class IdentityRequest:
    """The server asks a node for the identity of its client."""

    run: str  # 32 hex digits, as identities
    version: str = __version__
    format: int = FORMAT  # format number of the messages after the handshake


@dataclass(frozen=True)
class IdentityResponse:
    """A client's identity, which does not depend on its node or on its number in the run."""

    identity: str  # 32 hex digits, generated once and stored with the client's state
    requested_number: int | None = None  # None: any number
    run: str | None = None  # the run that the client's state belongs to; None: no run yet
    version: str = __version__
    format: int = FORMAT


@dataclass(frozen=True)
class Invitation:
    """The server sends a client its number, the plan of the run, and the form of its data."""

    run: str
    client: int
    plan: str  # as TOML
    shape: tuple[int, ...]  # of one sample
    num_classes: int
    num_params: int  # P
    live: bool  # whether clients have data of their own
    schema: str = ""  # if live, the form of these data as JSON (`edge/schema.py`)
    tensors: str = ""  # names and shapes of the model's tensors, one per line; empty: not checked
    version: str = __version__
    format: int = FORMAT

    @property
    def common_digest(self) -> str:
        """SHA-256 of everything but the client's number, which is equal for all clients of a run.

        Clients bind the keys of secure aggregation to it: a server that sends them different plans,
        such as a learning rate near 0 to all but one, gets no sum.
        """
        common = {name: value for name, value in vars(self).items() if name != "client"}
        text = json.dumps(common, sort_keys=True, default=int)  # sizes may be NumPy's integers
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class JoinRejection:
    """One side rejects the other."""

    code: RejectionCode


HandshakeMessage = IdentityRequest | IdentityResponse | Invitation | JoinRejection
H = TypeVar("H", bound=HandshakeMessage)


def handshake_to_bytes(message: HandshakeMessage) -> bytes:
    """Validate and encode a handshake message.

    >>> rejection = JoinRejection(RejectionCode.FULL)
    >>> handshake_from_bytes(handshake_to_bytes(rejection), JoinRejection).code.value
    'full'
    """
    plain: dict[str, Any] = dict(vars(message))
    if isinstance(message, Invitation):
        plain["shape"] = np.array(message.shape, dtype=np.int64)
    if isinstance(message, JoinRejection):
        plain["code"] = message.code.value
    kind = type(message).__name__
    _read(kind, plain)
    return tree_to_bytes({"handshake": HANDSHAKE_FORMAT, "kind": kind, "fields": plain})


def handshake_from_bytes(payload: bytes, kind: type[H]) -> H:
    """Decode and validate a handshake message; raise `Rejected` if it is a `JoinRejection`."""
    if len(payload) > MAX_HANDSHAKE_BYTES:
        raise BadMessage(
            f"a handshake message has {len(payload)} bytes, at most {MAX_HANDSHAKE_BYTES} are "
            "allowed."
        )
    tree = tree_from_bytes(payload, MAX_HANDSHAKE_BYTES)
    if not isinstance(tree, dict) or tree.keys() != {"handshake", "kind", "fields"}:
        raise BadMessage("this is not a handshake message: expected handshake, kind and fields.")
    head = FieldReader("the handshake", {name: tree[name] for name in ("handshake", "kind")})
    if (number := head.read_int("handshake")) != HANDSHAKE_FORMAT:
        raise BadMessage(
            f"this handshake message has format {number}, expected {HANDSHAKE_FORMAT}; install the "
            "same version of thalweg on both sides."
        )
    message = _read(head.read_choice("kind", {kind.__name__, "JoinRejection"}), tree["fields"])
    if isinstance(message, kind):
        return message
    assert isinstance(message, JoinRejection)
    raise Rejected(message.code)


def check_versions(
    theirs: IdentityRequest | IdentityResponse | Invitation, they: str, we: str
) -> None:
    """Reject another version, whose messages or results could differ.

    >>> request = IdentityRequest("0" * 32, version="9.9", format=2)
    >>> check_versions(request, "the server", "this client")
    Traceback (most recent call last):
    thalweg.network.rejections.Rejected: the server has thalweg 9.9 (message format 2), this client
    has thalweg ... (message format ...); install the same version on both.
    """
    if (theirs.version, theirs.format) != (__version__, FORMAT):
        raise Rejected(
            RejectionCode.VERSION,
            f"{they} has thalweg {theirs.version} (message format {theirs.format}), {we} has "
            f"thalweg {__version__} (message format {FORMAT}); install the same version on both.",
        )


# --- one reader per message class, which reads and validates every field ---


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
        tensors=fields.read_text("tensors", MAX_TENSORS_CHARS),
        **_read_versions(fields),
    )


def _read_join_rejection(fields: FieldReader) -> JoinRejection:
    return JoinRejection(RejectionCode(fields.read_choice("code", set(RejectionCode))))


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
