from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contracts.examples import train_request_for
from engine.bytes_federation import BytesFederation, load
from network.edge.doubles import SCHEMA, batch, plan_for
from network.flower.runs import write_regression
from thalweg.core.errors import BadMessage, ConfigError, RunError
from thalweg.data import Dataset
from thalweg.engine.plan import Plan, make_plan
from thalweg.federation import SurveyRequest, TrainResponse
from thalweg.network.edge.live_node import LiveNode, LiveSizes
from thalweg.network.edge.schema import DataSchema, describe_dataset
from thalweg.network.edge.store import Store
from thalweg.network.sources import LiveBatch
from thalweg.network.wire import from_bytes, to_bytes
from thalweg.streams import Live, Replay

CLIENT = 2
SIZES = LiveSizes(queue=16, batch=4)


@contextmanager
def open_node(
    folder: Path, plan: Plan | None = None, sizes: LiveSizes = SIZES
) -> Iterator[LiveNode]:
    store = Store.open(folder)
    try:
        node = LiveNode(store, plan or plan_for(), CLIENT, SCHEMA, sizes)
        yield node
        node.close()
    finally:
        store.close()


def make_request(node: LiveNode, rnd: int, weight: float = 0.0) -> bytes:
    params = np.full(node.net.num_params, weight, dtype=np.float32)
    return to_bytes(train_request_for(rnd, CLIENT, params), node.message_schema)


def held_samples(node: LiveNode) -> list[int]:
    return [int(x[0]) for x in node.inbox.slots.x[node.state.client.rows]]


# --- equality with a simulation ---


def batch_of_rows(data: Dataset, rows: np.ndarray) -> LiveBatch:
    names = ("",) * len(rows)
    return LiveBatch(data.x[rows], data.y[rows], np.zeros(len(rows)), names, "")


@pytest.mark.parametrize(
    ("recipe", "scenario"),
    [
        ("fedavg", "synthetic-logistic"),
        ("fedavg,memory=reservoir", "digits-partial"),  # images
        ("fedogd", "digits-partial"),
        ("ode", "digits-partial"),  # uses the model and a broadcast
        ("fedavg", "regression"),
        ("ifca,local.optimizer=adam,local.optimizer_state=keep", "regression"),
        ("fedavg,serving=best-recent,server=averaged", "digits-partial"),
        ("fedavg,serving=best-recent", "regression"),
    ],
)
def test_live_client_matches_a_simulated_client_with_the_same_arrivals(
    recipe: str, scenario: str, tmp_path: Path
) -> None:
    """With ingestion in rounds only, memory, order and response are identical."""
    name, *rest = recipe.split(",")
    if scenario == "regression":
        scenario = str(write_regression(tmp_path / "numbers.npz", num_outputs=2))
    overrides = ["capacity=10", "ticks=2", "local.steps=2", "local.passes=none", *rest]
    plan = make_plan(name, scenario, seed=3, rounds=9, overrides=overrides)
    replay = replace(plan.scenario, world=Replay(arrivals=7, at_end="restart"))
    plan = replace(plan, scenario=replay)
    live_plan = replace(plan, scenario=replace(replay, world=Live(20)))
    data = load(plan.scenario.data, plan.seed)
    federation = BytesFederation(plan, data)
    there = federation.nodes[CLIENT]
    state = there.new_client()
    store = Store.open(tmp_path)
    sizes = LiveSizes(queue=1000, batch=500)
    here = LiveNode(store, live_plan, CLIENT, describe_dataset(data), sizes)
    rng = np.random.default_rng(0)
    for rnd in (0, 2, 3):
        _, arrivals = federation.world.emit(state.client.stream, CLIENT, state.client.stream_round)
        for arrival in arrivals:
            here.inbox.receive(batch_of_rows(data, arrival.items))
        params = 0.1 * rng.standard_normal(there.schema.num_params).astype(np.float32)
        payload = to_bytes(train_request_for(rnd, CLIENT, params), there.schema)
        state, expected = there.handle(state, payload)
        assert here.handle(payload) == expected
        mine, theirs = here.state.client, state.client
        assert (mine.stream_round, len(mine.rows)) == (theirs.stream_round, len(theirs.rows))
        assert (here.inbox.slots.x[mine.rows] == data.x[theirs.rows]).all()
        assert (here.inbox.labels[mine.rows] == data.y[theirs.rows]).all()
        here.close()  # another process continues
        store.close()
        store = Store.open(tmp_path)
        here = LiveNode(store, live_plan, CLIENT, describe_dataset(data), sizes)
    here.close()
    store.close()


