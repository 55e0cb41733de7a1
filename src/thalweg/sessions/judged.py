from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, check_names, check_vector, first_reason
from thalweg.core.config import check_ranges
from thalweg.core.decisions import make_decision
from thalweg.core.types import Floats, Floats32, Ints, ParamSlice, Roster
from thalweg.core.vectors import blend, freeze
from thalweg.sessions.base import ProbeRound, check_same_net

LOSSES = "candidate_losses"
MAX_LOSS = 1e8  # in place of larger losses and of those that are not finite
LATEST, MEAN, PILOT = "the latest model", "the mean of the stored models", "the pilot"


class JudgedState(NamedTuple):
    """The stored models and the last choice; the vectors are read-only."""

    sessions: int  # number of sessions so far
    models: list[Floats32]  # final models of past sessions; the last one is the newest
    numbers: Ints  # (Z,) the sessions that ended with these models
    used: Ints  # (Z,) the last session that each model started or ended
    home_losses: Floats  # (Z,) at clients of the distribution of the model; nan: unknown
    same: int  # stored model of the distribution of the current session; -1: none
    pilot_sum: Floats  # (P,) of the final models of the pilot sessions; empty: no pilot
    pilot: Floats32  # (P,) their mean; empty: not known yet
    names: list[str]  # of the candidates of the last choice
    losses: Floats  # (k,) of these candidates; empty: not evaluated
    chosen: int  # index of the candidate that was chosen
    judges: int  # clients that responded


