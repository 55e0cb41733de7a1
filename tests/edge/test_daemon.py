"""A device: how it joins, what it refuses, and that nothing is trained twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.examples import order_for
from flower.runs import plan_of
from thalweg.core.errors import BadMessage
from thalweg.edge.accepting import plan_from_the_server
from thalweg.edge.daemon import Daemon
from thalweg.edge.resident import Means, Tenant
from thalweg.edge.socket import Parcel
from thalweg.edge.store import Store
from thalweg.engine.plan import plan_to_toml
from thalweg.recipes.joining import (
    Greeting,
    Introduction,
    Invitation,
    Refusal,
    letter_from,
    letter_of,
)
from thalweg.recipes.messages import Hello, Reply
from thalweg.recipes.wire import Terms, from_bytes, to_bytes

RUN, OTHER = "a" * 32, "b" * 32
PLAN = plan_of("fedavg", "digits-partial", 3)
TERMS = Terms(PLAN.recipe, 4810)


def invitation(**changes: Any) -> bytes:
    plain = Invitation(RUN, 2, plan_to_toml(PLAN), (1, 8, 8), 10, 4810, live=False)
    return letter_of(replace(plain, **changes))


class Home:
    """A daemon that can be started again on the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events = folder, list[Any]()
        self.store: Store | None = None

    def start(self, wish: int | None = None, **means: Any) -> Daemon:
        self.stop()
        self.store = Store.open(self.folder)
        self.daemon = Daemon(self.store, Means(**means), wish, self.events.append)
        return self.daemon

    def stop(self) -> None:
        if self.store is not None:
            self.daemon.close()
            self.store.close()
            self.store = None


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "state")
    yield home
    home.stop()


def joined(daemon: Daemon) -> Hello:
    return from_bytes(daemon.answer(Parcel("invitation", invitation())).letter, TERMS, Hello)


def refusal(daemon: Daemon, letter: bytes) -> str:
    """Why an invitation was not accepted; the daemon then stops."""
    reason = letter_from(daemon.answer(Parcel("invitation", letter)).letter, Refusal).reason
    assert daemon.refused == reason
    return reason


def order(rnd: int) -> Parcel:
    params = np.zeros(TERMS.num_params, dtype=np.float32)
    return Parcel("errand", to_bytes(order_for(rnd, 2, params), TERMS))


def test_it_says_who_it_is_and_joins(home: Home) -> None:
    daemon = home.start(wish=2)
    assert home.store is not None
    said = daemon.answer(Parcel("greeting", letter_of(Greeting(RUN))))
    who = letter_from(said.letter, Introduction)
    assert (who.identity, who.wish, who.run) == (home.store.identity, 2, None)
    assert joined(daemon).client == 2
    assert joined(daemon).client == 2, "an invitation may come twice"
    again = letter_from(
        daemon.answer(Parcel("greeting", letter_of(Greeting(RUN)))).letter, Introduction
    )
    assert (again.identity, again.run) == (who.identity, RUN)
    assert [event["event"] for event in home.events] == ["joined"]


def test_the_same_order_twice_is_trained_once(home: Home) -> None:
    daemon = home.start()
    joined(daemon)
    first = daemon.answer(order(0))
    reply = from_bytes(first.letter, TERMS, Reply)
    assert (first.kind, reply.rnd, reply.client) == ("errand", 0, 2)
    assert daemon.answer(order(0)) == first
    second = daemon.answer(order(1))
    assert daemon.answer(order(0)) == first, "also when the next round is over"
    daemon = home.start()
    assert daemon.answer(order(1)) == second, "also in another process, without an invitation"
    assert daemon.answer(order(2)).kind == "errand"
    rounds = [event["round"] for event in home.events if event["event"] == "round"]
    assert rounds == [1, 1, 2, 1, 2, 3]


def test_a_daemon_that_was_killed_in_a_round_gives_the_same_bits(
    home: Home, tmp_path: Path
) -> None:
    daemon = home.start()
    joined(daemon)
    daemon.answer(order(0))
    whole = daemon.answer(order(1))
    other = Home(tmp_path / "other")
    daemon = other.start()
    joined(daemon)
    daemon.answer(order(0))
    resident = daemon._resident
    assert isinstance(resident, Tenant)
    resident._remote.handle(resident._state, order(1).letter)  # trained, but never kept
    daemon = other.start()
    assert daemon.answer(order(1)) == whole
    other.stop()


