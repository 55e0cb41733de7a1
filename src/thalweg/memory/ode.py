from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.claims import Claim, check_vector
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Floats32, Ints, LastLayer, MemoryContext
from thalweg.memory.base import round_count
from thalweg.memory.importance import replace_samples, require_last_layer

GRADIENT = "gradient"


class LocalGradient(NamedTuple):
    """Mean gradient of the samples that came since the last upload; empty before the first look."""

    mean: Floats32  # (C (F + 1),)
    num: int


class GlobalGradient(NamedTuple):
    """The server's estimate, and what every client said last."""

    num_clients: int
    mean: Floats32  # (C (F + 1),), empty before anybody spoke
    senders: Ints  # (S,) clients that have spoken
    last: Floats32  # (S, C (F + 1))


@dataclass(frozen=True)
class Ode:
    r"""ODE: samples whose gradient points where the whole federation's does stay.

    The value of a sample is the inner product of its gradient in the last layer, under the *received*
    model, with an estimate of the global gradient :math:`\hat G`,

    .. math::  (\mathrm{softmax}(z) - \mathrm{onehot}(y))^\top \hat G\, [h; 1]

    A new sample takes the place of the held one of the lowest value if its own is not lower, at most
    ``budget * capacity`` times per tick. Clients send the mean gradient of what has come since they sent
    last; the server corrects its estimate by what changed, :math:`\hat G \leftarrow \hat G + \sum_c
    \zeta_c (g_c - g_c^{last})`, with :math:`\zeta_c = 1/N`, since all memories have one size.

    Differs from Gong et al. 2023: last layer only, no coordination of labels, and :math:`\hat G = 0`
    instead of everybody's true gradient before the first round, so that at first the newest stay.
    """

    budget: float = 0.5
    """Largest share of the memory that one tick may renew."""
    estimate: Literal["incremental", "participants"] = "incremental"
    """participants: the mean of those who have just spoken, as the released code does by default."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, budget="(0, 1]")

    @property
    def probed_model(self) -> Literal["received"]:
        return "received"

    # --- at the client ---

    def init(self, capacity: int, held: int) -> LocalGradient:
        return LocalGradient(np.empty(0, dtype=np.float32), 0)

    def keep(
        self, state: LocalGradient, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[LocalGradient, Ints]:
        last_layer = require_last_layer(intake, self)
        worth = sample_values(last_layer, intake.broadcast.get(GRADIENT))
        new = LastLayer(*(part[intake.held :] for part in last_layer))
        following = add_samples(state, new)
        free = intake.capacity - intake.held
        allowed = max(round_count(self.budget * intake.capacity, None), free)
        going, coming = choose_exchanges(worth[: intake.held], worth[intake.held :], free, allowed)
        return following, replace_samples(intake.held, going, coming)

    def upload(self, state: LocalGradient) -> tuple[LocalGradient, Mapping[str, Floats32]]:
        return LocalGradient(state.mean, 0), {GRADIENT: state.mean}

    # --- at the server ---

    def init_server(self, num_clients: int, num_params: int) -> GlobalGradient:
        nothing = np.empty(0, dtype=np.float32)
        senders = np.empty(0, dtype=np.int64)
        return GlobalGradient(num_clients, nothing, senders, nothing.reshape(0, 0))

    def broadcast(self, notes: GlobalGradient, clients: Ints) -> Mapping[str, Floats32]:
        if not len(notes.mean):
            return {}
        return {GRADIENT: np.broadcast_to(notes.mean, (len(clients), len(notes.mean)))}

    def validate_claim(self, claim: Claim) -> str | None:
        """A gradient of the last layer, the same number of features for every class, or nothing yet."""
        if reason := check_vector(claim.uploads, GRADIENT):
            return reason
        length, classes = claim.uploads[GRADIENT].shape[-1], claim.num_classes or 1
        if length > claim.num_params or length % classes:
            return (
                f"{GRADIENT} has {length} numbers, which no last layer for {classes} classes has."
            )
        return None

    def collect(
        self, notes: GlobalGradient, clients: Ints, uploads: Mapping[str, Floats32]
    ) -> GlobalGradient:
        words = uploads[GRADIENT]
        if self.estimate == "participants" and words.shape[1]:
            return notes._replace(mean=words.mean(0, dtype=np.float64).astype(np.float32))
        return correct_estimate(notes, clients, words)


def sample_values(last_layer: LastLayer, gradient: Floats32 | None) -> Floats:
    """(n,) inner product of each sample's gradient with the global one; 0 while nobody knows it.

    One of another size is none: somebody has lied to the server.
    """
    errors, features = (part.astype(np.float64) for part in last_layer)
    shape = errors.shape[1], features.shape[1] + 1
    if gradient is None or gradient.size != shape[0] * shape[1]:
        return np.zeros(len(errors))
    G = gradient.astype(np.float64).reshape(shape)
    worth: Floats = ((errors @ G[:, :-1]) * features).sum(1) + errors @ G[:, -1]
    return worth


def add_samples(state: LocalGradient, new: LastLayer) -> LocalGradient:
    """The running mean with some more samples."""
    if not len(new.errors):
        return state
    bias = np.ones((len(new.features), 1))
    total = new.errors.astype(np.float64).T @ np.hstack([new.features, bias])  # (C, F + 1)
    count = state.num + len(new.errors)
    before = state.mean.astype(np.float64) * state.num if state.num else 0.0
    return LocalGradient(((before + total.ravel()) / count).astype(np.float32), count)


def choose_exchanges(held: Floats, new: Floats, free: int, allowed: int) -> tuple[Ints, Ints]:
    """Which held samples go, and which new ones come, one by one in the order of arrival.

    >>> [part.tolist() for part in choose_exchanges(np.array([3.0, 1.0]), np.array([0.5, 3.5, 4.0]), 0, 2)]
    [[1, 0], [1, 2]]
    """
    heap = [(value, position) for position, value in enumerate(held.tolist())]
    heapq.heapify(heap)
    come_in: dict[int, int] = {}  # place -> new sample; a place may change hands twice
    for sample, value in enumerate(new.tolist()):
        if allowed <= 0:
            break
        if free > 0:
            place, free = len(heap), free - 1
            heapq.heappush(heap, (value, place))
        elif heap and value >= heap[0][0]:
            _, place = heapq.heapreplace(heap, (value, heap[0][1]))
        else:
            continue
        come_in[place] = sample
        allowed -= 1
    going = np.array([place for place in come_in if place < len(held)], dtype=np.int64)
    added = [come_in[place] for place in sorted(come_in) if place >= len(held)]
    coming = np.array([*(come_in[place] for place in going.tolist()), *added], dtype=np.int64)
    return going, coming


def correct_estimate(notes: GlobalGradient, clients: Ints, uploads: Floats32) -> GlobalGradient:
    """The estimate after some clients have spoken; who had not spoken before had said zero."""
    if uploads.shape[1] == 0:  # nobody has seen a sample yet
        return notes
    if len(notes.mean) not in (
        0,
        uploads.shape[1],
    ):  # what was believed before cannot have been right
        notes = GlobalGradient(notes.num_clients, uploads[0, :0], clients[:0], uploads[:0, :0])
    new = clients[~np.isin(clients, notes.senders)]
    senders = np.concatenate([notes.senders, new])
    last = np.zeros((len(senders), uploads.shape[1]), dtype=np.float32)
    if len(notes.senders):
        last[: len(notes.senders)] = notes.last
    places = np.array([np.flatnonzero(senders == client)[0] for client in clients], dtype=np.int64)
    change = (uploads - last[places]).astype(np.float64).sum(0) / notes.num_clients
    before = notes.mean if len(notes.mean) else np.zeros(uploads.shape[1])
    last[places] = uploads
    return GlobalGradient(notes.num_clients, (before + change).astype(np.float32), senders, last)
