"""Why one side rejects the other: codes with fixed texts.

A rejection on the network is a code. It contains nothing of a device: no path, no file content, no
text of an exception. Both sides know the text of each code, and the device prints the details.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from thalweg.core.errors import BadMessage, ConfigError, DataError, Diverged, RunError
from thalweg.core.registry import NotRegistered, TooLarge


class RejectionCode(StrEnum):
    """A reason for a rejection."""

    VERSION = "version"
    MESSAGE = "message"
    PLAN = "plan"
    NOT_REGISTERED = "not-registered"
    TOO_LARGE = "too-large"
    MODEL = "model"
    DATA_MODE = "data-mode"
    DATA = "data"
    CLIENT_NUMBER = "client-number"
    RUN = "run"
    NO_INVITATION = "no-invitation"
    ROUND = "round"
    RECIPE = "recipe"
    FREQUENCY = "frequency"
    PRIVACY = "privacy"
    BUDGET = "budget"
    STATE = "state"
    KEY = "key"
    FULL = "full"
    INTERNAL = "internal"


TEXTS: dict[RejectionCode, str] = {
    RejectionCode.VERSION: "the versions of thalweg differ; install the same one on both sides",
    RejectionCode.MESSAGE: "a message is damaged, unknown or invalid",
    RejectionCode.PLAN: "the plan of the server is invalid for this client",
    RejectionCode.NOT_REGISTERED: (
        "the plan names a file, a module or a component that the client has not registered"
    ),
    RejectionCode.TOO_LARGE: "the plan exceeds a limit of the client on sizes, memory or numbers",
    RejectionCode.MODEL: "server and client have different models (--model)",
    RejectionCode.DATA_MODE: (
        "the client's data do not suit the run: a live run needs a source of samples (--data "
        "SOURCE), any other run needs --data replay"
    ),
    RejectionCode.DATA: "the data of the client cannot be used, or have another shape",
    RejectionCode.CLIENT_NUMBER: (
        "the client requests a number that is not free, or other than its own (--client)"
    ),
    RejectionCode.RUN: (
        "the client's state folder belongs to another run or plan; join with another one (--state)"
    ),
    RejectionCode.NO_INVITATION: "the client has no invitation yet",
    RejectionCode.ROUND: "the request is for another client, repeated, or late",
    RejectionCode.RECIPE: "the client does not allow this recipe (--recipes)",
    RejectionCode.FREQUENCY: "the client takes part less often (--min-interval)",
    RejectionCode.PRIVACY: "the client requires noise or secure aggregation for its updates",
    RejectionCode.BUDGET: "the client's privacy budget is used up",
    RejectionCode.STATE: "the client cannot use its state folder",
    RejectionCode.KEY: (
        "a key is not the expected one: the client's identity belongs to another key or node, or "
        "the client does not trust a key in a sum (--peers)"
    ),
    RejectionCode.FULL: "all clients of the run have joined already",
    RejectionCode.INTERNAL: "the client failed; its log has the details",
}


class Rejected(BadMessage):
    """A rejection with its code; the message has the details, which stay on this side."""

    def __init__(self, code: RejectionCode, details: str = "") -> None:
        super().__init__(details or f"{TEXTS[code]}.")
        self.code = code


def find_code(error: BaseException) -> RejectionCode:
    """Return the code of an error.

    >>> find_code(BadMessage("three bytes")).value, find_code(ValueError()).value
    ('message', 'internal')
    """
    if isinstance(error, Rejected):
        return error.code
    by_class: dict[type[BaseException], RejectionCode] = {
        NotRegistered: RejectionCode.NOT_REGISTERED,
        TooLarge: RejectionCode.TOO_LARGE,
        MemoryError: RejectionCode.TOO_LARGE,
        ConfigError: RejectionCode.PLAN,
        DataError: RejectionCode.DATA,
        RunError: RejectionCode.STATE,
        BadMessage: RejectionCode.MESSAGE,
        Diverged: RejectionCode.MESSAGE,
    }
    found = (code for cls, code in by_class.items() if isinstance(error, cls))
    return next(found, RejectionCode.INTERNAL)


def read_code(text: str) -> RejectionCode:
    """Return the code that another machine sent; `INTERNAL` if it is unknown.

    >>> read_code("full").value, read_code("/etc/passwd").value
    ('full', 'internal')
    """
    return RejectionCode(text) if text in list(RejectionCode) else RejectionCode.INTERNAL


def describe_code(text: str) -> str:
    """Return the text of a code that another machine sent.

    >>> describe_code("full"), describe_code("/etc/passwd")
    ('all clients of the run have joined already', 'an unknown reason')
    """
    return TEXTS[RejectionCode(text)] if text in list(RejectionCode) else "an unknown reason"


def describe_absent(event: Mapping[str, Any]) -> str:
    """Describe the clients of a `waiting` event that tried to join without success.

    >>> describe_absent({"rejected": {"data-mode": 2, "version": 1}, "failing": 1})
    '; rejected so far: 3 (data-mode: 2, version: 1); connected, but not joined: 1'
    >>> describe_absent({"rejected": {}, "failing": 0})
    ''
    """
    rejected, failing = event.get("rejected") or {}, event.get("failing")
    codes = ", ".join(f"{code}: {count}" for code, count in rejected.items())
    text = f"; rejected so far: {sum(rejected.values())} ({codes})" if rejected else ""
    return text + (f"; connected, but not joined: {failing}" if failing else "")
