"""All clients of a run in this process: their states, and which are present in a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from thalweg.core.capabilities import ModelProbe, Surveys
from thalweg.core.errors import ConfigError
from thalweg.core.trees import Tree
from thalweg.core.types import Floats, Floats32, Ints, Job, Roster, Supplies, SurveyResponses
from thalweg.federation import (
    ClientContext,
    ClientProgram,
    ClientRound,
    ClientState,
    MakeProbe,
    Received,
    SurveyRequest,
    SurveyStage,
    run_client_survey,
    start_round,
    tabulate_responses,
)
from thalweg.federation.extensions.alarms import Predict
from thalweg.streams import (
    HasViews,
    MergedState,
    MergedWorld,
    Timetable,
    World,
    collect_supplies,
    scale_supplies,
)


class ClientPool:
    """The states of all clients. A client has a state once it has taken part in a round."""

    def __init__(
        self, clients: ClientProgram, world: World, timetable: Timetable | None = None
    ) -> None:
        self.clients, self.world, self.timetable = clients, world, timetable
        self.states: dict[int, ClientState] = {}
        self.changed: set[int] = set()  # since the last checkpoint

    def roster(self, rnd: int) -> Roster:
        roster = make_roster(self.world, self.timetable, rnd, self._supplies)
        if isinstance(self.clients.stream, MergedWorld):  # one learner, in place of all clients
            return replace(roster, present=self.clients.stream.present(rnd))
        return roster

    def true_concepts(self, rnd: int) -> Ints:
        """Return (N,) the true concept of every client at the start of a round.

        A world without views has one concept.
        """
        if not isinstance(self.world, HasViews):
            return np.zeros(self.world.num_clients, dtype=np.int64)
        return self.world.concepts_at(self.clock(rnd, is_over=False))

    @cached_property
    def availability(self) -> Floats:
        """(N,) probability that each client is present in a round of the run."""
        return compute_availability(self.world, self.timetable)

    @cached_property
    def _supplies(self) -> Supplies:
        return collect_supplies(self.world)

    def state(self, client: int) -> ClientState:
        """Return the state of a client; that of a new client if it has never taken part."""
        state = self.states.get(client)
        return self.clients.new_client(client) if state is None else state

    def set_state(self, client: int, state: ClientState) -> None:
        """Store the state of a client, and mark the client as changed if it is another object."""
        if self.states.get(client) is not state:
            self.states[client] = state
            self.changed.add(client)

    def clock(self, rnd: int, is_over: bool = True) -> int | Ints:
        """Return the round of the streams after round `rnd`, or before it if it is not over.

        It is one number if clients collect while absent, else (N,): each client counts the rounds
        in which it has taken part.
        """
        if self.world.collects_when_absent:
            return rnd
        stream_rounds = np.zeros(self.world.num_clients, dtype=np.int64)
        for client, state in self.states.items():
            if isinstance(state.stream, MergedState):
                stream_rounds = state.stream.stream_rounds
            else:
                stream_rounds[client] = state.stream_round
        return np.maximum(stream_rounds - int(is_over), 0)

    @property
    def num_collected(self) -> int:
        """Samples that clients have sent to one learner so far; 0 if they train themselves."""
        merged = [state.stream for state in self.states.values()]
        return sum(each.num_collected for each in merged if isinstance(each, MergedState))

    def start_round(
        self,
        jobs: Sequence[Job],
        rnd: int,
        probes: Sequence[ModelProbe] = (),
        received: Received | None = None,
        predict: Predict | None = None,
    ) -> ClientRound:
        """Start the round of a client, which trains one model or several."""
        job = jobs[0]
        ctx = ClientContext(
            program=self.clients,
            client=job.client,
            rnd=rnd,
            probes=probes,
            received=received or {},
            session=job.session,
            probe_round=job.probe_round,
            models=[each.model for each in jobs],
        )
        return start_round(ctx, self.state(job.client), predict)

    def finish(self, client_round: ClientRound) -> None:
        self.set_state(client_round.client, client_round.finish())

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int, make_probe: MakeProbe
    ) -> SurveyResponses:
        """Return the responses of some clients to the survey of a stage, one row per client."""
        policy = getattr(self.clients.recipe, stage)
        if not isinstance(policy, Surveys):
            raise ConfigError(
                f"the {stage} policy {type(policy).__name__} has no survey, so clients cannot "
                "answer it."
            )
        responses: list[Mapping[str, Floats]] = []
        for client in clients.tolist():
            request = SurveyRequest(rnd, client, stage, bank if policy.sends_models else bank[:0])
            state, response = run_client_survey(
                self.clients, self.state(client), request, make_probe
            )
            responses.append(response)
            if stage == "selection" or state.stream_round:  # else still that of `new_client`
                self.set_state(client, state)
        return tabulate_responses(responses, type(policy).__name__)

    def restore(self, trees: dict[int, Tree]) -> None:
        """Restore the states from a checkpoint."""
        self.states = {
            client: self.clients.restore_client(client, tree) for client, tree in trees.items()
        }
        self.changed = set()


def make_roster(world: World, timetable: Timetable | None, rnd: int, supplies: Supplies) -> Roster:
    """Return which members of the current session are present in a round.

    `supplies` are those of the world, without regard to sessions.
    """
    times_present, present = np.zeros(world.num_clients, dtype=np.int64), world.present(rnd)
    availability, session = compute_availability(world, timetable), None
    if timetable is not None:
        session = timetable.session(rnd)
        present = np.intersect1d(present, session.members, assume_unique=True)
        supplies = scale_supplies(supplies, timetable.attendance, world.collects_when_absent)
    return Roster(rnd, present, availability, times_present, supplies=supplies, session=session)


def compute_availability(world: World, timetable: Timetable | None) -> Floats:
    """Return the probability that each client is present and a member of the session, (N,)."""
    if timetable is None:
        return world.availability
    return world.availability * timetable.attendance
