"""Interfaces of session triggers and session starts, and the two simplest session starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy.typing as npt

from thalweg.core.capabilities import Surveys
from thalweg.core.config import check_ranges
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Floats32, Ints, ParamSlice, Session
from thalweg.core.vectors import freeze


class Opening(NamedTuple):
    """Why a session was opened at run time."""

    reason: str  # in words, with the numbers
    numbers: Mapping[str, float]  # by name


class SessionTrigger(Protocol):
    """Opens sessions at run time, from what the server observes.

    The policy is a frozen value: its state is passed in and returned, and must survive a
    checkpoint. The methods are called in this order in each round.
    """

    def init(self, num_clients: int) -> Any:
        """Return the state before the first round."""
        ...

    def observe_presence(self, state: Any, rnd: int, present: Ints) -> tuple[Any, Opening | None]:
        """Return the next state, and the reason if a new session starts in this round.

        `present` are the ids of the clients that can take part, ascending. The first session starts
        in the first round with a client and needs no reason.
        """
        ...

    def get_session(self, state: Any, rnd: int) -> Session:
        """Return the session of the round that was observed last."""
        ...

    def observe_alarms(self, state: Any, rnd: int, clients: Ints) -> Any:
        """Return the next state; `clients` raised an alarm in this round."""
        ...


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


@runtime_checkable
class JudgesModels(Surveys, Protocol):
    """A session start whose clients evaluate candidate models.

    The server calls `propose_models`, surveys clients of the new session with these models
    (`Surveys`), and calls `choose_model` with their losses. `choose_start` is not called.
    """

    def propose_models(self, state: Any, last: Floats32) -> tuple[Any, Floats32]:
        """Return the next state and (k, P) candidates; a single one is not evaluated."""
        ...

    def choose_model(
        self, state: Any, candidates: Floats32, losses: Floats
    ) -> tuple[Any, Floats32]:
        """Return the next state and the model (P,) with which the session starts.

        losses (n, k): of each candidate at each client that responded.
        """
        ...

    def skip_session(self, state: Any) -> Any:
        """Return the next state when a session starts without a choice: the bank has models."""
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

    needs_single_model: ClassVar[bool] = False
    needs_sessions: ClassVar[bool] = False
    max_probe_rounds: ClassVar[int] = 0

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

    max_probe_rounds: ClassVar[int] = 0

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