# --- between rounds ---


def test_full_batch_is_ingested_between_rounds(tmp_path: Path) -> None:
    with open_node(tmp_path) as node:
        node.inbox.receive(batch(range(3)))
        assert not node.ingest()  # three samples are less than a batch
        node.inbox.receive(batch([3]))
        assert node.ingest()
        assert (held_samples(node), node.state.client.stream_round, node.state.last_round) == (
            [0, 1, 2, 3],
            1,
            -1,
        )
        assert not node.ingest()
        node.inbox.receive(batch(range(4, 8)))
        assert node.ingest()
        assert len(held_samples(node)) == 6  # the capacity
        assert node.inbox.counts.evicted == 2
        kept = held_samples(node)
    with open_node(tmp_path) as node:
        assert (held_samples(node), node.state.client.stream_round) == (kept, 2)


def test_remaining_samples_are_ingested_with_the_train_request(tmp_path: Path) -> None:
    with open_node(tmp_path) as node:
        node.inbox.receive(batch(range(5)))
        assert node.ingest()  # ingests all five
        node.inbox.receive(batch([5]))
        node.handle(make_request(node, 0))
        assert sorted(held_samples(node)) == [0, 1, 2, 3, 4, 5]
        assert (node.state.client.stream_round, node.inbox.num_new) == (2, 0)


def test_policy_that_needs_the_model_or_a_broadcast_ingests_only_in_rounds(tmp_path: Path) -> None:
    with open_node(tmp_path, plan_for("ode")) as node:
        assert not node.can_ingest
        node.inbox.receive(batch(range(8)))
        assert not node.ingest()
        node.handle(make_request(node, 0))
        assert len(held_samples(node)) == 6
    with open_node(tmp_path / "other") as node:
        assert node.can_ingest


def test_samples_are_predicted_between_rounds_before_training(
    tmp_path: Path,
) -> None:
    plan = plan_for("fedavg", "prequential=3")
    with open_node(tmp_path, plan) as node:
        node.inbox.receive(batch(range(4)))
        assert node.ingest()
        assert node.inbox.counts.tested == 0  # no model was received yet
        reply = from_bytes(node.handle(make_request(node, 0)), node.message_schema, TrainResponse)
        assert reply.num_tested.tolist() == [0]
        node.inbox.receive(batch([12, 13, 15, 16]))
        assert node.ingest()  # a zero model predicts class 0: right for 12 and 15, wrong for 13
        assert (node.inbox.counts.tested, node.inbox.counts.correct) == (3, 2)
        node.inbox.receive(batch([18]))
    with open_node(tmp_path, plan) as node:
        reply = from_bytes(node.handle(make_request(node, 1)), node.message_schema, TrainResponse)
        assert (reply.num_tested.tolist(), reply.num_correct.tolist()) == ([4], [3])
        assert (node.inbox.counts.tested, node.inbox.counts.rounds) == (0, 2)


