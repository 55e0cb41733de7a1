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
from thalweg.recipes.fields import Fields
from thalweg.recipes.wire import FORMAT

JOINING = 1  # the form of these letters, and of nothing else
LONGEST_LETTER = 1 << 20  # bytes
LONGEST_PLAN = 1 << 18  # characters
LONGEST_BLANK = 1 << 18
LONGEST_REASON = 4000
IDENTITY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Greeting:
    """The server asks a node that it does not know who it is."""

    run: str  # 32 hex digits, as identities
    version: str = __version__
    format: int = FORMAT  # of the messages that follow


@dataclass(frozen=True)
class Introduction:
    """A client says who it is: not where it is, nor what it is called in this run."""

    identity: str  # 32 hex digits, made once and kept with its state
    wish: int | None = None  # the number that it would like to have
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
    blank: str = ""  # if so, what these must look like (`edge/blank.py`)
    version: str = __version__
    format: int = FORMAT


@dataclass(frozen=True)
class Refusal:
    """One side will not have the other, and says why."""

    reason: str


Joining = Greeting | Introduction | Invitation | Refusal
J = TypeVar("J", bound=Joining)


def letter_of(message: Joining) -> bytes:
    """A message of the beginning as bytes.

    >>> letter_from(letter_of(Refusal("too old")), Refusal).reason
    'too old'
    """
    plain: dict[str, Any] = dict(vars(message))
    if isinstance(message, Invitation):
        plain["shape"] = np.array(message.shape, dtype=np.int64)
    if isinstance(message, Refusal):
        plain["reason"] = message.reason[:LONGEST_REASON]
    kind = type(message).__name__
    _read(kind, plain)
    return tree_to_bytes({"joining": JOINING, "kind": kind, "fields": plain})


def letter_from(payload: bytes, kind: type[J]) -> J:
    """A message of the beginning, unpacked and checked; a refusal in its place is raised."""
    if len(payload) > LONGEST_LETTER:
        raise BadMessage(f"a letter of {len(payload)} bytes is too long: at most {LONGEST_LETTER}.")
    tree = tree_from_bytes(payload, LONGEST_LETTER)
    if not isinstance(tree, dict) or tree.keys() != {"joining", "kind", "fields"}:
        raise BadMessage("this is no letter of joining: expected joining, kind and fields.")
    head = Fields("the letter", {name: tree[name] for name in ("joining", "kind")})
    if (form := head.whole("joining")) != JOINING:
        raise BadMessage(f"this letter of joining has form {form}, expected {JOINING}.")
    message = _read(head.word("kind", {kind.__name__, "Refusal"}), tree["fields"])
    if isinstance(message, kind):
        return message
    assert isinstance(message, Refusal)
    raise BadMessage(message.reason)


def check_versions(theirs: Greeting | Introduction | Invitation, they: str, we: str) -> None:
    """Refuse somebody of another version: the numbers would differ, or the messages.

    >>> check_versions(Greeting("0" * 32, version="9.9", format=2), "the server", "this client")
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


def _read(kind: str, plain: Any) -> Joining:
    fields = Fields(kind, plain)
    message = READERS[kind](fields)
    fields.end()
    return message


def _greeting(fields: Fields) -> Greeting:
    return Greeting(_identity(fields, "run"), **_versions(fields))


def _introduction(fields: Fields) -> Introduction:
    return Introduction(
        identity=_identity(fields, "identity"),
        wish=None if fields.is_none("wish") else fields.whole("wish"),
        run=None if fields.is_none("run") else _identity(fields, "run"),
        **_versions(fields),
    )


def _invitation(fields: Fields) -> Invitation:
    return Invitation(
        run=_identity(fields, "run"),
        client=fields.whole("client"),
        plan=fields.text("plan", LONGEST_PLAN),
        shape=tuple(fields.counts("shape").tolist()),
        num_classes=fields.whole("num_classes"),
        num_params=fields.whole("num_params"),
        live=fields.yes_or_no("live"),
        blank=fields.text("blank", LONGEST_BLANK),
        **_versions(fields),
    )


def _refusal(fields: Fields) -> Refusal:
    return Refusal(fields.text("reason", LONGEST_REASON))


def _identity(fields: Fields, name: str) -> str:
    value = fields.text(name, 32)
    if not IDENTITY.fullmatch(value):
        raise BadMessage(f"{fields.where}: {name} must be 32 hex digits, got {value!r}.")
    return value


def _versions(fields: Fields) -> dict[str, Any]:
    return {"version": fields.text("version", 64), "format": fields.whole("format")}


READERS: dict[str, Callable[[Fields], Joining]] = {
    "Greeting": _greeting,
    "Introduction": _introduction,
    "Invitation": _invitation,
    "Refusal": _refusal,
}
