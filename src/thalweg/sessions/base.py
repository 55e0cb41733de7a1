"""Interface of session starts, and the two simplest ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy.typing as npt

from thalweg.core.config import check_ranges
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats32, ParamSlice
from thalweg.core.vectors import freeze


class ProbeRound(Protocol):
    """Runs one round with the clients of the session, without changing any state."""

    def __call__(self, model: Floats32, lr_scale: float = 1.0) -> Floats32:
        """Return the model (P,) after one round from `model` (P,).

        `lr_scale` multiplies the clients' learning rate. Clients and server discard the round.
        """
        ...


class SessionStart(Protocol):
    """Chooses the model with which a session starts.

    Implement `init` and `choose_start`; no base class is needed. The policy is a frozen value: its
    state is passed in and returned, and must survive a checkpoint.
    """

    def init(self, model: Floats32, pieces: Sequence[ParamSlice]) -> Any:
        """Return the state before the first session.

        `model` (P,) is the initial model of the run; `pieces` are its tensors.
        """
        ...

    def choose_start(
        self, state: Any, last: Floats32, run_probe_round: ProbeRound
    ) -> tuple[Any, Floats32]:
        """Return the next state and the model (P,) with which a session starts.

        `last` (P,) is the final model of the previous session, or the initial model of the run.
        `run_probe_round` trains a model for one round with the new clients.
        """
        ...


@runtime_checkable
class ExtraStartMetrics(Protocol):
    """A session start that records how it has chosen a model."""

    def extra_metrics(self, state: Any) -> Mapping[str, Any]:
        """Return metrics for the first round of a session, from the state after `choose_start`."""
        ...


@dataclass(frozen=True)
class Previous:
    r"""Starts a session with the final model of the previous session, as plain FedAvg does.

    .. math::  x_s = w_{s-1}^{last}

    >>> import numpy as np
    >>> last = np.array([1, 2], dtype=np.float32)
    >>> Previous().choose_start(None, last, None)[1].tolist()
    [1.0, 2.0]
    """

    needs_single_model = False

    def init(self, model: Floats32, pieces: Sequence[ParamSlice]) -> None:
        return None

    def choose_start(
        self, state: None, last: Floats32, run_probe_round: ProbeRound
    ) -> tuple[None, Floats32]:
        return None, last


class ResetState(NamedTuple):
    """The initial model of the run."""

    sessions: int  # number of sessions so far
    model: Floats32  # (P,)


@dataclass(frozen=True)
class Reset:
    r"""Starts sessions with the initial model of the run, so nothing is kept from past sessions.

    .. math::  x_s = x_0

    With `session` set, only that session is reset and the others start with the last model. The
    baselines of Chang et al. do so in the first session after the pilot sessions (``session=1``
    for one of them), where their own method has ``first_start="random"``.

    >>> import numpy as np
    >>> rule, initial, last = Reset(session=1), np.zeros(1, np.float32), np.ones(1, np.float32)
    >>> state, starts = rule.init(initial, []), []
    >>> for _ in range(3):
    ...     state, start = rule.choose_start(state, last, None)
    ...     starts.append(start.tolist())
    >>> starts
    [[1.0], [0.0], [1.0]]
    """

    session: int | None = None
    """Number of the only session to reset, counted from 0; none: all sessions."""

    def __post_init__(self) -> None:
        check_ranges(self, session="[0, inf) or none")

    def init(self, model: Floats32, pieces: Sequence[ParamSlice]) -> ResetState:
        return ResetState(0, freeze(model))

    def choose_start(
        self, state: ResetState, last: Floats32, run_probe_round: ProbeRound
    ) -> tuple[ResetState, Floats32]:
        is_reset = self.session is None or self.session == state.sessions
        following = state._replace(sessions=state.sessions + 1)
        return following, state.model.copy() if is_reset else last


def check_same_net(last: Floats32, stored: npt.NDArray[Any]) -> None:
    """Raise `ConfigError` if models of past sessions have another number of parameters."""
    if last.shape != stored.shape:
        raise ConfigError(
            f"expected a model with {len(stored)} parameters, as in past sessions, got one with "
            f"{len(last)}; models of different architectures cannot be averaged. Start a new run."
        )
