"""Rounds of a network whose responses were recorded, so that some of them can be replaced."""

from __future__ import annotations

from typing import Any

from engine.bytes_federation import BytesFederation, load
from thalweg.core.rng import Draw, rng_for
from thalweg.core.trees import tree_from_bytes
from thalweg.engine.builders import make_model_factory
from thalweg.engine.plan import Plan
from thalweg.federation.server_round import run_server_round
from thalweg.federation.server_state import ServerState, new_server
from thalweg.network.remote_federation import Packet

Key = tuple[int, int, str, str, int]  # round, client, kind, stage of a survey, probe round


def find_key(request: bytes) -> Key:
    tree: Any = tree_from_bytes(request)
    fields = tree["fields"]
    stage, probe_round = fields.get("stage", ""), fields.get("probe_round", 0)
    return (fields["rnd"], fields["client"], tree["kind"], stage, probe_round)


class Recording(BytesFederation):
    """Keeps requests and responses."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan, load(plan.scenario.data, plan.seed))
        self.exchanges: dict[Key, tuple[bytes, bytes]] = {}

    def _deliver(self, client: int, payload: bytes) -> list[Packet]:
        sent = super()._deliver(client, payload)
        self.exchanges[find_key(payload)] = (payload, sent[0][1])
        return sent


class Replaying(BytesFederation):
    """Answers with recorded responses; one of them may be replaced. Other clients are silent."""

    def __init__(self, plan: Plan, exchanges: dict[Key, tuple[bytes, bytes]]) -> None:
        super().__init__(plan, load(plan.scenario.data, plan.seed))
        self._exchanges = exchanges
        self.changed: dict[Key, bytes] = {}

    def _deliver(self, client: int, payload: bytes) -> list[Packet]:
        key = find_key(payload)
        if key in self.changed:
            return [(client, self.changed[key])]
        return [(client, self._exchanges[key][1])] if key in self._exchanges else []


class ReplayedRun:
    """The rounds of a plan, each of which can be repeated with another response."""

    def __init__(self, plan: Plan, rounds: int) -> None:
        recording = Recording(plan)
        data = load(plan.scenario.data, plan.seed)
        net = plan.scenario.net.build(data.input_shape, data.num_classes)
        self._plan, self._draw_model = plan, make_model_factory(plan, net)
        start = net.init(rng_for(plan.seed, Draw.NET))
        server = new_server(plan.recipe, start, len(recording.nodes), num_classes=data.num_classes)
        self._before: list[ServerState] = []
        for _ in range(rounds):
            self._before.append(server)
            server = self._run(server, recording)
        self.nodes, self.exchanges = recording.nodes, recording.exchanges
        self._replaying = Replaying(plan, self.exchanges)

    def repeat(self, key: Key, response: bytes) -> ServerState:
        """Repeat the round of one request with another response to it."""
        self._replaying.changed = {key: response}
        return self._run(self._before[key[0]], self._replaying)

    def _run(self, server: ServerState, federation: BytesFederation) -> ServerState:
        plan = self._plan
        return run_server_round(server, federation, plan.recipe, plan.seed, self._draw_model)[0]
