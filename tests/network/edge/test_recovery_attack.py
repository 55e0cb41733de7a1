"""The server, which knows the seed of the run, tries to remove the noise of a device.

The attack succeeds on a simulated client, which shows that the test can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from contracts.examples import train_request_for
from engine.bytes_federation import BytesFederation, load
from network.edge.doubles import SCHEMA, batch, plan_for
from network.flower.runs import tiny_plan
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32
from thalweg.engine.plan import Plan, plan_to_toml
from thalweg.engine.task import make_net
from thalweg.federation import SurveyRequest, SurveyResponse, TrainResponse
from thalweg.network.edge.device_client import DeviceOptions, make_replay_client
from thalweg.network.edge.live_node import LiveNode, LiveSizes
from thalweg.network.edge.store import Store
from thalweg.network.handshake import Invitation
from thalweg.network.wire import MessageSchema, from_bytes, to_bytes

CLIENT, ROUNDS = 2, range(12)
COUNTS = ["goal=pooled_counts", "privacy.epsilon=0.5"]  # noise of scale 4
LABELS = [f"selection.{each}" for each in COUNTS]
UPDATES = ["privacy=gaussian", "privacy.noise=10"]

Handle = Callable[[bytes], bytes]


class Device:
    """A client in this process that answers bytes with bytes."""

    def __init__(self, plan: Plan, schema: MessageSchema, handle: Handle) -> None:
        self.plan, self.schema, self.handle = plan, schema, handle

    def survey(self, rnd: int) -> Floats:
        """Return the label counts that it reports."""
        bank = np.empty((0, self.schema.num_params), dtype=np.float32)
        request = SurveyRequest(rnd, CLIENT, "selection", bank)
        payload = self.handle(to_bytes(request, self.schema))
        return from_bytes(payload, self.schema, SurveyResponse).values["label_counts"]

    def train(self, rnd: int) -> Floats32:
        """Return the update that it sends."""
        params = np.zeros(self.schema.num_params, dtype=np.float32)
        payload = self.handle(to_bytes(train_request_for(rnd, CLIENT, params), self.schema))
        return from_bytes(payload, self.schema, TrainResponse).deltas[0]


Make = Callable[[str, list[str]], Device]


@pytest.fixture(params=["simulated", "replay", "live"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Make]]:
    with ExitStack() as stack:
        yield request.param, MAKERS[request.param](tmp_path, stack)


def simulated(folder: Path, stack: ExitStack) -> Make:
    def make(recipe: str, overrides: list[str]) -> Device:
        plan = tiny_plan(recipe, "digits-partial", 20, *overrides)
        node = BytesFederation(plan, load(plan.scenario.data, plan.seed)).nodes[CLIENT]
        state = node.new_client()
        return Device(plan, node.schema, lambda payload: node.handle(state, payload)[1])

    return make


def replay(folder: Path, stack: ExitStack) -> Make:
    def make(recipe: str, overrides: list[str]) -> Device:
        plan = tiny_plan(recipe, "digits-partial", 20, *overrides)
        data = load(plan.scenario.data, plan.seed)
        num_params = make_net(plan.scenario, data).num_params
        shape, classes = data.input_shape, data.num_classes
        text = plan_to_toml(plan)
        invitation = Invitation("a" * 32, CLIENT, text, shape, classes, num_params, live=False)
        store = Store.open(folder)
        stack.callback(store.close)
        client = make_replay_client(plan, invitation, store, DeviceOptions())
        return Device(plan, client.message_schema, client.handle)

    return make


def live(folder: Path, stack: ExitStack) -> Make:
    def make(recipe: str, overrides: list[str]) -> Device:
        plan = plan_for(recipe, *overrides)
        store = Store.open(folder)
        stack.callback(store.close)
        node = LiveNode(store, plan, CLIENT, SCHEMA, LiveSizes(queue=64, batch=32))
        stack.callback(node.close)
        node.inbox.receive(batch(range(30)))
        return Device(plan, node.message_schema, node.handle)

    return make


MAKERS = {"simulated": simulated, "replay": replay, "live": live}


def test_label_counts_are_not_recovered_from_the_seed(make: tuple[str, Make]) -> None:
    kind, build = make
    device = build("dpcs", LABELS)
    guesses = []
    for rnd in ROUNDS:
        reported = device.survey(rnd)
        rng = rng_for(device.plan.seed, Draw.SELECTION_ANSWER, rnd, CLIENT)
        noise = rng.laplace(0.0, 4.0, len(reported))
        guesses.append((reported - noise)[reported > 0])  # zeros are clipped
    found = np.concatenate(guesses)
    is_exact = np.abs(found - found.round()) < 1e-6
    assert len(found) >= 4
    assert is_exact.all() if kind == "simulated" else not is_exact.any()


def test_update_is_not_recovered_from_the_seed(make: tuple[str, Make]) -> None:
    kind, build = make
    device = build("fedavg", UPDATES)
    sent = device.train(0)
    noise = 10.0 * rng_for(device.plan.seed, Draw.PRIVACY, 0, CLIENT).standard_normal(len(sent))
    found = np.linalg.norm(sent - noise)  # of the clipped update: at most 1
    if kind == "simulated":
        assert found <= 1.001
    else:
        assert found > 10 * np.sqrt(len(sent)) / 2  # noise minus other noise: about 10 sqrt(2 P)
