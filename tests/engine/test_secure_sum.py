"""Secure aggregation: masks over bytes and the simulation give the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.runs import Interruption, check_engines_agree, check_same_bits, interrupt_after
from engine.bytes_federation import BytesFederation, load
from engine.recipe_runs import bytes_federation, check_same, plan_of, play, reference
from thalweg.core.errors import BadMessage, ConfigError
from thalweg.core.trees import tree_from_bytes, tree_to_bytes
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import Plan, make_plan
from thalweg.federation import TrainRequest
from thalweg.network.remote_federation import Packet
from thalweg.network.secure_aggregation.client import MaskIdentity
from thalweg.network.secure_aggregation.keys import (
    get_public_node_key,
    make_node_key,
    restore_node_key,
)
from thalweg.network.wire import MaskRequest, Request, read_request, to_bytes

ALL_HERE = [
    *("world.num_clients=6", "world.availability=1", "world.availability_spread=0"),
    *("capacity=8", "local.passes=1", "ticks=2"),
]
UNIFORM = ["selection=uniform", "selection.fraction=0.7"]
SESSIONS = ["sessions=alternating", "sessions.length=2", "world.num_clients=8"]
# The parts of auto that work with the sum only: all but weights, bank and start of sessions.
AUTO = [
    *("weights=equal", "bank=one-model", "session_start=average", "alarm.action=drop-outdated"),
    *("selection.participation=0.8", "session_trigger.tolerance=0", "session_trigger.risk=0.4"),
]


def masked(recipe: str = "fedavg", *more: str) -> Plan:
    return plan_of(recipe, [*ALL_HERE, "secure_aggregation=masked", *more])


@pytest.mark.parametrize(
    "recipe, more",
    [
        ("fedavg", ["weights=by-samples"]),
        ("fedprox", ["privacy=gaussian"]),
        ("dpcs", ["weights=equal", "selection.participation=0.8"]),
        ("fedavg+warmstart", SESSIONS),
        ("auto", AUTO),
        pytest.param("fedavg", [], marks=pytest.mark.slow),
        pytest.param("fedacg", ["memory=reservoir"], marks=pytest.mark.slow),
        pytest.param("flash", UNIFORM, marks=pytest.mark.slow),
        pytest.param("fedntd", ["memory=dds", "forecast=bayesian"], marks=pytest.mark.slow),
        pytest.param("adaptive-fedavg", [], marks=pytest.mark.slow),
        pytest.param("moon", [], marks=pytest.mark.slow),
        pytest.param(
            "fedavg", ["alarm=page-hinkley", "alarm.action=drop-outdated"], marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_the_masked_sum_has_the_bits_of_the_simulated_one(recipe: str, more: list[str]) -> None:
    plan = masked(recipe, *more)
    ours = bytes_federation(plan)
    history = check_same(plan, ours, reference(plan), rounds=3)
    assert any(updates is not None and len(updates) > 2 for updates in history)
    assert ours.rejected == []


def test_the_quantised_sum_is_close_to_the_sum_of_the_updates() -> None:
    plan = masked()
    plain_plan = replace(plan, recipe=replace(plan.recipe, secure_aggregation=None))
    (simulate_masked_sum, _), (plain, history) = (
        play(each, reference(each), 3) for each in (plan, plain_plan)
    )
    np.testing.assert_allclose(simulate_masked_sum.bank, plain.bank, atol=1e-5)
    assert not np.array_equal(simulate_masked_sum.bank, plain.bank)
    rows = play(plan, reference(plan), 1)[1][0].deltas
    assert (rows == rows[0]).all(), "nobody's update is seen"
    assert not (history[0].deltas == history[0].deltas[0]).all()


def test_masked_updates_look_like_noise() -> None:
    seen: list[Any] = []

    class Listening(BytesFederation):
        def _deliver(self, client: int, payload: bytes) -> list[Packet]:
            back = super()._deliver(client, payload)
            seen.extend(tree_from_bytes(payload) for _, payload in back)
            return back

    plan = masked()
    play(plan, Listening(plan, load(plan.scenario.data, plan.seed)), 1)
    sent = [tree["fields"]["masked"] for tree in seen if tree["kind"] == "TrainResponse"]
    assert len(sent) == 6
    for words in sent:
        # Half of random bits are set. Most high bits of unmasked updates are equal.
        share = np.unpackbits(words.view(np.uint8)).mean()
        assert share == pytest.approx(0.5, abs=0.01)
    assert all(
        tree["fields"]["deltas"].size == 0 for tree in seen if tree["kind"] == "TrainResponse"
    )


class Fate:
    """Client 2 stops responding at one step of round 2."""

    def __init__(self, step: str, fate: str) -> None:
        self._step, self._fate = step, fate

    def __call__(self, message: Request) -> str:
        step = message.step if isinstance(message, MaskRequest) else "update"
        is_it = (message.client, message.rnd, step) == (2, 1, self._step)
        return self._fate if is_it else "arrives"


@pytest.mark.parametrize(
    "fate, step",
    [
        ("lost", "keys"),
        ("dropped", "shares"),
        ("damaged", "shares"),
        ("dropped", "update"),
        pytest.param("dropped", "keys", marks=pytest.mark.slow),
        pytest.param("damaged", "keys", marks=pytest.mark.slow),
        pytest.param("lost", "shares", marks=pytest.mark.slow),
        pytest.param("lost", "update", marks=pytest.mark.slow),
        pytest.param("damaged", "update", marks=pytest.mark.slow),
    ],
)
def test_a_client_that_fails_before_its_update_is_not_in_the_sum(fate: str, step: str) -> None:
    plan = masked()
    server, history = play(plan, bytes_federation(plan, Fate(step, fate)), 3)
    assert [len(updates) for updates in history] == [6, 5, 6]
    alone = reference(plan)
    _, seen = play(plan, WithoutOne(alone, plan), 2)
    np.testing.assert_array_equal(history[1].deltas[0], seen[1].deltas[0])
    assert np.isfinite(server.bank).all()


class WithoutOne:
    """The same in one process: the response of client 2 in round 2 is dropped."""

    def __init__(self, inner: Any, plan: Plan) -> None:
        self._inner, self._recipe = inner, plan.recipe
        self.roster, self.survey = inner.roster, inner.survey

    def train(self, jobs: Any, bank: Any, rnd: int, broadcast: Any = None) -> Any:
        from thalweg.federation.extensions.secure_aggregation import simulate_masked_sum

        updates = self._inner.inner.train(jobs, bank, rnd, broadcast)
        if rnd == 1:
            updates = updates.only(updates.clients != 2)
        return simulate_masked_sum(self._recipe, updates, len(jobs))


def test_a_client_that_fails_after_its_update_is_in_the_sum() -> None:
    plan = masked()
    server, _ = play(plan, bytes_federation(plan, Fate("open", "lost")), 3)
    expected, _ = play(plan, reference(plan), 3)
    np.testing.assert_array_equal(server.bank, expected.bank)


def test_there_is_no_sum_of_too_few_clients() -> None:
    plan = masked()

    def three_are_deaf(message: Request) -> str:
        return "lost" if isinstance(message, TrainRequest) and message.client < 3 else "arrives"

    server, history = play(plan, bytes_federation(plan, three_are_deaf), 2)
    assert [len(updates) for updates in history] == [0, 0]
    assert [updates.extra_metrics["too_few"] for updates in history] == [1, 1]
    begin, _ = play(plan, reference(plan), 0)
    np.testing.assert_array_equal(server.bank, begin.bank)


def test_the_simulated_sum_needs_enough_clients_too() -> None:
    plan = masked("fedavg", "world.num_clients=2")
    _, history = play(plan, reference(plan), 2)
    assert [(len(updates), updates.extra_metrics["too_few"]) for updates in history] == [
        (0, 1),
        (0, 1),
    ]


def test_cohorts_that_are_too_small_give_the_same_bits() -> None:
    """They do not train, in a simulation as on a network, so that the clients' states agree."""
    sometimes = ["world.num_clients=4", "world.availability=0.6", "world.availability_spread=0"]
    plan = masked("fedavg", *sometimes, "memory=reservoir")
    ours, alone = bytes_federation(plan), reference(plan)
    history = check_same(plan, ours, alone, rounds=8)
    too_few = [each is not None and each.extra_metrics.get("too_few") == 1 for each in history]
    assert {True, False} == set(too_few)


