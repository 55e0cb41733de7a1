"""Serving: the protocol, and the predictors among which a client chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats

Bools = npt.NDArray[np.bool_]

LATEST = "latest"  # the model that the client received for this round; of several the main one
AVERAGED = "averaged"  # the model that the server evaluates, if it differs from the trained one
TRAINED = "trained"  # the result of the client's last local steps
LAST_LABEL = "last_label"  # the class, or the numbers, of the previous sample
ADJUSTED = "adjusted"  # classes only: the received model, adjusted by the policy to the labels
OPTIONAL = (AVERAGED, TRAINED, LAST_LABEL, ADJUSTED)
MODEL = "model"  # a model of a bank from which clients receive several, with its number


class ArrivedSamples(NamedTuple):
    """Predictions of arriving samples, in their order, by J predictors."""

    names: tuple[str, ...]  # (J,) of the predictors: always the same order, new ones at the end
    outputs: Floats
    """(J, n, C) class probabilities, or (J, n, D) numbers; nan: not available for this sample."""
    targets: npt.NDArray[Any]  # (n,) classes, or (n, D) numbers

    @property
    def is_regression(self) -> bool:
        return self.targets.dtype.kind == "f"


class Serving(Protocol):
    """Chooses among the predictors of one client by its arriving samples.

    Implement `predictors`, `init`, `serve` and `mix`; no base class is needed. The policy is a
    frozen value: its state is passed in and returned, and must survive a checkpoint.
    """

    @property
    def predictors(self) -> tuple[str, ...]:
        """The predictors of `OPTIONAL` that the policy uses besides the received models."""
        ...

    def init(self) -> Any:
        """Return the state of a client before its first sample."""
        ...

    def serve(self, state: Any, samples: ArrivedSamples) -> tuple[Any, npt.NDArray[Any]]:
        """Predict samples one after the other, each before its target is known.

        Return the next state and the predictions: classes (n,) or numbers (n, D).
        """
        ...

    def mix(self, state: Any, names: tuple[str, ...], available: Bools) -> Floats:
        """Return (J,) the weights of the available predictors for the next sample; the sum is one.

        `names` (J,) are those of the predictors, as in `serve`. At least one predictor is
        available. The weight of others is zero.
        """
        ...


@runtime_checkable
class AdjustsModel(Protocol):
    """A serving policy with the predictor `ADJUSTED`: the received model with other outputs.

    The policy computes its predictions of arriving samples in `serve`.
    """

    def get_offsets(self, state: Any) -> Floats:
        """Return (C,) what is added to the log-probabilities of the received model.

        Empty: nothing yet.
        """
        ...


@runtime_checkable
class ServesTogether(Protocol):
    """A serving policy that predicts for several clients at once, which is faster."""

    def serve_together(
        self, states: Sequence[Any], samples: ArrivedSamples, sizes: Sequence[int]
    ) -> tuple[list[Any], npt.NDArray[Any]]:
        """Return the next states and the predictions of `serve` for several clients, bit by bit.

        The first `sizes[0]` samples are those of the first client, and so on. Targets are classes.
        """
        ...


@runtime_checkable
class RestartsServing(Protocol):
    """A serving policy that forgets losses that say nothing about the present predictors."""

    def restart(self, state: Any) -> Any:
        """Return the state after an alarm, or after the bank has chosen another main model."""
        ...

    def skip_round(self, state: Any) -> Any:
        """Return the state after a round in which no sample was predicted."""
        ...
