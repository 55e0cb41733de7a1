from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Floats32, Ints, ParamSlice
from thalweg.core.vectors import blend, freeze
from thalweg.sessions.base import ProbeRound, check_same_net
from thalweg.theory import blend_distances, softmin


class WarmStartState(NamedTuple):
    """What is known of past sessions. Vectors in it are never written to."""

    sessions: int  # that have begun
    compared_slices: Ints  # (tensors, 2) start and stop of what is compared
    initial_model: (
        Floats32  # (P,) the model as it was drawn; of no elements if nobody needs it any more
    )
    pilots: list[Floats32]  # the models of the pilot sessions, until the pilot is made of them
    pilot: Floats32  # (P,) of no elements before
    models: list[Floats32]  # with which the sessions after those ended, oldest first
    fingerprints: list[Floats32]  # of the same sessions, and of the one that is going on
    fingerprint_distances: (
        Floats  # (n, n) distances between the fingerprints, if they decide who is kept
    )


@dataclass(frozen=True)
class WarmStart:
    r"""Begin with a mean of the models of past sessions: the more, the more alike what their clients learn.

    The first P sessions make a pilot, the mean of the models they end with. From then on every session begins with
    V rehearsals from the pilot, which nobody remembers; what they change in it is the session's fingerprint. Then

    .. math::
        G_s = w^{(V)} - w_{pilot}, \qquad
        x_s = \sum_{z=P}^{s-1} a_z\, w_z^{last}, \qquad
        a_z \propto e^{-R\, d(G_s, G_z)}

    The first session after the pilot has no past: `first_start`. The second has one, and goes on from it.

    Symbols, Chang et al. -> here
        P, V, R   -> pilot_sessions, rehearsals, scale
        d         -> distance, see `theory.blend_distances`

    Differs from the paper's text: the fingerprint is what V rounds change, not V - 1, and the distance is that of
    the released code, tensor by tensor and without biases. Differs from that code: rehearsals change nothing at the
    clients; the first session begins with the pilot (``first_start="random"`` for the code's way).
    """

    pilot_sessions: int = 1
    """Sessions that make the pilot; 0: the pilot is the model as it was drawn."""
    probe_rounds: int = 1
    """Rounds from the pilot by which a session is known."""
    scale: float = 10.0
    """0: all past sessions count the same; inf: the nearest alone."""
    distance: Literal["per_tensor_unit", "global_unit", "raw", "inner_product"] = "per_tensor_unit"
    """Between fingerprints. Tensor by tensor (per_tensor_unit, inner_product) biases do not count."""
    first_start: Literal["pilot", "latest", "random"] = "pilot"
    """The first session after the pilot: from the pilot, the last model, or the one that was drawn."""
    probe_lr_scale: float = 0.5
    """What the clients' first learning rate is multiplied by in a rehearsal."""
    history: int | None = None
    """Past sessions that are kept; none: all."""
    keep: Literal["newest", "diverse"] = "newest"
    """Which ones, if there are too many: diverse drops the older of the two that are most alike."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            pilot_sessions="[0, inf)",
            probe_rounds="[1, inf)",
            scale="[0, inf]",
            probe_lr_scale="(0, inf)",
            history="[1, inf) or none",
        )
        require(
            self.history is not None or self.keep == "newest",
            'keep="diverse" needs a history to choose from, such as history=20; without one all are kept.',
        )

    def init(self, model: Floats32, pieces: Sequence[ParamSlice]) -> WarmStartState:
        initial_model = model if self.first_start == "random" else model[:0]
        return WarmStartState(
            sessions=0,
            compared_slices=self._find_compared_slices(len(model), pieces),
            initial_model=freeze(initial_model),
            pilots=[],
            pilot=freeze(model[:0]),
            models=[],
            fingerprints=[],
            fingerprint_distances=np.zeros((0, 0)),
        )

    def choose_start(
        self, notes: WarmStartState, last: Floats32, run_probe_round: ProbeRound
    ) -> tuple[WarmStartState, Floats32]:
        session = notes.sessions
        notes = notes._replace(sessions=session + 1)
        if session < self.pilot_sessions:
            # The model that session 0 begins with was drawn, not trained.
            pilots = [*notes.pilots, freeze(last)] if session else []
            return notes._replace(pilots=pilots), last
        if session == self.pilot_sessions:
            notes, start = self._make_pilot(notes, last)
            return self._record_fingerprint(notes, self._fingerprint(notes, run_probe_round)), start
        check_same_net(last, notes.pilot)
        notes = self._drop_session(notes._replace(models=[*notes.models, freeze(last)]))
        fingerprint = self._fingerprint(notes, run_probe_round)
        distances = self._distances(notes, fingerprint)
        start = blend(softmin(distances, self.scale), notes.models)
        return self._record_fingerprint(notes, fingerprint, distances), start

    def _make_pilot(self, notes: WarmStartState, last: Floats32) -> tuple[WarmStartState, Floats32]:
        """The pilot, and what the first session after it begins with."""
        models = [*notes.pilots, last]  # without pilot sessions, the one that was drawn
        pilot = blend(np.full(len(models), 1 / len(models)), models)
        start = {"pilot": pilot, "latest": last, "random": notes.initial_model.copy()}[
            self.first_start
        ]
        notes = notes._replace(pilot=freeze(pilot), pilots=[], initial_model=freeze(last[:0]))
        return notes, start

    def _fingerprint(self, notes: WarmStartState, run_probe_round: ProbeRound) -> Floats32:
        model = notes.pilot.copy()
        for _ in range(self.probe_rounds):
            model = run_probe_round(model, self.probe_lr_scale)
        return freeze(model - notes.pilot)

    def _find_compared_slices(self, size: int, pieces: Sequence[ParamSlice]) -> Ints:
        """Where the tensors are that are compared one by one; all as one vector is a single stretch."""
        chosen = [piece[1:] for piece in pieces if "bias" not in piece.name]
        if self.distance in ("raw", "global_unit") or not chosen:
            chosen = [(0, size)]
        return np.array(chosen, dtype=np.int64)

    def _distances(self, notes: WarmStartState, fingerprint: Floats32) -> Floats:
        """To the fingerprints of the past sessions that are kept."""
        if not notes.fingerprints:
            return np.empty(0)
        places = notes.compared_slices.tolist()
        current, *past = (
            [vector[start:stop] for start, stop in places]
            for vector in (fingerprint, *notes.fingerprints)
        )
        return blend_distances(current, past, self.distance)

    def _record_fingerprint(
        self, notes: WarmStartState, fingerprint: Floats32, distances: Floats | None = None
    ) -> WarmStartState:
        """With the fingerprint of the session that begins."""
        fingerprint_distances = notes.fingerprint_distances
        if self.keep == "diverse":
            row = np.empty(0) if distances is None else distances
            fingerprint_distances = np.block(
                [[fingerprint_distances, row[:, None]], [row[None], np.zeros((1, 1))]]
            )
        fingerprints = [*notes.fingerprints, fingerprint]
        return notes._replace(
            fingerprints=fingerprints, fingerprint_distances=fingerprint_distances
        )

    def _drop_session(self, notes: WarmStartState) -> WarmStartState:
        """Without one of the past sessions, if they are too many."""
        if self.history is None or len(notes.models) <= self.history:
            return notes
        dropped = older_of_nearest(notes.fingerprint_distances) if self.keep == "diverse" else 0
        fingerprint_distances = notes.fingerprint_distances
        if len(fingerprint_distances):
            fingerprint_distances = np.delete(
                np.delete(fingerprint_distances, dropped, axis=0), dropped, axis=1
            )
        return notes._replace(
            models=[*notes.models[:dropped], *notes.models[dropped + 1 :]],
            fingerprints=[*notes.fingerprints[:dropped], *notes.fingerprints[dropped + 1 :]],
            fingerprint_distances=fingerprint_distances,
        )


def older_of_nearest(fingerprint_distances: Floats) -> int:
    """Of the two sessions that are nearest to one another, the older; apart is (n, n), oldest first.

    >>> older_of_nearest(np.array([[0.0, 9.0, 5.0], [9.0, 0.0, 1.0], [5.0, 1.0, 0.0]]))
    1
    """
    above = np.triu(np.ones_like(fingerprint_distances, dtype=bool), 1)
    return int(np.where(above, fingerprint_distances, np.inf).argmin()) // len(
        fingerprint_distances
    )
