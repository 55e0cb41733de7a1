"""What a local objective is: a pure function of parameters, a batch and a memo, for K clients at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from thalweg.core.capabilities import ModelProbe
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats32, Ints

if TYPE_CHECKING:
    from torch import Tensor

Model = Callable[["Tensor", "Tensor"], "Tensor"]  # params (K, P), x (K, B, ...) -> logits (K, B, C)
Features = Callable[  # the same -> logits (K, B, C), and what the last layer reads (K, B, F)
    ["Tensor", "Tensor"], tuple["Tensor", "Tensor"]
]
Memo = Mapping[str, "Tensor"]  # at least "start": the parameters the round began with, (K, P)


class Batch(NamedTuple):
    """One mini-batch of each of K clients. Shorter ones are padded with weight zero."""

    x: Tensor  # (K, B, *input_shape), or whole numbers (K, B, L)
    labels: Tensor  # (K, B) int64
    weights: Tensor  # (K, B) what each sample counts; 1 / size in ordinary training, 0 for padding


def without_dropout(model: Model) -> Model:
    """The model as a teacher sees it: without dropout."""
    return getattr(model, "still", model)


def with_features(model: Model) -> Features:
    """The model with what its last layer reads; every model that an engine trains can say that."""
    found: Features | None = getattr(model, "with_features", None)
    if found is None:
        raise ConfigError(
            f"this objective looks at features, which are what the last layer of a net reads; the model "
            f"{model!r} has no method with_features. Give it one, as engine.models.NetModel has."
        )
    return found


class Objective(Protocol):
    """What a client minimises. Any object of this shape will do.

    Pure, and written for K clients at once, because one code then serves both engines: the fast one
    calls it with a few clients stacked, the reference one with a stack of one. Clients must not look
    at one another: the loss of client k may depend on row k of everything, and on nothing else.
    """

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        """(K,) each client's loss, differentiable in params (K, P)."""


@runtime_checkable
class StatefulObjective(Protocol):
    """An objective that keeps something at the client, from tick to tick and from round to round."""

    def init(self, num_params: int) -> Any:
        """What a client knows before its first round."""
        ...

    def start_tick(self, state: Any, look: ModelProbe, rows: Ints, changed: bool) -> Any:
        """Called before samples arrive. `rows` are still the old ones; `changed`: the ones to come
        are from another latent state than the last that came. Never true at a client's first tick."""
        ...

    def memo(self, state: Any, start: Floats32) -> Mapping[str, Floats32]:
        """(P,) vectors that `loss` will find in its memo; always the same names."""
        ...


class TrainingSummary(NamedTuple):
    """What a client's round came to."""

    start: Floats32  # (P,) the parameters it received
    params: Floats32  # (P,) those it has now
    num_steps: int
    lr: float  # with which it went, paces included
    momentum: float


@runtime_checkable
class FinishesRound(Protocol):
    """An objective that remembers (`StatefulObjective`) and wants to know what came of a round."""

    def finish_round(
        self, state: Any, broadcast: Mapping[str, Floats32], summary: TrainingSummary
    ) -> tuple[Any, Mapping[str, Floats32]]:
        """What the client keeps after its last step, and vectors for the half at the server (`ServerHalf`), by name."""
        ...


@runtime_checkable
class ResetsPerSession(Protocol):
    """An objective that remembers (`StatefulObjective`) within a session only, unless `per_session` is false."""

    @property
    def per_session(self) -> bool: ...


@runtime_checkable
class UploadsFromObjective(Protocol):
    """An objective that sends something to its half at the server; see `core.talk.ServerHalf`."""

    def upload(self, look: ModelProbe, rows: Ints) -> Mapping[str, Floats32]:
        """Vectors by name, after the last step of a round; `rows` are what is in memory."""
        ...
