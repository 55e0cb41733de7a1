from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from thalweg.core.claims import Claim, check_names, check_vector, first_reason
from thalweg.core.config import check_literals
from thalweg.core.types import Floats, Floats32, Ints, LastLayer, MemoryContext
from thalweg.memory.base import split_slots, take_per_class
from thalweg.memory.importance import require_last_layer

GRADIENT = "gradient"


class LocalGradient(NamedTuple):
    """The mean gradient of the samples since the last upload; empty before the first sample."""

    mean: Floats32  # (C (F + 1),)
    num: int


class GlobalGradient(NamedTuple):
    """The server's estimate of the global gradient, and each client's last upload."""

    num_clients: int
    mean: Floats32  # (C (F + 1),), empty before the first upload
    senders: Ints  # (S,) clients that have uploaded
    last: Floats32  # (S, C (F + 1)) their last uploads


@dataclass(frozen=True)
class Ode:
    r"""ODE: keep the samples whose gradient is aligned with the global gradient.

    The value of a sample is the inner product of its gradient in the last layer, under the
    *received* model, with an estimate of the global gradient :math:`\hat G`:

    .. math::  (\mathrm{softmax}(z) - \mathrm{onehot}(y))^\top \hat G\, [h; 1]

    Of the held and new samples of a class, those of the highest value stay; of equal values, the
    newest. All classes have the same number of slots; slots that a class cannot fill go to the
    others. Clients upload the mean gradient of the samples that arrived since their last upload.
    The server corrects its estimate by the changes:

    .. math::  \hat G \leftarrow \hat G + \sum_c \zeta_c (g_c - g_c^{last}), \qquad \zeta_c = 1/N

    Symbols, Gong et al. (2023) -> here
        :math:`\hat G`     -> GlobalGradient.mean, reshaped to (C, F + 1)
        :math:`g_c`        -> LocalGradient.mean
        :math:`\zeta_c`    share of the data -> 1/N, the same for all clients
        z, y, h            -> LastLayer.errors = softmax(z) - onehot(y), LastLayer.features

    Differs from the paper: last layer only, and :math:`\hat G = 0` before the first round instead
    of the true gradient of all clients, so that at first the newest samples of each class stay.
    The paper's server coordinates the clients: it divides the classes among them, and each client
    stores and weights only its classes. Here each client stores all classes that it meets.

    One class, one feature that is 0, :math:`\hat G = (0, 1)`: the value of a sample is its error.
    The new sample (position 2, value 2) replaces the held one of value -1:

    >>> from thalweg.memory import make_context
    >>> last_layer = LastLayer(np.array([[1.0], [-1.0], [2.0]]), np.zeros((3, 1)))
    >>> received = {"gradient": np.array([0.0, 1.0])}
    >>> context = make_context(2, held=2, num_new=1, last_layer=last_layer, broadcast=received)
    >>> Ode().keep(Ode().init(2, 2), context, np.random.default_rng(0))[1].tolist()
    [0, 2]
    """

    needs_class_labels: ClassVar[bool] = True  # compares gradients per class

    needs_single_model = False

    quotas: Literal["equal", "none"] = "equal"
    """equal: the same number of slots for each class; none: all classes compete for the slots."""
    pool: Literal["all", "new"] = "all"
    """all: choose among held and new samples; new: among new ones, held ones are discarded."""
    estimate: Literal["incremental", "participants"] = "incremental"
    """incremental: as above; participants: mean of the round's uploads, as in the released code."""

    def __post_init__(self) -> None:
        check_literals(self)

    @property
    def probed_model(self) -> Literal["received"]:
        return "received"

    # --- client ---

    def init(self, capacity: int, held: int) -> LocalGradient:
        return LocalGradient(np.empty(0, dtype=np.float32), 0)

    def keep(
        self, state: LocalGradient, context: MemoryContext, rng: np.random.Generator
    ) -> tuple[LocalGradient, Ints]:
        last_layer = require_last_layer(context, self)
        new = LastLayer(*(part[context.held :] for part in last_layer))
        if context.num_new == 0:
            return state, np.arange(context.held)
        values = sample_values(last_layer, context.broadcast.get(GRADIENT))
        labels = np.concatenate([context.held_labels, context.new_labels])
        start = context.held if self.pool == "new" else 0
        if self.quotas == "none":
            labels = np.zeros_like(labels)  # one group
        kept = keep_most_valuable(values[start:], labels[start:], context.capacity)
        return add_samples(state, new), start + kept

    def upload(self, state: LocalGradient) -> tuple[LocalGradient, Mapping[str, Floats32]]:
        return LocalGradient(state.mean, 0), {GRADIENT: state.mean}

    # --- server ---

    def init_server(self, num_clients: int, num_params: int) -> GlobalGradient:
        nothing = np.empty(0, dtype=np.float32)
        senders = np.empty(0, dtype=np.int64)
        return GlobalGradient(num_clients, nothing, senders, nothing.reshape(0, 0))

    def broadcast(self, state: GlobalGradient, clients: Ints) -> Mapping[str, Floats32]:
        if not len(state.mean):
            return {}
        return {GRADIENT: np.broadcast_to(state.mean, (len(clients), len(state.mean)))}

    def validate_claim(self, claim: Claim) -> str | None:
        """Accept a gradient (C (F + 1),) of the last layer, or an empty one."""
        if reason := first_reason(
            check_names(claim.uploads, GRADIENT), check_vector(claim.uploads, GRADIENT)
        ):
            return reason
        length, classes = claim.uploads[GRADIENT].shape[-1], claim.num_classes or 1
        if length > claim.num_params or length % classes:
            return (
                f"{GRADIENT} has {length} numbers; expected at most {claim.num_params} and a "
                f"multiple of the {classes} classes."
            )
        return None

    def collect(
        self, state: GlobalGradient, clients: Ints, uploads: Mapping[str, Floats32]
    ) -> GlobalGradient:
        gradients = uploads[GRADIENT]
        if self.estimate == "participants" and gradients.shape[1]:
            return state._replace(mean=gradients.mean(0, dtype=np.float64).astype(np.float32))
        return correct_estimate(state, clients, gradients)


