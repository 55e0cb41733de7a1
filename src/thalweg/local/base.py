"""Local objectives: the protocols, and the types that a loss function receives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from thalweg.core.capabilities import ModelProbe
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats32, Ints
from thalweg.losses import CrossEntropy, Loss

if TYPE_CHECKING:
    from torch import Tensor

Model = Callable[["Tensor", "Tensor"], "Tensor"]  # params (K, P), x (K, B, ...) -> logits (K, B, C)
Features = Callable[  # the same -> logits (K, B, C) and inputs of the last layer (K, B, F)
    ["Tensor", "Tensor"], tuple["Tensor", "Tensor"]
]
Memo = Mapping[str, "Tensor"]  # at least "start": the received parameters (K, P)


class Batch(NamedTuple):
    """One mini-batch of each of K clients. Shorter mini-batches are padded with weight zero."""

    x: Tensor  # (K, B, *input_shape), or integer tokens (K, B, L)
    targets: Tensor  # (K, B) int64 class labels; regression: float32 (K, B) or (K, B, D)
    weights: Tensor  # (K, B) sample weights; 1 / size in ordinary training, 0 for padding
    loss: Loss = CrossEntropy()  # of each sample: (K, B) from outputs (K, B, C) and targets


def without_dropout(model: Model) -> Model:
    """Return the model without dropout, as teachers use it."""
    return getattr(model, "still", model)


def with_features(model: Model) -> Features:
    """Return the model as a function that also returns the features (the input of the last layer).

    All models that an engine trains support this.
    """
    features: Features | None = getattr(model, "with_features", None)
    if features is None:
        raise ConfigError(
            "this objective needs the features of the model (the input of its last layer), but "
            f"{model!r} has no method with_features. Add one, as in engine.models.NetModel."
        )
    return features


def with_trained_features(model: Model) -> Features:
    """Return the model as a function that also returns features that training changes.

    The features of a linear net are its inputs, which are the same for all models; its logits take
    their place.
    """
    if getattr(model, "trains_features", True):
        return with_features(model)

    def logits_twice(params: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        logits = model(params, x)
        return logits, logits

    return logits_twice


class Objective(Protocol):
    """The loss that a client minimises.

    Implement `loss`; no base class is needed. It must be a pure function, written for K clients at
    once, because both engines use it: the fast one with several clients stacked, the reference one
    with a stack of one. The loss of client k may depend only on row k of the inputs.
    """

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        """Return (K,) the loss of each client, differentiable in `params` (K, P).

        `memo` has tensors (K, E) by name: "start", the received parameters (K, P), the vectors of
        `StatefulObjective.memo`, and those that the server part broadcasts.
        """


@runtime_checkable
class StatefulObjective(Protocol):
    """An objective with a state at each client, kept between ticks and rounds."""

    def init(self, num_params: int) -> Any:
        """Return the state of a client before its first round."""
        ...

    def start_tick(self, state: Any, probe: ModelProbe, rows: Ints, changed: bool) -> Any:
        """Return the next state. Called at the start of a tick, before samples arrive.

        `rows` are the samples held so far. `changed`: the samples about to arrive come from another
        latent state than the last ones; it is false at a client's first tick.
        """
        ...

    def memo(self, state: Any, start: Floats32) -> Mapping[str, Floats32]:
        """Return vectors (E,) for the memo of `loss`, always with the same names."""
        ...


class TrainingSummary(NamedTuple):
    """The result of a client's training in one round."""

    start: Floats32  # (P,) the received parameters
    params: Floats32  # (P,) the parameters after the last step
    num_steps: int
    lr: float  # the learning rate, with all scales applied
    momentum: float


@runtime_checkable
class FinishesRound(Protocol):
    """A `StatefulObjective` that updates its state at the end of a round."""

    def finish_round(
        self, state: Any, broadcast: Mapping[str, Floats32], summary: TrainingSummary
    ) -> tuple[Any, Mapping[str, Floats32]]:
        """Return the state after the last step, and vectors by name for the server part.

        `broadcast` has the vectors that the server part sent for this round.
        """
        ...


@runtime_checkable
class ResetsPerSession(Protocol):
    """A `StatefulObjective` whose state is reset in every session, if `per_session` is true."""

    @property
    def per_session(self) -> bool: ...


@runtime_checkable
class UploadsFromObjective(Protocol):
    """An objective that sends vectors to its server part (`core.capabilities.ServerPart`)."""

    def upload(self, probe: ModelProbe, rows: Ints) -> Mapping[str, Floats32]:
        """Return float32 vectors by name, after the last step; `rows` are the held samples."""
        ...