def test_a_serving_policy_predicts_between_rounds_and_learns(tmp_path: Path) -> None:
    """A zero model gives all classes equal probabilities; labels are x modulo 3."""
    plan = plan_for("fedavg", "prequential=3", "serving=best-recent", "local.lr=1e-6")
    with open_node(tmp_path, plan) as node:
        node.inbox.receive(batch([0, 3, 6, 9]))
        assert node.ingest()
        assert node.inbox.counts.tested == 0  # no model was received yet
        start = node.state.client.serving
        assert start is not None
        assert (start.last.tolist(), len(start.policy.weights)) == ([0.0], 0)
        node.handle(make_request(node, 0))
        node.inbox.receive(batch([1, 4, 7, 10]))
        assert node.ingest()  # the models predict 0; the last label is wrong once, then right
        assert (node.inbox.counts.tested, node.inbox.counts.correct) == (3, 2)
        serving = node.state.client.serving
        assert serving is not None
        assert serving.last.tolist() == [1.0]
        names = ("latest", "trained", "last_label", "adjusted")
        weights = dict(zip(names, serving.policy.weights.tolist(), strict=True))
        assert weights["trained"] == pytest.approx(weights["latest"], abs=1e-3)
        assert weights["adjusted"] > weights["latest"], "it learns that all labels are class 1"
    with open_node(tmp_path, plan) as node:
        again = node.state.client.serving
        assert again is not None
        assert again.policy.weights.tolist() == serving.policy.weights.tolist()
        assert again.policy.labels.offsets.tolist() == serving.policy.labels.offsets.tolist()


# --- requests ---


def test_duplicate_request_is_handled_once(tmp_path: Path) -> None:
    with open_node(tmp_path) as node:
        node.inbox.receive(batch(range(5)))
        payload = make_request(node, 0)
        first, kept = node.handle(payload), held_samples(node)
        node.inbox.receive(batch(range(5, 8)))
        assert node.handle(payload) == first
    with open_node(tmp_path) as node:
        assert node.handle(payload) == first
        assert (held_samples(node), node.state.client.stream_round, node.inbox.num_new) == (
            kept,
            1,
            3,
        )


def test_node_killed_between_mark_and_commit_gives_the_same_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException): ...

    def killed(*args: object, **more: object) -> None:
        raise Killed

    with open_node(tmp_path / "whole") as node:
        node.inbox.receive(batch(range(5)))
        payload = make_request(node, 0)
        whole, kept = node.handle(payload), held_samples(node)
    with open_node(tmp_path / "cut") as node:
        node.inbox.receive(batch(range(5)))
        monkeypatch.setattr(node.inbox, "commit", killed)
        with pytest.raises(Killed):
            node.handle(payload)
    with open_node(tmp_path / "cut") as node:
        node.inbox.receive(batch([77]))  # arrives too late for this round
        assert node.handle(payload) == whole
        assert held_samples(node) == kept


def test_rejected_requests_leave_the_node_unchanged(tmp_path: Path) -> None:
    with open_node(tmp_path) as node:
        node.inbox.receive(batch(range(5)))
        for payload in (b"", b"nonsense", node.hello(), make_request(node, 0)[:-4]):
            with pytest.raises(BadMessage):
                node.handle(payload)
        assert (node.inbox.num_new, node.state.last_round) == (5, -1)
        node.handle(make_request(node, 3))
        with pytest.raises(BadMessage, match="round 2 is over"):
            node.handle(make_request(node, 1))


def test_survey_and_following_train_request_see_the_same_arrivals(tmp_path: Path) -> None:
    with open_node(tmp_path, plan_for("dpcs")) as node:
        node.inbox.receive(batch(range(3)))
        nothing = np.empty((0, node.net.num_params), dtype=np.float32)
        node.handle(to_bytes(SurveyRequest(0, CLIENT, "selection", nothing), node.message_schema))
        node.inbox.receive(batch(range(3, 5)))
        node.handle(make_request(node, 0))
        assert (sorted(held_samples(node)), node.inbox.num_new) == ([0, 1, 2], 2)


def test_client_without_samples_sends_an_empty_response(tmp_path: Path) -> None:
    with open_node(tmp_path) as node:
        reply = from_bytes(node.handle(make_request(node, 0)), node.message_schema, TrainResponse)
        assert (reply.num_samples, reply.num_steps.tolist()) == (0, [0])
        assert node.inbox.counts.last_loss is None