def sample_values(last_layer: LastLayer, gradient: Floats32 | None) -> Floats:
    """Return (n,) the inner product of each sample's gradient with the global gradient.

    All values are 0 if there is no global gradient yet, or if its size does not fit the last layer
    (which happens only if a client sent a forged upload).
    """
    errors, features = (part.astype(np.float64) for part in last_layer)
    shape = errors.shape[1], features.shape[1] + 1
    if gradient is None or gradient.size != shape[0] * shape[1]:
        return np.zeros(len(errors))
    G = gradient.astype(np.float64).reshape(shape)
    values: Floats = ((errors @ G[:, :-1]) * features).sum(1) + errors @ G[:, -1]
    return values


def add_samples(state: LocalGradient, new: LastLayer) -> LocalGradient:
    """Return the running mean after more samples."""
    if not len(new.errors):
        return state
    bias = np.ones((len(new.features), 1))
    total = new.errors.astype(np.float64).T @ np.hstack([new.features, bias])  # (C, F + 1)
    count = state.num + len(new.errors)
    before = state.mean.astype(np.float64) * state.num if state.num else 0.0
    return LocalGradient(((before + total.ravel()) / count).astype(np.float32), count)


def keep_most_valuable(values: Floats, labels: Ints, capacity: int) -> Ints:
    """Return the positions, ascending, of the samples to keep: equally many of each class.

    Within a class these are the samples of the highest value, and of equal values the newest.

    >>> values, labels = np.array([3.0, 1.0, 2.0, 1.0, 1.0]), np.array([0, 0, 0, 1, 1])
    >>> keep_most_valuable(values, labels, capacity=3).tolist()
    [0, 2, 4]
    """
    num_slots = min(capacity, len(values))
    available = np.bincount(labels)
    counts = split_slots((available > 0) / np.count_nonzero(available), available, num_slots)
    return take_per_class(np.lexsort((-np.arange(len(values)), -values)), labels, counts)


def correct_estimate(state: GlobalGradient, clients: Ints, uploads: Floats32) -> GlobalGradient:
    """Return the server's estimate after the uploads (K, E) of some clients.

    The last upload of a client without one counts as 0.
    """
    if uploads.shape[1] == 0:  # no client has seen a sample yet
        return state
    if len(state.mean) not in (0, uploads.shape[1]):  # the size has changed: start again
        state = GlobalGradient(state.num_clients, uploads[0, :0], clients[:0], uploads[:0, :0])
    new = clients[~np.isin(clients, state.senders)]
    senders = np.concatenate([state.senders, new])
    last = np.zeros((len(senders), uploads.shape[1]), dtype=np.float32)
    if len(state.senders):
        last[: len(state.senders)] = state.last
    rows = np.array([np.flatnonzero(senders == client)[0] for client in clients], dtype=np.int64)
    change = (uploads - last[rows]).astype(np.float64).sum(0) / state.num_clients
    before = state.mean if len(state.mean) else np.zeros(uploads.shape[1])
    last[rows] = uploads
    return GlobalGradient(state.num_clients, (before + change).astype(np.float32), senders, last)