class Spoiling(BytesFederation):
    """One client sends other words than it should, at one step of every round."""

    def __init__(self, plan: Plan, kind: str, name: str, who: int = 1) -> None:
        super().__init__(plan, load(plan.scenario.data, plan.seed))
        self._kind, self._name, self._who = kind, name, who

    def _deliver(self, client: int, payload: bytes) -> list[Packet]:
        return [
            (sender, self._changed(sender, sent))
            for sender, sent in super()._deliver(client, payload)
        ]

    def _changed(self, sender: int, payload: bytes) -> bytes:
        tree = tree_from_bytes(payload)
        fields = tree["fields"]
        where = fields if tree["kind"] == "TrainResponse" else fields.get("values", {})
        if sender == self._who and tree["kind"] == self._kind and self._name in where:
            where[self._name] = where[self._name] + np.array(7, dtype=where[self._name].dtype)
        return tree_to_bytes(tree)


@pytest.mark.parametrize(
    "who", [0, 5, *(pytest.param(who, marks=pytest.mark.slow) for who in (2, 3))]
)
def test_forged_shares_of_one_client_do_no_harm(who: int) -> None:
    plan = masked()
    server, _ = play(plan, Spoiling(plan, "MaskResponse", "shares", who), 2)
    expected, _ = play(plan, reference(plan), 2)
    np.testing.assert_array_equal(server.bank, expected.bank)


