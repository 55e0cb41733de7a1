"""The client process: owns the state folder and the data, and handles requests in turn.

Flower starts a short-lived process for every message; the daemon runs permanently. It has no
network connection: requests arrive over a Unix socket (`network/edge/socket.py`) with the access
rights of its folder.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from thalweg.aggregation.secure_aggregation import NOT_REVIEWED
from thalweg.core.errors import BadMessage, ThalwegError
from thalweg.core.files import sync_folder, write_file
from thalweg.federation import TrainResponse
from thalweg.network.edge.database import translate_errors
from thalweg.network.edge.device_client import DeviceClient, DeviceOptions
from thalweg.network.edge.device_limits import RoundTimer, limit_join_time
from thalweg.network.edge.invitations import (
    check_client_number,
    check_same_invitation,
    check_same_plan,
    make_device_client,
    read_server_plan,
)
from thalweg.network.edge.socket import Frame, compute_digest, open_listener, serve_one
from thalweg.network.edge.store import Membership, Store
from thalweg.network.handshake import (
    IdentityRequest,
    IdentityResponse,
    Invitation,
    JoinRejection,
    check_versions,
    handshake_from_bytes,
    handshake_to_bytes,
)
from thalweg.network.rejections import TEXTS, Rejected, RejectionCode, find_code
from thalweg.network.wire import read_request, read_response

INVITATION_FILE = "invitation"  # file in the state folder with the invitation, for the next start
DaemonEvent = Mapping[str, Any]


class Daemon:
    """One client between start and stop. `rejected` is the reason if it may not participate."""

    def __init__(
        self,
        store: Store,
        options: DeviceOptions,
        wanted_client: int | None = None,
        on_event: Callable[[DaemonEvent], None] = lambda event: None,
    ) -> None:
        self._store, self._options, self._wanted_client, self._on_event = (
            store,
            options,
            wanted_client,
            on_event,
        )
        self._device_client: DeviceClient | None = None
        self._invitation: Invitation | None = None
        self.rejection_reason: str | None = None
        self._last_refusal = ""
        self._timer = RoundTimer(store, options.limits.min_interval_s)
        self._restore_membership()

    def handle(self, frame: Frame) -> Frame:
        """Handle one frame. No input can end the process; a rejection stops it."""
        try:
            return Frame(frame.kind, self._dispatch(frame))
        except ThalwegError as error:
            print(f"rejected a message: {error}", file=sys.stderr, flush=True)
            self._report_refusal(str(error))
            return Frame("rejected", reason=find_code(error).value)
        except Exception as error:
            traceback.print_exc()
            return Frame("rejected", reason=find_code(error).value)

    def serve(self, path: Path, is_over: Callable[[], bool] = lambda: False) -> None:
        """Handle requests in turn until `is_over` or the client is rejected."""
        with open_listener(path) as listener:
            listener.settimeout(0.5)
            self._on_event(
                {"event": "ready", "identity": self._store.identity, "socket": str(path)}
            )
            while self.rejection_reason is None and not is_over():
                serve_one(listener, self.handle)

    def close(self) -> None:
        if self._device_client is not None:
            self._device_client.close()
            self._device_client = None

    def _dispatch(self, frame: Frame) -> bytes:
        if frame.kind == "identity":
            return self._introduce(handshake_from_bytes(frame.payload, IdentityRequest))
        if frame.kind == "invitation":
            return self._accept(handshake_from_bytes(frame.payload, Invitation))
        if frame.kind == "rejection":
            code = handshake_from_bytes(frame.payload, JoinRejection).code
            return self._reject(Rejected(code, f"the server rejects this client: {TEXTS[code]}."))
        if frame.kind != "request":
            raise BadMessage(f"unknown kind of frame: {frame.kind[:40]!r}.")
        if self._device_client is None:
            raise Rejected(RejectionCode.NO_INVITATION)
        self._check_interval(frame.payload)
        response = self._device_client.handle(frame.payload)
        self._report_round(response)
        return response

    def _check_interval(self, payload: bytes) -> None:
        """Reject a new request that comes too early; a repeated one gets its stored response."""
        if not self._options.limits.min_interval_s:
            return
        assert self._device_client is not None
        if self._store.find_response(compute_digest(payload)) is None:
            self._timer.start(read_request(payload, self._device_client.message_schema).rnd)

    # --- joining ---

    def _introduce(self, greeting: IdentityRequest) -> bytes:
        try:
            check_versions(greeting, "the server", "this client")
        except BadMessage as error:
            return self._reject(error)
        member = self._store.read_membership()
        own = None if member is None else member.run
        return handshake_to_bytes(IdentityResponse(self._store.identity, self._wanted_client, own))

    def _accept(self, invitation: Invitation) -> bytes:
        """Join a run, or confirm the current one; any invalid invitation is a rejection."""
        try:
            check_versions(invitation, "the server", "this client")
            if self._invitation is None:
                self._join_run(invitation)
            else:
                check_same_invitation(invitation, self._invitation)
            assert self._device_client is not None
            return self._device_client.hello()
        except Exception as error:
            if not isinstance(error, ThalwegError):
                traceback.print_exc()
            return self._reject(error)

    def _join_run(self, invitation: Invitation) -> None:
        member = Membership(invitation.run, invitation.client, invitation.plan)
        check_client_number(invitation, self._wanted_client)
        check_same_plan(self._store.read_membership(), member)
        limits = self._options.limits
        limits.check_params(invitation.num_params)
        with limit_join_time():
            plan = read_server_plan(invitation.plan, self._options, invitation.live)
            limits.check_plan(plan)
            limits.check_net(plan.scenario.net)
            device_client = make_device_client(plan, invitation, self._store, self._options)
        try:
            self._store.join(member)
            self._write_invitation(invitation)
        except BaseException:
            device_client.close()
            raise
        self._device_client, self._invitation = device_client, invitation
        event = {"event": "joined", "run": member.run, "client": member.client, "plan": plan.title}
        if plan.recipe.secure_aggregation is not None:
            event["note"] = f"secure aggregation: {NOT_REVIEWED}"
        self._on_event(event)

    def _write_invitation(self, invitation: Invitation) -> None:
        folder = self._store.folder
        with translate_errors(folder):
            write_file(folder / INVITATION_FILE, handshake_to_bytes(invitation))
            sync_folder(folder)

    def _restore_membership(self) -> None:
        """Continue after a restart as the same client, without a new invitation."""
        member, file = self._store.read_membership(), self._store.folder / INVITATION_FILE
        if member is None or not file.exists():
            return
        try:
            invitation = handshake_from_bytes(file.read_bytes(), Invitation)
            if Membership(invitation.run, invitation.client, invitation.plan) == member:
                check_versions(invitation, "this state folder", "this client")
                self._join_run(invitation)
        except BadMessage as error:
            self._on_event({"event": "waiting", "reason": f"for an invitation: {error}"})

    def _reject(self, error: Exception) -> bytes:
        """Stop, because this client cannot participate. The server gets the code only."""
        self.rejection_reason = str(error) or type(error).__name__
        return handshake_to_bytes(JoinRejection(find_code(error)))

    def _report_refusal(self, reason: str) -> None:
        """Tell the owner why a request was refused; the same reason once in a row."""
        if reason != self._last_refusal:
            self._last_refusal = reason
            self._on_event({"event": "refused", "reason": reason})

    def _report_round(self, response: bytes) -> None:
        assert self._device_client is not None
        message = read_response(response, self._device_client.message_schema)
        if isinstance(message, TrainResponse) and not message.probe_round:
            losses = message.losses[message.num_steps > 0]
            self._on_event(
                {
                    "event": "round",
                    "round": message.rnd + 1,
                    "loss": float(losses.mean()) if len(losses) else None,
                    "num_samples": message.num_samples,
                    "num_steps": int(message.num_steps.sum()),
                }
            )


def print_event(event: DaemonEvent) -> None:
    """Print one JSON line; the reader may have ended."""
    with suppress(OSError, ValueError):
        print(json.dumps(event), file=sys.stdout, flush=True)
