"""What model a session begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats32, ParamSlice


class ProbeRound(Protocol):
    """A round of the session's clients that changes nothing: neither clients nor server remember it."""

    def __call__(self, model: Floats32, lr_scale: float = 1.0) -> Floats32:
        """The model (P,) that comes of one round from `model`; `lr_scale` multiplies the learning rate."""
        ...


class SessionStart(Protocol):
    """Says with which model a session begins. Any object of this shape will do."""

    def init(self, model: Floats32, pieces: Sequence[ParamSlice]) -> Any:
        """What is known before the first session: the model as it was drawn, and the tensors it is made of."""
        ...

    def choose_start(
        self, notes: Any, last: Floats32, run_probe_round: ProbeRound
    ) -> tuple[Any, Floats32]:
        """A session begins. `last` is the model with which the session before ended, or was drawn."""
        ...


@dataclass(frozen=True)
class Previous:
    """Go on from the last model, whoever it was trained by."""

    def init(self, model: Floats32, pieces: Sequence[ParamSlice]) -> None:
        return None

    def choose_start(
        self, notes: None, last: Floats32, run_probe_round: ProbeRound
    ) -> tuple[None, Floats32]:
        return None, last


def check_same_net(last: Floats32, stored: npt.NDArray[Any]) -> None:
    """Refuse to mix models of different architectures."""
    if last.shape != stored.shape:
        raise ConfigError(
            f"the models of past sessions have {len(stored)} parameters, but the one that was just trained has "
            f"{len(last)}; models of another architecture cannot be mixed. Start a new run."
        )