def test_unreadable_encrypted_shares_stop_the_sum_of_one_round_only() -> None:
    plan = masked()
    server, history = play(plan, Spoiling(plan, "MaskResponse", "encrypted_shares"), 2)
    assert [len(updates) for updates in history] == [0, 0]
    whose = [[refusal.client for refusal in updates.rejections] for updates in history]
    assert whose == [[1], [1]]
    assert np.isfinite(server.bank).all()


def test_a_client_without_keys_is_not_in_the_sum() -> None:
    plan = masked()

    class Keyless(Spoiling):
        def _changed(self, sender: int, payload: bytes) -> bytes:
            tree = tree_from_bytes(payload)
            if sender == 1 and "mask_keys" in tree["fields"].get("values", {}):
                tree["fields"]["values"]["mask_keys"][:] = 0
            return tree_to_bytes(tree)

    _, history = play(plan, Keyless(plan, "MaskResponse", "mask_keys"), 2)
    assert [len(updates) for updates in history] == [5, 5]
    assert [str(refusal) for refusal in history[0].rejections] == [
        "client 1: MaskResponse: its public keys are not valid, or not signed by its node key."
    ]


def test_a_forged_masked_update_can_change_or_spoil_the_sum() -> None:
    """Nobody can look at it by itself: that is the price. What nobody can have sent is noticed."""
    plan = masked()

    class Wild(Spoiling):
        def _changed(self, sender: int, payload: bytes) -> bytes:
            tree = tree_from_bytes(payload)
            if sender == 1 and tree["kind"] == "TrainResponse":
                tree["fields"]["masked"] = tree["fields"]["masked"] * np.uint64(3)
            return tree_to_bytes(tree)

    server, history = play(plan, Wild(plan, "TrainResponse", "masked"), 2)
    assert [updates.extra_metrics["invalid_sum"] for updates in history] == [1, 1]
    begin, _ = play(plan, reference(plan), 0)
    np.testing.assert_array_equal(server.bank, begin.bank)