def test_privacy_noise_differs_between_devices(tmp_path: Path) -> None:
    plan = plan_for("fedavg", "privacy=gaussian")
    replies = []
    for name in ("one", "other"):
        with open_node(tmp_path / name, plan) as node:
            node.inbox.receive(batch(range(5)))
            replies.append(
                from_bytes(node.handle(make_request(node, 0)), node.message_schema, TrainResponse)
            )
    one, other = replies
    assert (one.losses == other.losses).all()  # the same seed, the same steps
    assert not (one.deltas == other.deltas).any()


# --- invalid setups ---


def test_drift_of_the_scenario_is_rejected(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    with pytest.raises(ConfigError, match="drift=Sudden changes the data of a scenario"):
        LiveNode(store, plan_for("fedavg", "drift=sudden"), CLIENT, SCHEMA)
    store.close()


def test_state_of_another_recipe_is_rejected(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.commit(b"not a state")
    with pytest.raises(RunError, match="damaged, or of another recipe"):
        LiveNode(store, plan_for(), CLIENT, SCHEMA)
    store.close()


def test_batch_size_beyond_the_queue_is_rejected() -> None:
    with pytest.raises(ConfigError, match="batch=9, queue=16"):
        LiveSizes(queue=16, batch=9)


def test_errors_between_rounds_are_summed_and_reported(tmp_path: Path) -> None:
    """The model with weights 1 predicts x + (-x) + 1 = 1 for every sample of the doubles."""
    plan = plan_for("fedavg", "prequential=3")
    schema, store = DataSchema((2,), "float32", 0), Store.open(tmp_path)
    node = LiveNode(store, plan, CLIENT, schema, SIZES)

    def receive(*targets: float) -> None:
        found = batch(range(len(targets)), keys=[""] * len(targets))
        node.inbox.receive(found._replace(labels=np.array(targets, np.float32)))

    node.handle(make_request(node, 0, weight=1.0))
    receive(1.5, 0.0, -2.0, 9.0)
    assert node.ingest()
    assert (node.inbox.counts.tested, node.inbox.counts.error_sum) == (3, 0.5 + 1 + 3)
    receive(2.0)
    payload = node.handle(make_request(node, 1, weight=1.0))
    response = from_bytes(payload, node.message_schema, TrainResponse)
    assert response.error_sums is not None
    assert (response.num_tested.tolist(), response.error_sums.tolist()) == ([4], [4.5 + 1])
    assert (node.inbox.counts.tested, node.inbox.counts.error_sum) == (0, 0.0)
    node.close()
    store.close()


def test_policy_that_needs_class_labels_is_rejected_for_numbers(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    with pytest.raises(ConfigError, match="needs class labels, but the targets of this device"):
        LiveNode(store, plan_for("ode"), CLIENT, DataSchema((2,), "float32", 0), SIZES)
    store.close()


# --- plans of a server that is not honest ---


@pytest.mark.parametrize(
    "overrides",
    [
        ["secure_aggregation=masked", "objective=scaffold"],  # sends the update a second time
        ["secure_aggregation=masked", "objective=curvature"],
        ["secure_aggregation=masked", "bank=fedrc"],
        ["secure_aggregation=masked", "weights=label-balanced"],
        ["secure_aggregation=masked", "sample_weights=early"],
        ["secure_aggregation=masked", "selection=power-of-choice"],
        ["secure_aggregation=masked", "alarm=page-hinkley", "alarm.action=scale-lr"],
        ["privacy=gaussian", "weights=label-balanced"],
        ["privacy=gaussian", "objective=scaffold"],
    ],
    ids=", ".join,
)
def test_plan_whose_parts_undo_its_protection_is_rejected(
    overrides: list[str], tmp_path: Path
) -> None:
    protection = overrides[0].partition("=")[0]
    plan, reason = plan_for("fedavg", *overrides), f"{overrides[0]} is incompatible with"
    with pytest.raises(ConfigError, match=reason), open_node(tmp_path / "both", plan):
        pass
    with open_node(tmp_path / "alone", plan_for("fedavg", overrides[0])) as node:
        assert getattr(node.message_schema.recipe, protection) is not None
