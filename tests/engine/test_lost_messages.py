"""Clients that are reached by bytes: sessions, and messages that are lost, late or damaged.

That every recipe gives the same bits if all messages arrive is tested in test_every_recipe.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest

from contracts.checkpoint import to_comparable
from contracts.slow_cases import mark_slow_except
from engine.recipe_runs import (
    MANY,
    SMALL,
    WithoutReply,
    bytes_federation,
    check_crosses,
    check_same,
    client_in_round,
    fate_of,
    plan_of,
    play,
    reference,
    small_plan,
)
from thalweg.core.capabilities import Broadcast
from thalweg.core.errors import Diverged
from thalweg.core.types import Floats32, Ints, Job, SurveyResponses, Updates
from thalweg.engine.plan import Plan
from thalweg.federation import (
    SurveyRequest,
    SurveyStage,
    TrainResponse,
    build_updates,
    run_server_round,
    split_updates,
)
from thalweg.recipes import RECIPES


@pytest.mark.parametrize(
    "recipe", mark_slow_except(["sfedpo", "powd", "fedcurv", "stream-ours"], "sfedpo", "powd")
)
@pytest.mark.parametrize(
    "sessions",
    [
        ["sessions=alternating", "sessions.length=2"],
        ["sessions=random-churn", "sessions.join=0.5", "sessions.leave=0.5"],
    ],
    ids=str,
)
def test_sessions_give_the_same_bits_by_bytes(recipe: str, sessions: list[str]) -> None:
    more = ["selection.participation=0.8"] if recipe == "powd" else []  # else one client only
    check_crosses(small_plan(recipe, *sessions, *more, rounds=5), rounds=5)


NOT_SERVED = {"local-only", "fine-tuned", "centralised", "oracle"}  # rejected on networks
USES_LATE_RESPONSES = {"fedbuff"}


@pytest.mark.parametrize(
    "recipe",
    [
        *mark_slow_except(
            [name for name in RECIPES if name not in NOT_SERVED],
            "sfedpo",
            "fedcurv",
            "scaffold",
            "stream-ours",
            "powd",
            "feddaa",
        ),
        "sfedpo+dpcs",
        "feddrift+is+fedcurv",
    ],
)
def test_a_run_continues_without_a_response_that_is_lost(recipe: str) -> None:
    plan = small_plan(recipe)
    victim = client_in_round(plan, 1)
    expected, _ = play(plan, WithoutReply(plan, 1, victim))
    fates = ("dropped",) if recipe in USES_LATE_RESPONSES else ("dropped", "late")
    for fate in fates:
        ours = bytes_federation(plan, fate_of(1, victim, fate))
        server, history = play(plan, ours)
        assert to_comparable(server) == to_comparable(expected), fate
        assert [u.extra_metrics.get("missing") for u in history if u is not None][1] == 1


class WithLateReply(WithoutReply):
    """The reference engine, where one response arrives with those of the next round."""

    def __init__(self, plan: Plan, rnd: int, client: int) -> None:
        super().__init__(plan, rnd, client)
        self._late: list[TrainResponse] = []

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        late, self._late = self._late, []
        replies = split_updates(self._inner.train(jobs, bank, rnd, broadcast), rnd)
        if rnd == self._when:
            self._late = [reply for reply in replies if reply.client == self._who]
            replies = [reply for reply in replies if reply.client != self._who]
        return build_updates([*replies, *late], bank.shape[1], rnd)


@pytest.mark.parametrize(
    ("recipe", "staleness"),
    [
        ("sfedpo", "staleness=polynomial"),
        ("fedcurv", "staleness=constant"),
        ("ode", "staleness=hinge staleness.after=0"),
        ("powd", "staleness=constant staleness.share=0.5"),
        ("dpcs", "staleness=polynomial staleness.max_staleness=1"),
        ("flash", "staleness=polynomial"),
        ("scaffold", "staleness=polynomial"),
        ("stream-ours", "staleness=polynomial"),
    ],
)
def test_a_late_response_is_weighted_by_its_staleness(recipe: str, staleness: str) -> None:
    plan = small_plan(recipe, *staleness.split())
    victim = client_in_round(plan, 1)
    ours = bytes_federation(plan, fate_of(1, victim, "late"))
    history = check_same(plan, ours, WithLateReply(plan, 1, victim))
    extra_metrics = [{} if updates is None else updates.extra_metrics for updates in history]
    assert extra_metrics[1]["missing"] == 1
    assert (extra_metrics[2]["late"], extra_metrics[2]["mean_staleness"]) == (1, 1.0)
    assert "rejected" not in extra_metrics[2]


@pytest.mark.parametrize("fate", ["twice", "damaged", "stolen"])
def test_an_invalid_response_is_rejected_and_counted(fate: str) -> None:
    plan = plan_of("sfedpo", [*SMALL, *MANY])
    victim = client_in_round(plan, 1)
    federation = reference(plan) if fate == "twice" else WithoutReply(plan, 1, victim)
    expected, _ = play(plan, federation)
    server, history = play(plan, bytes_federation(plan, fate_of(1, victim, fate)))
    assert to_comparable(server) == to_comparable(expected)
    extra_metrics = [{} if updates is None else updates.extra_metrics for updates in history]
    assert extra_metrics[1].get("rejected") == 1
    assert extra_metrics[2].get("rejected") is None


def test_a_lost_request_leaves_the_client_state_unchanged() -> None:
    plan = plan_of("fedavg", [*SMALL, *MANY])
    victim = client_in_round(plan, 0)
    ours = bytes_federation(plan, lambda message: "lost" if message.client == victim else "arrives")
    play(plan, ours, rounds=1)
    assert to_comparable(ours.state(victim)) == to_comparable(ours.nodes[victim].node.new_client())
    dropped = bytes_federation(plan, fate_of(0, victim, "dropped"))
    play(plan, dropped, rounds=1)
    assert dropped.state(victim).stream_round == 1, "it trained, but its response was lost"


@pytest.mark.parametrize(
    "recipe", ["sfedpo", "fedcurv", "ode", "feddrift", "dpcs", "powd", "flash"]
)
def test_a_round_without_responses_changes_no_model(recipe: str) -> None:
    plan = plan_of(recipe, [*SMALL, *MANY])
    before, _ = play(plan, bytes_federation(plan), rounds=1)
    ours = bytes_federation(plan, lambda message: "dropped" if message.rnd == 1 else "arrives")
    server, history = play(plan, ours, rounds=2)
    assert server.bank.tobytes() == before.bank.tobytes()
    assert to_comparable(server.part_states) == to_comparable(before.part_states)
    assert server.rnd == 2
    updates = history[1]
    assert updates is not None
    assert len(updates) == 0
    assert updates.extra_metrics["missing"] >= 1
    assert updates.bytes_down > 0, "requests were sent"
    _, updates = run_server_round(server, ours, plan.recipe, plan.seed)
    assert updates is not None
    assert len(updates) >= 1, "the next round has responses"


class WithoutAnswer(WithoutReply):
    """The reference engine, where one survey response is lost: its row is nan."""

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        responses = super().survey(clients, stage, bank, rnd)
        silent = (clients == self._who) & (rnd == self._when)
        return {name: np.where(silent[:, None], np.nan, rows) for name, rows in responses.items()}

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        return cast(Updates, self._inner.train(jobs, bank, rnd, broadcast))


@pytest.mark.parametrize("recipe", ["dpcs", "powd", "feddrift"])
def test_a_lost_survey_response_is_a_row_of_nan(recipe: str) -> None:
    plan = plan_of(recipe, [*SMALL, *MANY])
    victim = client_in_round(plan, 1)
    expected, _ = play(plan, WithoutAnswer(plan, 1, victim))
    ours = bytes_federation(plan, fate_of(1, victim, "dropped", SurveyRequest))
    assert to_comparable(play(plan, ours)[0]) == to_comparable(expected)


def test_the_run_stops_if_all_clients_diverge() -> None:
    plan = plan_of("fedogd", [*SMALL, *MANY, "local.lr=1e30"])
    with pytest.raises(
        Diverged, match=r"TrainResponse: (losses|deltas) is not finite\. Try a smaller"
    ):
        play(plan, bytes_federation(plan))