class Rejecting(BytesFederation):
    """Clients that reject a request do not respond. `change` is what a hostile server changes."""

    def __init__(self, plan: Plan, change: Callable[[TrainRequest], TrainRequest] | None = None):
        super().__init__(plan, load(plan.scenario.data, plan.seed))
        self._change, self.reasons = change, dict[int, str]()

    def _deliver(self, client: int, payload: bytes) -> list[Packet]:
        request = read_request(payload, self._schema)
        if isinstance(request, TrainRequest) and self._change is not None:
            payload = to_bytes(self._change(request), self._schema)
        try:
            return super()._deliver(client, payload)
        except BadMessage as error:
            self.reasons[client] = str(error)
            return []


@pytest.mark.parametrize("attack", ["learning rate 0", "another model"])
def test_there_is_no_sum_if_clients_train_differently(attack: str) -> None:
    """All clients but client 0 get the same changed request."""

    def change(request: TrainRequest) -> TrainRequest:
        if request.client == 0:
            return request
        if attack == "learning rate 0":
            return replace(request, lr_scales=request.lr_scales * 0)
        return replace(request, params=request.params * 0)

    plan = masked()
    federation = Rejecting(plan, change)
    server, history = play(plan, federation, 2)
    assert [len(updates) for updates in history] == [0, 0]
    assert [updates.extra_metrics["invalid_sum"] for updates in history] == [1, 1]
    assert federation.reasons.keys() == {0}
    assert "1 of 6 clients have signed what this client has signed" in federation.reasons[0]
    begin, _ = play(plan, reference(plan), 0)
    np.testing.assert_array_equal(server.bank, begin.bank)


def test_client_that_does_not_trust_another_one_is_not_in_the_sum() -> None:
    """Client 0 trusts the keys of the clients 0 to 4; client 5 may have been invented."""
    plan = masked()
    federation = Rejecting(plan)
    keys = [restore_node_key(make_node_key()) for _ in range(6)]
    lists = [frozenset(map(get_public_node_key, keys[:5])), *[None] * 5]
    federation.nodes = [
        replace(node, mask_identity=MaskIdentity("", key, trusted))
        for node, key, trusted in zip(federation.nodes, keys, lists, strict=True)
    ]
    _, history = play(plan, federation, 2)
    assert [updates.clients.tolist() for updates in history] == [[1, 2, 3, 4, 5]] * 2
    assert "of client 5 is not one of the 5 keys" in federation.reasons[0]


def test_a_resumed_run_has_the_same_bits_and_both_engines_agree(
    tmp_path: Path,
) -> None:
    overrides = [*ALL_HERE, "secure_aggregation=masked", "faults=unreliable", "faults.late=0.3"]
    plan = make_plan("fedavg", "digits-partial", seed=1, rounds=4, overrides=overrides)
    whole = run_plan(plan, workers=1)
    assert any("rejected" in row for row in whole.metrics), "late updates are not in the sum"
    with pytest.raises(Interruption):
        run_plan(plan, workers=1, out=tmp_path / "run", watch=interrupt_after(2))
    check_same_bits(whole, run_plan(plan, workers=1, out=tmp_path / "run", resume=True))
    check_engines_agree(whole, run_plan(replace(plan, engine="reference")))


@pytest.mark.parametrize(
    "recipe, more, why",
    [
        ("feddrift", [], "bank=FedDrift: it has several models"),
        ("sfedpo", [], "weights=ShiftAware: it needs individual updates"),
        ("fedavg", ["robust=median"], "robust=Median: it needs individual updates"),
        ("fedexp", [], "server=FedExp: it needs individual updates"),
        (
            "fedavg",
            ["staleness=polynomial"],
            "staleness=PolynomialDiscount: it accepts updates after the sum",
        ),
        ("scaffold", [], "objective=Scaffold: it uploads more than the update"),
    ],
)
def test_recipes_that_need_individual_updates_are_rejected(
    recipe: str, more: list[str], why: str
) -> None:
    plan = plan_of(recipe, ["secure_aggregation=masked", *more])
    with pytest.raises(ConfigError, match=f"masked is incompatible with {why}"):
        reference(plan)