def test_what_is_refused_changes_nothing(home: Home) -> None:
    daemon = home.start()
    assert "not invited" in daemon.answer(order(0)).reason
    joined(daemon)
    daemon.answer(order(4))
    assert home.store is not None
    before = home.store.state()
    for parcel, reason in (
        (order(3), "round 4 is over"),
        (Parcel("errand", b"nonsense"), "not a tree of ours"),
        (Parcel("errand", order(5).letter[:-8]), "damaged"),
        (Parcel("picnic", b""), "nobody knows letters of the kind 'picnic'"),
    ):
        said = daemon.answer(parcel)
        assert said.kind == "refused"
        assert reason in said.reason
        assert said.letter == b""
    assert home.store.state() == before
    assert daemon.refused is None
    assert daemon.answer(order(5)).kind == "errand"


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"version": "0.0.7"}, "the server has thalweg 0.0.7 .* this client has thalweg"),
        (
            {"shape": (1, 28, 28)},
            r"server has samples of shape \(1, 28, 28\), this client .* \(1, 8, 8\)",
        ),
        ({"num_classes": 2}, "server has classes: 2, this client has classes: 10"),
        (
            {"num_params": 7},
            "server has model parameters: 7, this client has model parameters: 4810",
        ),
        ({"client": 5}, "server has a client 5, this client's plan has 5"),
        (
            {"live": True},
            "live run, whose clients bring their own samples; this client has --data replay",
        ),
        ({"plan": "["}, "not TOML"),
        ({"plan": "seed = 1"}, "recipe"),
        ({"plan": plan_to_toml(PLAN).replace("uniform-ratio", "unform")}, "unknown"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_at_once(
    changes: dict[str, Any], reason: str, home: Home
) -> None:
    daemon = home.start()
    said = refusal(daemon, invitation(**changes))
    assert re.search(reason, said), said
    assert home.store is not None
    assert home.store.member() is None


def test_a_folder_of_another_run_or_client_is_refused(home: Home) -> None:
    joined(home.start())
    for changes, words in (
        ({"run": OTHER}, (RUN, OTHER)),
        ({"client": 3}, ("client 3", "client 2")),
        ({"plan": plan_to_toml(replace(PLAN, seed=9))}, ("seed",)),
    ):
        reason = refusal(home.start(), invitation(**changes))
        assert all(word in reason for word in words), reason


def test_another_number_than_it_wished_for_is_refused(home: Home) -> None:
    reason = refusal(home.start(wish=4), invitation())
    assert "as number 2, this client has --client 4" in reason


def test_the_server_may_refuse_it(home: Home) -> None:
    daemon = home.start()
    daemon.answer(Parcel("refusal", letter_of(Refusal("no room"))))
    assert daemon.refused == "no room"


def test_a_server_of_another_version_is_refused_when_it_greets(home: Home) -> None:
    daemon = home.start()
    daemon.answer(Parcel("greeting", letter_of(Greeting(RUN, version="9.9"))))
    assert daemon.refused is not None
    assert "9.9" in daemon.refused


def test_a_plan_from_the_network_runs_no_code_of_ours(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("raise SystemExit('it was run')")
    text = plan_to_toml(PLAN).replace('kind = "uniform-ratio"', f'kind = "{mine}:Mine"')
    assert "Mine" in text
    with pytest.raises(BadMessage, match="this client takes code from nobody"):
        plan_from_the_server(text, Means())
    with pytest.raises(SystemExit, match="it was run"):
        plan_from_the_server(text, Means(takes_code=True))


def test_a_failure_of_ours_is_an_answer_and_not_the_end(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon = home.start()
    joined(daemon)

    def broken(self: Tenant, letter: bytes) -> bytes:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(Tenant, "handle", broken)
    said = daemon.answer(order(0))
    assert (said.kind, said.reason) == ("refused", "this client failed: RuntimeError: out of luck")
    assert "out of luck" in capsys.readouterr().err
