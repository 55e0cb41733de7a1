"""A malicious client: it joins like any other client and then sends invalid responses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from thalweg.core.trees import tree_from_bytes, tree_to_bytes
from thalweg.core.types import Supply
from thalweg.federation import Hello
from thalweg.network.edge.device_client import DeviceOptions
from thalweg.network.edge.invitations import read_server_plan
from thalweg.network.edge.socket import Frame, open_listener, serve_one
from thalweg.network.handshake import (
    IdentityResponse,
    Invitation,
    handshake_from_bytes,
    handshake_to_bytes,
)
from thalweg.network.wire import FORMAT, MessageSchema, to_bytes

Fields = dict[str, Any]


class Forger:
    """A daemon without data. The number of the round determines which invalid response it sends."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent: dict[int, str] = {}  # by round, from 0
        # While it is cleared, train requests are not answered, and each round waits.
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._schema: MessageSchema | None = None

    def handle(self, frame: Frame) -> Frame:
        return Frame(frame.kind, self._make_answer(frame))

    def _make_answer(self, frame: Frame) -> bytes:
        if frame.kind == "identity":
            return handshake_to_bytes(IdentityResponse(f"{0xBAD:032x}", self.number))
        if frame.kind == "invitation":
            invitation = handshake_from_bytes(frame.payload, Invitation)
            plan = read_server_plan(invitation.plan, DeviceOptions(), invitation.live)
            self._schema = MessageSchema(plan.recipe, invitation.num_params)
            return to_bytes(Hello(self.number, Supply(0.0, False, 1.0)), self._schema)
        assert self._schema is not None
        self.may_answer.wait()
        request: Any = tree_from_bytes(frame.payload)
        name = list(FORGERIES)[request["fields"]["rnd"] % len(FORGERIES)]
        self.sent[request["fields"]["rnd"]] = name
        return FORGERIES[name](valid_fields(request["fields"]), self._schema)


def valid_fields(request: Fields) -> Fields:
    """Return the fields of a valid response."""
    num, num_params = request["params"].shape
    none = np.zeros(num, dtype=np.int64)
    return {
        "rnd": request["rnd"],
        "client": request["client"],
        "models": request["models"],
        "deltas": np.full((num, num_params), 0.01, dtype=np.float32),
        "num_samples": 10,
        "num_steps": none + 1,
        "losses": np.ones(num),
        "num_tested": none,
        "num_correct": none,
        "error_sums": None,
        "probe_round": request["probe_round"],
        "reports": {},
        "uploads": {},
        "masked": None,
    }


def payload(fields: Fields) -> bytes:
    return tree_to_bytes({"thalweg": FORMAT, "kind": "TrainResponse", "fields": fields})


def set_value(value: float) -> Callable[[Fields, MessageSchema], bytes]:
    """Replace one number of the update."""

    def forge(fields: Fields, schema: MessageSchema) -> bytes:
        fields["deltas"][0, 7] = value
        return payload(fields)

    return forge


def set_fields(**claims: Any) -> Callable[[Fields, MessageSchema], bytes]:
    return lambda fields, schema: payload(fields | claims)


def wrong_shape(fields: Fields, schema: MessageSchema) -> bytes:
    return payload(fields | {"deltas": fields["deltas"][:, 1:]})


def wrong_round(fields: Fields, schema: MessageSchema) -> bytes:
    return payload(fields | {"rnd": fields["rnd"] + 1})


def oversized(fields: Fields, schema: MessageSchema) -> bytes:
    rows = 2 * schema.max_bytes // fields["deltas"].nbytes
    return payload(fields | {"deltas": np.repeat(fields["deltas"], rows, axis=0)})


FORGERIES: dict[str, Callable[[Fields, MessageSchema], bytes]] = {
    "nan": set_value(float("nan")),
    "inf": set_value(float("inf")),
    "wrong shape": wrong_shape,
    "wrong round": wrong_round,
    "oversized": oversized,
    "1e30": set_value(1e30),
    "another client": set_fields(client=0),
    "absurd count": set_fields(num_samples=10**12),
    "noise": lambda fields, schema: np.random.default_rng(0).bytes(5000),
}
REASONS = {  # part of the rejection reason of each
    "nan": "finite",
    "inf": "finite",
    "wrong shape": "shape",
    "wrong round": "rnd is",
    "oversized": "are allowed: 32 models",
    "1e30": "norm",
    "another client": "client is 0",
    "absurd count": "num_samples is 1000000000000",
    "noise": "damaged",
}


class ForgerServer:
    """Serve a forger at the socket of a node, in a thread of this process, until `close`."""

    def __init__(self, forger: Forger, path: Path) -> None:
        self._forger = forger
        self._is_over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._serve, args=(path,), daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def check(self) -> None:
        """Fail if the thread has failed: the server would wait for this client."""
        if self._error is not None:
            raise AssertionError("the forger has failed") from self._error

    def close(self) -> None:
        self._is_over.set()
        self._forger.may_answer.set()
        self._thread.join(30)

    def _serve(self, path: Path) -> None:
        try:
            with open_listener(path) as listener:
                listener.settimeout(0.2)
                while not self._is_over.is_set():
                    serve_one(listener, self._forger.handle)
        except Exception as error:
            self._error = error
