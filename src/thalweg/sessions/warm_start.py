from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Floats32, Ints, ParamSlice
from thalweg.core.vectors import blend, freeze
from thalweg.sessions.base import ProbeRound, check_same_net
from thalweg.theory import blend_distances, softmin


class WarmStartState(NamedTuple):
    """Models and fingerprints of past sessions; the vectors are read-only."""

    sessions: int  # number of sessions so far
    compared_slices: Ints  # (tensors, 2) start and stop of the compared tensors
    initial_model: Floats32  # (P,) the initial model of the run; empty when no longer needed
    pilots: list[Floats32]  # final models of the pilot sessions; empty once the pilot is computed
    pilot: Floats32  # (P,) the pilot model; empty before
    models: list[Floats32]  # final models of the later sessions, oldest first
    numbers: Ints  # (Z,) the numbers of the same sessions
    fingerprints: list[Floats32]  # of the same sessions and of the current one
    fingerprint_distances: Floats  # (n, n) between the fingerprints, for keep="diverse"
    distances: Floats  # (Z,) from the fingerprint of the current session; empty: no choice


@dataclass(frozen=True)
class WarmStart:
    r"""Starts a session with a similarity-weighted average of the final models of past sessions.

    The mean of the final models of the first P sessions is the pilot model. Each later session
    starts with V probe rounds from the pilot, which change no state. The change that they make to
    the pilot is the fingerprint :math:`G_s` of the session. Past sessions with similar fingerprints
    get larger weights:

    .. math::
        G_s = w^{(V)} - w_{pilot}, \qquad
        x_s = \sum_{z=P}^{s-1} a_z\, w_z^{last}, \qquad
        a_z = \frac{e^{-R\, d(G_s, G_z)}}{\sum_{z'} e^{-R\, d(G_s, G_{z'})}}

    Session P has no past sessions and starts with `first_start`. Session P + 1 has one and
    starts with its final model.

    Symbols, Chang et al. -> here
        P, V, R              -> pilot_sessions, probe_rounds, scale
        :math:`w_z^{last}`   -> model after the last round of session z
        :math:`w^{(V)}`      -> model after V probe rounds
        d                    -> distance, see `theory.blend_distances`

    Differs from the paper's text: the fingerprint is the change of V rounds, not of V - 1, and the
    distance is that of the released code, tensor by tensor and without biases. Differs from that
    code: probe rounds do not change the clients, and session P starts with the pilot
    (``first_start="random"`` for the code's behaviour).

    The fingerprints of the past sessions are 3 and 0, the new one is 2, so the distances are 1 and
    2. With R = ln 3 the weights are 3/4 and 1/4, and the final models 8 and 4 give 7:

    >>> rule = WarmStart(pilot_sessions=0, distance="raw", scale=np.log(3))
    >>> as_model = lambda value: np.array([value], dtype=np.float32)
    >>> state = rule.init(as_model(0), [])
    >>> for last, change in ((0, 3), (8, 0), (4, 2)):
    ...     probe_round = lambda model, lr_scale: model + change
    ...     state, start = rule.choose_start(state, as_model(last), probe_round)
    >>> round(float(start[0]), 6)
    7.0
    """

    pilot_sessions: int = 1
    """Sessions whose final models are averaged to the pilot; 0: the run's initial model."""
    random_pilot: bool = False
    """Whether the pilot is the run's initial model instead, with the same sessions (an ablation of
    the paper)."""
    probe_rounds: int = 1
    """Probe rounds at the start of a session, from the pilot."""
    scale: float = 10.0
    """Sharpness of the weights. 0: the plain mean of past sessions; inf: the most similar one."""
    distance: Literal["per_tensor_unit", "global_unit", "raw", "inner_product"] = "per_tensor_unit"
    """Distance between fingerprints; per_tensor_unit and inner_product ignore biases."""
    first_start: Literal["pilot", "latest", "random"] = "pilot"
    """Start of the first session after the pilots: the pilot, the last model, or the run's initial
    model."""
    probe_lr_scale: float = 0.5
    """Factor of the clients' initial learning rate in probe rounds."""
    history: int | None = None
    """Maximum number of past sessions to store; none: all."""
    keep: Literal["newest", "diverse"] = "newest"
    """Which sessions to store if there are too many: the newest, or diverse ones (of the two most
    similar sessions the older one is dropped)."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            pilot_sessions="[0, inf)",
            probe_rounds="[1, MODELS]",
            scale="[0, inf]",
            probe_lr_scale="(0, inf)",
            history="[1, inf) or none",
        )
        require(
            self.history is not None or self.keep == "newest",
            'keep="diverse" needs a history, got none (all sessions are stored); set one, such as '
            "history=20.",
        )
        require(
            self.pilot_sessions > 0 or not self.random_pilot,
            "random_pilot replaces the mean of the pilot sessions, got pilot_sessions=0, whose "
            "pilot is the initial model already; remove random_pilot.",
        )

    @property
    def max_probe_rounds(self) -> int:
        return self.probe_rounds

    def init(self, model: Floats32, pieces: Sequence[ParamSlice]) -> WarmStartState:
        is_used = self.first_start == "random" or self.random_pilot
        initial_model = model if is_used else model[:0]
        return WarmStartState(
            sessions=0,
            compared_slices=self._find_compared_slices(len(model), pieces),
            initial_model=freeze(initial_model),
            pilots=[],
            pilot=freeze(model[:0]),
            models=[],
            numbers=np.empty(0, dtype=np.int64),
            fingerprints=[],
            fingerprint_distances=np.zeros((0, 0)),
            distances=np.empty(0),
        )

    def choose_start(
        self, state: WarmStartState, last: Floats32, run_probe_round: ProbeRound
    ) -> tuple[WarmStartState, Floats32]:
        session = state.sessions
        state = state._replace(sessions=session + 1)
        if session < self.pilot_sessions:
            # Session 0 starts with the untrained initial model, which is not part of the pilot.
            pilots = [*state.pilots, freeze(last)] if session else []
            return state._replace(pilots=pilots), last
        if session == self.pilot_sessions:
            state, start = self._make_pilot(state, last)
            return self._record_fingerprint(state, self._fingerprint(state, run_probe_round)), start
        check_same_net(last, state.pilot)
        state = state._replace(
            models=[*state.models, freeze(last)], numbers=np.append(state.numbers, session - 1)
        )
        state = self._drop_session(state)
        fingerprint = self._fingerprint(state, run_probe_round)
        distances = self._distances(state, fingerprint)
        start = blend(softmin(distances, self.scale), state.models)
        state = self._record_fingerprint(state, fingerprint, distances)
        return state._replace(distances=distances), start

    def extra_metrics(self, state: WarmStartState) -> Mapping[str, Any]:
        """Return the blend that the last session started with, if it had past sessions."""
        return {"blend": self._describe_blend(state)} if len(state.distances) else {}

    def _describe_blend(self, state: WarmStartState) -> dict[str, list[float]]:
        """Return the numbers of the past sessions, with their distances and weights."""
        return {
            "sessions": state.numbers.tolist(),
            "distances": state.distances.tolist(),
            "weights": softmin(state.distances, self.scale).tolist(),
        }

    def _make_pilot(self, state: WarmStartState, last: Floats32) -> tuple[WarmStartState, Floats32]:
        """Compute the pilot; return the state and the start of the first session after it."""
        models = [*state.pilots, last]  # without pilot sessions, the run's initial model
        pilot = blend(np.full(len(models), 1 / len(models)), models)
        if self.random_pilot:
            pilot = state.initial_model.copy()
        start = {"pilot": pilot, "latest": last, "random": state.initial_model.copy()}[
            self.first_start
        ]
        state = state._replace(pilot=freeze(pilot), pilots=[], initial_model=freeze(last[:0]))
        return state, start

    def _fingerprint(self, state: WarmStartState, run_probe_round: ProbeRound) -> Floats32:
        model = state.pilot.copy()
        for _ in range(self.probe_rounds):
            model = run_probe_round(model, self.probe_lr_scale)
        return freeze(model - state.pilot)

    def _find_compared_slices(self, size: int, pieces: Sequence[ParamSlice]) -> Ints:
        """Return the slices of the compared tensors, or one slice for the whole vector."""
        chosen = [piece[1:] for piece in pieces if "bias" not in piece.name]
        if self.distance in ("raw", "global_unit") or not chosen:
            chosen = [(0, size)]
        return np.array(chosen, dtype=np.int64)

    def _distances(self, state: WarmStartState, fingerprint: Floats32) -> Floats:
        """Return the distances to the fingerprints of the stored sessions."""
        if not state.fingerprints:
            return np.empty(0)
        slices = state.compared_slices.tolist()
        current, *past = (
            [vector[start:stop] for start, stop in slices]
            for vector in (fingerprint, *state.fingerprints)
        )
        return blend_distances(current, past, self.distance)

    def _record_fingerprint(
        self, state: WarmStartState, fingerprint: Floats32, distances: Floats | None = None
    ) -> WarmStartState:
        """Add the fingerprint of the session that starts."""
        fingerprint_distances = state.fingerprint_distances
        if self.keep == "diverse":
            row = np.empty(0) if distances is None else distances
            fingerprint_distances = np.block(
                [[fingerprint_distances, row[:, None]], [row[None], np.zeros((1, 1))]]
            )
        fingerprints = [*state.fingerprints, fingerprint]
        return state._replace(
            fingerprints=fingerprints, fingerprint_distances=fingerprint_distances
        )

    def _drop_session(self, state: WarmStartState) -> WarmStartState:
        """Drop one of the past sessions if there are too many."""
        if self.history is None or len(state.models) <= self.history:
            return state
        dropped = older_of_nearest(state.fingerprint_distances) if self.keep == "diverse" else 0
        fingerprint_distances = state.fingerprint_distances
        if len(fingerprint_distances):
            fingerprint_distances = np.delete(
                np.delete(fingerprint_distances, dropped, axis=0), dropped, axis=1
            )
        return state._replace(
            models=[*state.models[:dropped], *state.models[dropped + 1 :]],
            numbers=np.delete(state.numbers, dropped),
            fingerprints=[*state.fingerprints[:dropped], *state.fingerprints[dropped + 1 :]],
            fingerprint_distances=fingerprint_distances,
        )


def older_of_nearest(fingerprint_distances: Floats) -> int:
    """Return the older of the two closest sessions, given distances (n, n), oldest first.

    >>> older_of_nearest(np.array([[0.0, 9.0, 5.0], [9.0, 0.0, 1.0], [5.0, 1.0, 0.0]]))
    1
    """
    above = np.triu(np.ones_like(fingerprint_distances, dtype=bool), 1)
    return int(np.where(above, fingerprint_distances, np.inf).argmin()) // len(
        fingerprint_distances
    )
