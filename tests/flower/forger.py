"""A client that means harm: it joins as anybody does, and then sends whatever might break a server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from thalweg.core.trees import tree_from_bytes, tree_to_bytes
from thalweg.core.types import Supply
from thalweg.edge.socket import Parcel, listening, serve_one
from thalweg.engine.plan import plan_from_toml
from thalweg.recipes.joining import Introduction, Invitation, letter_from, letter_of
from thalweg.recipes.messages import Hello
from thalweg.recipes.wire import FORMAT, Terms, to_bytes

Fields = dict[str, Any]


class Forger:
    """What a daemon is to its node, without any data. The round says which forgery it sends."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent: dict[int, str] = {}  # by round, from 0
        self.may_speak = threading.Event()  # else it answers no order, and every round waits for it
        self.may_speak.set()
        self._terms: Terms | None = None

    def answer(self, parcel: Parcel) -> Parcel:
        return Parcel(parcel.kind, self._answered(parcel))

    def _answered(self, parcel: Parcel) -> bytes:
        if parcel.kind == "greeting":
            return letter_of(Introduction(f"{0xBAD:032x}", self.number))
        if parcel.kind == "invitation":
            invitation = letter_from(parcel.letter, Invitation)
            plan = plan_from_toml(invitation.plan, "the server's plan")
            self._terms = Terms(plan.recipe, invitation.num_params)
            return to_bytes(Hello(self.number, Supply(0.0, False, 1.0)), self._terms)
        assert self._terms is not None
        self.may_speak.wait()
        order: Any = tree_from_bytes(parcel.letter)
        name = list(FORGERIES)[order["fields"]["rnd"] % len(FORGERIES)]
        self.sent[order["fields"]["rnd"]] = name
        return FORGERIES[name](decent(order["fields"]), self._terms)


def decent(order: Fields) -> Fields:
    """A reply that nobody could object to."""
    num, num_params = order["params"].shape
    none = np.zeros(num, dtype=np.int64)
    return {
        "rnd": order["rnd"],
        "client": order["client"],
        "models": order["models"],
        "deltas": np.full((num, num_params), 0.01, dtype=np.float32),
        "num_samples": 10,
        "num_steps": none + 1,
        "losses": np.ones(num),
        "num_tested": none,
        "num_correct": none,
        "rehearsal": order["rehearsal"],
        "reports": {},
        "said": {},
        "masked": None,
    }


def letter(fields: Fields) -> bytes:
    return tree_to_bytes({"thalweg": FORMAT, "kind": "Reply", "fields": fields})


def filled(value: float) -> Callable[[Fields, Terms], bytes]:
    """One number of the update is another one."""

    def forge(fields: Fields, terms: Terms) -> bytes:
        fields["deltas"][0, 7] = value
        return letter(fields)

    return forge


def claiming(**claims: Any) -> Callable[[Fields, Terms], bytes]:
    return lambda fields, terms: letter(fields | claims)


def wrong_shape(fields: Fields, terms: Terms) -> bytes:
    return letter(fields | {"deltas": fields["deltas"][:, 1:]})


def wrong_round(fields: Fields, terms: Terms) -> bytes:
    return letter(fields | {"rnd": fields["rnd"] + 1})


def oversized(fields: Fields, terms: Terms) -> bytes:
    rows = 2 * terms.most_bytes // fields["deltas"].nbytes
    return letter(fields | {"deltas": np.repeat(fields["deltas"], rows, axis=0)})


FORGERIES: dict[str, Callable[[Fields, Terms], bytes]] = {
    "nan": filled(float("nan")),
    "inf": filled(float("inf")),
    "wrong shape": wrong_shape,
    "wrong round": wrong_round,
    "oversized": oversized,
    "1e30": filled(1e30),
    "another client": claiming(client=0),
    "absurd count": claiming(num_samples=10**12),
    "noise": lambda fields, terms: np.random.default_rng(0).bytes(5000),
}
REASONS = {  # by a part of which the refusal of each is known
    "nan": "finite",
    "inf": "finite",
    "wrong shape": "shape",
    "wrong round": "rnd is",
    "oversized": "too long",
    "1e30": "length",
    "another client": "client is 0",
    "absurd count": "num_samples is 1000000000000",
    "noise": "damaged",
}


class ForgersDoor:
    """A forger at a node's socket, in a thread of this process, until `close`."""

    def __init__(self, forger: Forger, path: Path) -> None:
        self._forger = forger
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(path,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._forger.may_speak.set()
        self._thread.join(30)

    def _serve(self, path: Path) -> None:
        with listening(path) as door:
            door.settimeout(0.2)
            while not self._is_over.is_set():
                serve_one(door, self._forger.answer)