@dataclass(frozen=True)
class Judged:
    r"""Starts a session with the candidate model that has the lowest loss at its clients.

    The candidates are the latest model, stored final models of past sessions, their mean, and the
    pilot, which is the mean of the final models of the first sessions. Clients of the new session
    evaluate them before they train:

    .. math::
        x_s = \arg\min_w \sum_{i \in J} L_i(w), \qquad
        L_i(w) = \tfrac12 \bigl(\bar\ell(w; M_i) + \bar\ell(w; A_i)\bigr)

    The latest model is chosen if several have the lowest loss, or if no client responds. Losses
    that are not finite count as 1e8.

    Symbols
        J                           -> at most `judges` clients, drawn from the first cohort that
                                       the selection chooses; those without samples do not respond
        :math:`\bar\ell(w; M_i)`    -> mean loss on the samples in memory of client i
        :math:`\bar\ell(w; A_i)`    -> mean loss on the newest samples; on the memory if none arrive

    The store keeps one model per distribution. Two stored models belong to the same distribution if
    the same clients find both good: if the largest loss of a candidate is at least twice the
    smallest one, and both models are within `agreement` of their difference from the smallest. Of
    these models only the best stays, and its loss is its home loss. If later clients find this
    model as good as that, the final model of their session replaces it; otherwise a final model is
    added. With more than `history` models, the one that was unused for most sessions is dropped.

    Costs at the start of a session: up to ``history + 2`` models to each judge, evaluated on its
    memory and newest samples, and one number per model back. With a bank of several models a
    session keeps them, and nothing is evaluated.

    Two sessions ended with the models 8 and 2. Candidates are the latest model, 2, the older model,
    8, and their mean, 5. The older one has the lowest loss at the two clients:

    >>> as_model = lambda value: np.array([value], dtype=np.float32)
    >>> rule = Judged(pilot_sessions=0)
    >>> state = rule.init(as_model(0), [])
    >>> for last in (0, 8, 2):
    ...     state, candidates = rule.propose_models(state, as_model(last))
    ...     losses = np.tile(abs(candidates[:, 0] - 9.0), (2, 1))
    ...     state, start = rule.choose_model(state, candidates, losses)
    >>> candidates.ravel().tolist(), losses[0].tolist(), start.tolist()
    ([2.0, 8.0, 5.0], [7.0, 1.0, 4.0], [8.0])
    """

    needs_single_model: ClassVar[bool] = False
    max_probe_rounds: ClassVar[int] = 0
    needs_class_labels: ClassVar[bool] = False
    bounded_values: ClassVar[tuple[str, ...]] = (LOSSES,)
    monitors: ClassVar[str] = "the losses of candidate models at the start of each session"

    judges: int | None = 10
    """Maximum number of clients that evaluate the candidates; none: the whole cohort."""
    history: int = 6
    """Maximum number of stored models."""
    agreement: float = 0.1
    """Models whose losses differ by less than this share of the range of all candidates belong to
    the same distribution."""
    pilot_sessions: int = 1
    """Sessions at the beginning whose final models are averaged to the pilot; 0: no pilot."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            judges="[1, inf) or none",
            history="[1, 30]",
            agreement="[0, 1)",
            pilot_sessions="[0, inf)",
        )

    # --- at the server ---

    def init(self, model: Floats32, pieces: Sequence[ParamSlice]) -> JudgedState:
        return JudgedState(
            sessions=0,
            models=[],
            numbers=np.empty(0, dtype=np.int64),
            used=np.empty(0, dtype=np.int64),
            home_losses=np.empty(0),
            same=-1,
            pilot_sum=np.zeros(len(model) if self.pilot_sessions else 0),
            pilot=freeze(model[:0]),
            names=[],
            losses=np.empty(0),
            chosen=0,
            judges=0,
        )

    def choose_start(
        self, state: JudgedState, last: Floats32, run_probe_round: ProbeRound
    ) -> tuple[JudgedState, Floats32]:
        """Choose without responses: the latest model."""
        state, candidates = self.propose_models(state, last)
        return self.choose_model(state, candidates, np.empty((0, len(candidates))))

    def propose_models(self, state: JudgedState, last: Floats32) -> tuple[JudgedState, Floats32]:
        session = state.sessions
        state = state._replace(sessions=session + 1)
        if session == 0:  # the untrained initial model
            return state._replace(names=[LATEST]), last[None].copy()
        if state.models:
            check_same_net(last, state.models[0])
        state = self._drop_unused(_store(state, last, session - 1))
        state = self._add_to_pilot(state, last, session)
        names, models = [LATEST], [last]
        for number, model in zip(state.numbers[:-1].tolist(), state.models[:-1], strict=True):
            names.append(f"session {number}")
            models.append(model)
        if len(models) > 1:
            names.append(MEAN)
            models.append(blend(np.full(len(models), 1 / len(models)), models))
        if len(state.pilot) and not any(np.array_equal(state.pilot, model) for model in models):
            names.append(PILOT)
            models.append(state.pilot)
        return state._replace(names=names), np.stack(models)

    def choose_model(
        self, state: JudgedState, candidates: Floats32, losses: Floats
    ) -> tuple[JudgedState, Floats32]:
        losses = losses[np.isfinite(losses).all(axis=1)]
        session, judges = state.sessions - 1, len(losses)
        state = state._replace(losses=np.empty(0), chosen=0, judges=judges, same=-1)
        if judges == 0:
            return state, candidates[0].copy()
        means = losses.mean(axis=0)
        chosen = int(means.argmin())
        used = state.used.copy()
        if chosen < len(state.models):  # the candidate 0 is the newest stored model
            used[chosen - 1] = session
        state = state._replace(losses=means, chosen=chosen, used=used)
        return self._merge_stored(state), candidates[chosen].copy()

    def skip_session(self, state: JudgedState) -> JudgedState:
        return state._replace(
            sessions=state.sessions + 1, same=-1, names=[], losses=np.empty(0), chosen=0, judges=0
        )

    def extra_metrics(self, state: JudgedState) -> Mapping[str, Any]:
        """Return the losses of the candidates and the choice, if there was one."""
        return self._describe_choice(state) if len(state.names) > 1 else {}

    def _describe_choice(self, state: JudgedState) -> dict[str, Any]:
        name, count, clients = state.names[state.chosen], len(state.names), state.judges
        model = name if name.startswith("the ") else f"the final model of {name}"
        values: dict[str, Any] = {"candidate": model, "clients": clients}
        if clients == 0:
            reason = f"no client evaluated the {count} candidates"
        else:
            loss, latest = float(state.losses[state.chosen]), float(state.losses[0])
            values |= {"loss": loss, "latest_loss": latest}
            others = f" (latest model: {latest:.3g})" if state.chosen else ""
            reason = (
                f"the loss of {model} at {clients} clients, {loss:.3g}, is the lowest of {count} "
                f"candidates{others}"
            )
        judged = {
            "candidates": list(state.names),
            "losses": state.losses.tolist(),
            "chosen": name,
            "clients": clients,
            "stored": len(state.models),
        }
        return {"judged": judged, "decisions": [make_decision("choose-start", reason, **values)]}

    def _add_to_pilot(self, state: JudgedState, last: Floats32, session: int) -> JudgedState:
        """Add the final model of a pilot session; the last one completes the pilot."""
        if session > self.pilot_sessions:
            return state
        total = state.pilot_sum + last
        if session < self.pilot_sessions:
            return state._replace(pilot_sum=total)
        pilot = (total / session).astype(np.float32)
        return state._replace(pilot_sum=np.empty(0), pilot=freeze(pilot))

    def _drop_unused(self, state: JudgedState) -> JudgedState:
        """Drop the model that was not used for most sessions if there are too many."""
        if len(state.models) <= self.history:
            return state
        dropped = int(state.used[:-1].argmin())  # the newest one is the latest model
        return _keep_models(state, np.delete(np.arange(len(state.models)), dropped))

    def _merge_stored(self, state: JudgedState) -> JudgedState:
        """Keep one of the stored models that the clients find alike; find theirs."""
        stored = len(state.models)
        if stored == 0:
            return state
        best, worst = float(state.losses.min()), float(state.losses.max())
        # The latest model is the newest stored one, and the first candidate.
        losses = np.append(state.losses[1:stored], state.losses[0])
        newest_first = np.arange(stored)[::-1]
        good = int(newest_first[losses[newest_first].argmin()])
        margin = self.agreement * (worst - best)
        if worst < 2 * best or losses[good] > best + margin:
            return state  # all are alike, or none is good
        alike = np.flatnonzero(losses <= best + margin)
        home = float(state.home_losses[good])
        is_home = len(alike) > 1 or losses[good] <= home + self.agreement * (worst - home)
        if not is_home:
            return state
        home_losses = state.home_losses.copy()
        home_losses[good] = losses[good]
        kept = np.setdiff1d(np.arange(stored), alike[alike != good])
        state = _keep_models(state._replace(home_losses=home_losses), kept)
        return state._replace(same=int(np.flatnonzero(kept == good)[0]))

    # --- the survey ---

    @property
    def sends_models(self) -> bool:
        return True

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        cohort = roster.present if roster.cohort is None else roster.cohort
        if self.judges is None or len(cohort) <= self.judges:
            return cohort
        return np.sort(rng.choice(cohort, self.judges, replace=False))

    def answer_survey(self, view: SurveyContext) -> tuple[None, Mapping[str, Floats]]:
        """Return the loss of each candidate on the memory and the newest samples."""
        parts = [rows for rows in (view.held, view.newest) if len(rows)]
        if not parts:
            return None, {}
        if np.array_equal(view.held, view.newest):  # nothing arrives; the mean stays the same
            parts = parts[:1]
        losses = np.zeros(view.num_models)
        for model in range(view.num_models):
            probe = view.probe_model(model)
            means = [float(probe.losses(rows).mean(dtype=np.float64)) for rows in parts]
            losses[model] = sum(means) / len(means)
        losses = np.nan_to_num(losses, nan=MAX_LOSS, posinf=MAX_LOSS)
        return None, {LOSSES: np.minimum(losses, MAX_LOSS)}

    def validate_claim(self, claim: Claim) -> str | None:
        """Expect one loss per candidate."""
        return first_reason(
            check_names(claim.uploads, LOSSES),
            check_vector(claim.uploads, LOSSES, claim.num_models, least=0),
        )


def _store(state: JudgedState, last: Floats32, number: int) -> JudgedState:
    """Store the final model of a session, in place of the model of the same distribution."""
    home = np.nan
    if state.same >= 0:
        home = float(state.home_losses[state.same])
        state = _keep_models(state, np.delete(np.arange(len(state.models)), state.same))
    return state._replace(
        models=[*state.models, freeze(last.copy())],
        numbers=np.append(state.numbers, number),
        used=np.append(state.used, number),
        home_losses=np.append(state.home_losses, home),
        same=-1,
    )


def _keep_models(state: JudgedState, kept: Ints) -> JudgedState:
    """Return the state with some of the stored models."""
    return state._replace(
        models=[state.models[index] for index in kept.tolist()],
        numbers=state.numbers[kept],
        used=state.used[kept],
        home_losses=state.home_losses[kept],
    )
