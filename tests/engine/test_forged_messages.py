"""Forged messages of clients are rejected and have no effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import to_comparable
from engine.bytes_federation import BytesFederation, load
from engine.recipe_runs import (
    MANY,
    WithoutReply,
    active_auto_plan,
    bytes_federation,
    client_in_round,
    plan_of,
    play,
    world_for,
)
from thalweg.core.trees import tree_from_bytes, tree_to_bytes
from thalweg.engine.plan import Plan
from thalweg.network.limits import limits_for
from thalweg.network.remote_federation import Packet

Lie = Callable[[dict[str, Any]], None]  # changes the fields of a reply or an answer


def longer(fields: dict[str, Any]) -> None:
    for words in (fields.get("uploads", {}), fields.get("values", {})):
        for name, vector in words.items():
            extra = np.ones((*vector.shape[:-1], 1), dtype=vector.dtype)
            words[name] = np.concatenate([vector, extra], axis=-1)


def empty(fields: dict[str, Any]) -> None:
    for words in (fields.get("uploads", {}), fields.get("values", {})):
        for name, vector in words.items():
            words[name] = vector[..., :0].copy()


def renamed(fields: dict[str, Any]) -> None:
    for part in ("uploads", "values"):
        if part in fields:
            fields[part] = {f"{name}x": vector for name, vector in fields[part].items()}


def negative(fields: dict[str, Any]) -> None:
    for part in ("uploads", "values", "reports"):
        for name, vector in fields.get(part, {}).items():
            fields[part][name] = -np.abs(vector) - vector.dtype.type(3)


def huge(fields: dict[str, Any]) -> None:
    for part in ("uploads", "values", "reports"):
        for name, vector in fields.get(part, {}).items():
            fields[part][name] = np.full_like(vector, 1e30)
    if "deltas" in fields:
        fields["deltas"] = np.full_like(fields["deltas"], 1e30)
        fields["num_samples"] = 1 << 60


def without(fields: dict[str, Any]) -> None:
    for part in ("uploads", "values", "reports"):
        if part in fields:
            fields[part] = {}


LIES = {lie.__name__: lie for lie in (huge, longer, empty, renamed, negative, without)}
SPEAKERS = [
    *("fedrc", "feddaa", "scaffold", "fedcurv", "ode", "feddrift", "dpcs", "powd"),
    *("sfedpo", "stream-ours"),
]


class Lying(BytesFederation):
    """Some clients change what they send, from some round on."""

    def __init__(self, plan: Plan, lie: Lie, liars: list[int] | None, since: int = 0) -> None:
        super().__init__(plan, load(plan.scenario.data, plan.seed))
        self._lie, self._liars, self._since = lie, liars, since

    def _deliver(self, client: int, payload: bytes) -> list[Packet]:
        return [
            (sender, self._changed(sender, sent))
            for sender, sent in super()._deliver(client, payload)
        ]

    def _changed(self, client: int, payload: bytes) -> bytes:
        tree = tree_from_bytes(payload)
        if tree["fields"]["rnd"] < self._since or client not in (self._liars or [client]):
            return payload
        self._lie(tree["fields"])
        return tree_to_bytes(tree)


def plan_for(recipe: str) -> Plan:
    scenario, overrides = world_for(recipe)
    more = MANY if scenario == "digits-partial" else []
    steps = ["bank.every=2"] if recipe == "feddaa" else []
    return plan_of(recipe, [*overrides, *more, *steps], scenario)


def is_quick(number: int, lie: str) -> bool:
    """Two forgeries per recipe are in `make test`: huge values and one of the others in turn."""
    return lie in ("huge", list(LIES)[1 + number % 5])


CASES = [
    pytest.param(recipe, lie, marks=[] if is_quick(number, lie) else pytest.mark.slow)
    for number, recipe in enumerate(SPEAKERS)
    for lie in LIES
]


@pytest.mark.parametrize("recipe, lie", CASES)
def test_the_server_continues_if_all_messages_are_forged(recipe: str, lie: str) -> None:
    plan = plan_for(recipe)
    server, history = play(plan, Lying(plan, LIES[lie], None, since=1), rounds=3)
    assert server.rnd == 3
    assert np.isfinite(server.bank).all()
    assert np.abs(server.bank).max() < 1e6
    if lie == "huge":
        before, _ = play(plan, Lying(plan, LIES[lie], None, since=1), rounds=1)
        assert all(updates is None or len(updates) == 0 for updates in history[1:])
        if len(server.bank) == len(before.bank) == 1:
            assert server.bank.tobytes() == before.bank.tobytes()


@pytest.mark.parametrize("recipe", ["scaffold", "fedcurv", "sfedpo", "fedrc", "fedavg"])
def test_a_forged_message_has_the_effect_of_a_lost_one(recipe: str) -> None:
    plan = plan_for(recipe)
    liar = client_in_round(plan, 1)
    expected, _ = play(plan, WithoutReply(plan, 1, liar), rounds=2)
    server, history = play(plan, Lying(plan, huge, [liar], since=1), rounds=2)
    assert to_comparable(server) == to_comparable(expected)
    updates = history[1]
    assert updates is not None
    assert [refusal.client for refusal in updates.rejections] == [liar]
    assert updates.extra_metrics["rejected"] == 1


ALARM = ["alarm=excess-errors", "alarm.threshold=0.5", "prequential=3"]
PARTS = {
    "bank": ["bank=two-mixtures", "bank.every=1"],
    "alarm": ["bank=two-mixtures", "alarm.action=recluster", "serving=best-recent"],
    "weights": ["weights=by-arrivals", "server=averaged", "alarm.action=drop-outdated"],
    "labels": ["selection=balanced-cohort", "weights=label-balanced"],
    "sessions": ["session_start=judged", "session_trigger=presence", "session_trigger.tolerance=0"],
}


def zero(fields: dict[str, Any]) -> None:
    for part in ("uploads", "values", "reports"):
        for name, vector in fields.get(part, {}).items():
            fields[part][name] = np.zeros_like(vector)
    if "num_tested" in fields:  # many wrong predictions, and the largest loss
        fields["num_tested"] = np.full_like(fields["num_tested"], 10_000_000)
        fields["num_correct"] = np.zeros_like(fields["num_correct"])
        fields["losses"] = np.full_like(fields["losses"], 9e8)


SLOW_LIES = [pytest.param(lie, marks=pytest.mark.slow) for lie in (huge, negative)]


@pytest.mark.parametrize("lie", [zero, *SLOW_LIES])
@pytest.mark.parametrize("part", PARTS)
def test_the_server_continues_if_three_of_twenty_clients_lie(part: str, lie: Lie) -> None:
    overrides = [*([] if part == "bank" else ALARM), *PARTS[part], *MANY]
    plan = plan_of("fedavg", overrides, "digits-partial")
    server, _ = play(plan, Lying(plan, lie, [0, 5, 9]), rounds=4)
    assert server.rnd == 4
    assert np.isfinite(server.bank).all()
    assert np.abs(server.bank).max() < 1e3


VALUES = [0, 1, -1, 1e-30, 0.5, 1e9, 9e15, 1e300, np.nan, np.inf]


def make_random_lie(seed: int) -> Lie:
    """Return a lie that changes, repeats or leaves out any values."""
    rng = np.random.default_rng(seed)

    def lie(fields: dict[str, Any]) -> None:
        for part in ("uploads", "values", "reports"):
            values = fields.get(part, {})
            for name, vector in list(values.items()):
                choice = rng.integers(8)
                if choice == 0:
                    values[name] = np.full_like(vector, rng.choice(VALUES))
                elif choice == 1 and vector.size:
                    vector = values[name] = vector.copy()
                    vector.flat[rng.integers(vector.size)] = rng.choice(VALUES)
                elif choice == 2:
                    values[name] = vector * rng.choice([1e6, -1.0, 0.0]).astype(vector.dtype)
                elif choice == 3:
                    values[name] = np.concatenate([vector, vector], axis=-1)
                elif choice == 4:
                    del values[name]
        if "losses" in fields and rng.integers(2):
            fields["losses"] = np.full_like(fields["losses"], rng.choice(VALUES))
            fields["num_samples"] = int(rng.choice([0, 1, 10**6]))
            fields["deltas"] = fields["deltas"] * np.float32(rng.choice([0, -1, 100]))

    return lie


# Cohorts have one or two clients, so that a single liar may be the only one who responds.
AUTO = {
    "auto": [],
    "few": ["selection.participation=0.5"],
    "labels": ["weights=label-balanced"],
    "alarms": ["session_trigger.alarm_share=0.3"],
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(9))])
@pytest.mark.parametrize("parts", AUTO)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_auto_continues_if_a_client_sends_random_values(parts: str, seed: int) -> None:
    plan = active_auto_plan(*AUTO[parts])
    server, _ = play(plan, Lying(plan, make_random_lie(seed), [seed % 5]), rounds=8)
    assert server.rnd == 8
    assert np.isfinite(server.bank).all()
    assert np.abs(server.bank).max() < 1e3


@pytest.mark.parametrize("name", ["loss", "rounds_waited"])
@pytest.mark.parametrize("selection", ["balanced-cohort", "dpcs", "power-of-choice"])
def test_survey_response_cannot_replace_other_numbers_of_the_server(
    selection: str, name: str
) -> None:
    def with_another_name(fields: dict[str, Any]) -> None:
        if "values" in fields:
            fields["values"][name] = np.array([1e8])

    plan, liar = plan_of("fedavg", [f"selection={selection}", *MANY], "digits-partial"), 0
    federation = Lying(plan, with_another_name, [liar])
    server, history = play(plan, federation, rounds=3)
    rejected = [each for updates in history if updates is not None for each in updates.rejections]
    assert {each.client for each in rejected} == {liar}
    assert all(f"SurveyResponse: the name '{name}' is" in str(each) for each in rejected)
    asked = {name for name in server.known if name in ("label_mix", "candidate_loss")}
    assert asked
    assert np.isnan(server.known[asked.pop()][liar]).all()
    assert max(np.nanmax(values) for values in server.known.values()) < 1e8


@pytest.mark.parametrize("recipe", [*SPEAKERS, "fedavg", "flwf-2t", "warmstart"])
def test_no_honest_client_is_rejected_by_tight_limits(recipe: str) -> None:
    plan = plan_for(recipe)
    federation = bytes_federation(plan)
    num_classes = load(plan.scenario.data, plan.seed).num_classes
    federation._limits = limits_for(federation.world, plan.local, num_classes, norm_factor=50.0)
    _, history = play(plan, federation)
    assert [updates.rejections for updates in history if updates is not None] == [()] * 3
