"""Handshake messages: they survive encoding, and invalid ones are rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg import __version__
from thalweg.core.errors import BadMessage
from thalweg.core.trees import tree_from_bytes, tree_to_bytes
from thalweg.network.handshake import (
    HandshakeMessage,
    IdentityRequest,
    IdentityResponse,
    Invitation,
    JoinRejection,
    check_versions,
    handshake_from_bytes,
    handshake_to_bytes,
)
from thalweg.network.rejections import RejectionCode
from thalweg.network.wire import FORMAT

RUN, IDENTITY = "0123456789abcdef" * 2, "f" * 32
INVITATION = Invitation(RUN, 3, "seed = 1", (8, 8, 1), 10, 4810, live=False)
MESSAGES: list[HandshakeMessage] = [
    IdentityRequest(RUN),
    IdentityResponse(IDENTITY),
    IdentityResponse(IDENTITY, requested_number=0, run=RUN),
    INVITATION,
    *map(JoinRejection, RejectionCode),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_handshake_messages_round_trip(message: HandshakeMessage) -> None:
    assert handshake_from_bytes(handshake_to_bytes(message), type(message)) == message


def test_join_rejection_in_place_of_a_message_raises_its_reason() -> None:
    with pytest.raises(BadMessage, match=r"^all clients of the run have joined already\.$"):
        handshake_from_bytes(
            handshake_to_bytes(JoinRejection(RejectionCode.FULL)), IdentityResponse
        )


def test_message_of_another_kind_is_rejected() -> None:
    with pytest.raises(BadMessage, match="kind must be one of"):
        handshake_from_bytes(handshake_to_bytes(IdentityRequest(RUN)), IdentityResponse)


@pytest.mark.parametrize(
    "name, value, reason",
    [
        ("run", RUN[:-1], "run must be 32 hex digits"),
        ("run", RUN.upper(), "run must be 32 hex digits"),
        ("run", None, "run must be a text"),
        ("client", -1, "client must be an integer"),
        ("plan", "x" * (1 << 18 | 1), "plan must be a text of at most 262144"),
        ("shape", [8, 8], "shape must be a list"),
        ("shape", np.array([-8]), "shape must be integers"),
        ("num_classes", 2.5, "num_classes must be an integer"),
        ("live", 1, "live must be true or false"),
        ("extra", 1, "the field 'extra' is not known"),
    ],
)
def test_invalid_fields_are_rejected_by_name(name: str, value: object, reason: str) -> None:
    tree = tree_from_bytes(handshake_to_bytes(INVITATION))
    tree["fields"][name] = value
    with pytest.raises(BadMessage, match=reason):
        handshake_from_bytes(tree_to_bytes(tree), Invitation)


def test_message_that_is_too_long_is_rejected() -> None:
    with pytest.raises(BadMessage, match="at most 1048576 are allowed"):
        handshake_from_bytes(bytes(1 << 21), IdentityRequest)


@given(st.binary(max_size=200))
def test_random_bytes_are_rejected(payload: bytes) -> None:
    with pytest.raises(BadMessage):
        handshake_from_bytes(payload, IdentityRequest)


@given(st.integers(0, 400), st.integers(0, 255))
def test_message_with_one_wrong_byte_is_rejected_or_valid(place: int, value: int) -> None:
    damaged = bytearray(handshake_to_bytes(INVITATION))
    damaged[place % len(damaged)] = value
    try:
        message = handshake_from_bytes(bytes(damaged), Invitation)
    except BadMessage:
        return
    assert handshake_from_bytes(handshake_to_bytes(message), Invitation) == message


def test_another_version_or_format_is_rejected_with_both_versions_named() -> None:
    check_versions(IdentityRequest(RUN), "the server", "this client")
    for other in (
        replace(IdentityRequest(RUN), version="0.0.7"),
        replace(IdentityRequest(RUN), format=FORMAT + 1),
    ):
        with pytest.raises(BadMessage) as caught:
            check_versions(other, "the server", "this client")
        for part in (
            f"the server has thalweg {other.version} (message format {other.format})",
            f"this client has thalweg {__version__} (message format {FORMAT})",
        ):
            assert part in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"run": "f" * 32},
        {"plan": "seed = 2"},
        {"shape": (8, 8, 2)},
        {"num_classes": 11},
        {"num_params": 4811},
        {"live": True},
        {"schema": "{}"},
        {"tensors": "a 1"},
        {"version": "0"},
    ],
)
def test_common_digest_covers_all_but_the_number_of_the_client(change: dict[str, Any]) -> None:
    assert replace(INVITATION, client=4).common_digest == INVITATION.common_digest
    assert replace(INVITATION, **change).common_digest != INVITATION.common_digest
    decoded = handshake_from_bytes(handshake_to_bytes(INVITATION), Invitation)
    assert decoded.common_digest == INVITATION.common_digest, "both sides have the same digest"
