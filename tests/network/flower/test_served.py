"""Runs on Flower with vanished nodes, late responses and killed servers, without processes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from contracts.runs import check_same_bits
from network.flower.fake_grid import FakeGrid, devices_in
from network.flower.runs import prepare_run, run_simulated, tiny_plan
from thalweg.core.errors import ConfigError, RunError
from thalweg.engine.run_folder import RunFolder
from thalweg.network.edge.socket import Frame
from thalweg.network.flower import federation as federation_module
from thalweg.network.flower import nodes as nodes_module
from thalweg.network.flower import transport as transport_module
from thalweg.network.flower.server_app import serve_run


class Killed(BaseException):
    """Raised in place of a kill signal; the server does not catch it."""


def events_of(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


class RequestFates:
    """Counts train and survey requests and returns the fate of each."""

    def __init__(self, *fates: tuple[int, str]) -> None:
        self.fates, self.count = dict(fates), 0

    def __call__(self, node: int, frame: Frame) -> str:
        if frame.kind != "request":
            return "arrives"
        self.count += 1
        return self.fates.get(self.count - 1, "arrives")


@pytest.mark.parametrize(
    "recipe, more",
    [
        ("sfedpo", []),
        ("dpcs", []),
        ("fedavg+warmstart", ["sessions=alternating", "sessions.length=2"]),
        ("fedavg", ["selection=balanced-cohort", "selection.patience=1"]),
    ],
)
@pytest.mark.parametrize("when", [3, 9])
def test_killed_server_resumes_with_the_same_bits(
    recipe: str, more: list[str], when: int, tmp_path: Path
) -> None:
    plan = tiny_plan(recipe, "digits-partial", 4, "world.availability=1", *more)
    folder = prepare_run(tmp_path / "run", plan, min_clients=5)
    requests = RequestFates()

    def fate(node: int, frame: Frame) -> str:
        if requests(node, frame) and requests.count == when:
            raise Killed
        return "arrives"

    with devices_in(tmp_path, 5) as devices:
        with pytest.raises(Killed):
            serve_run(FakeGrid(devices, fate), folder)
        for device in devices.values():  # the devices are killed too
            device.stop()
            device.start()
        served = serve_run(FakeGrid(devices), folder)
    check_same_bits(run_simulated(plan), served)


def test_run_continues_without_disconnected_clients(tmp_path: Path) -> None:
    plan = tiny_plan("fedavg", "digits-partial", 4, "world.availability=1")
    folder = prepare_run(tmp_path / "run", plan, min_clients=3)
    with devices_in(tmp_path, 5) as devices:
        away: dict[int, Any] = {}

        def fate(node: int, frame: Frame) -> str:
            if requests(node, frame) == "error" and node in devices:
                away[node] = devices.pop(node)
            return "error" if node in away else "arrives"

        requests = RequestFates((6, "error"), (7, "error"))
        served = serve_run(FakeGrid(devices, fate), folder)
        assert [row["cohort"] for row in served.metrics] == [5, 3, 3, 3]
        assert [row.get("missing", 0) for row in served.metrics] == [0, 2, 0, 0]
    assert len(events_of(folder, "gone")) == 2
    assert [each["reason"] for each in events_of(folder, "lost")] == ["Node Unavailable"] * 2


def test_a_session_opens_when_clients_are_disconnected(tmp_path: Path) -> None:
    trigger = ["session_trigger=presence", "session_trigger.risk=0.3"]
    settings = ["world.availability=1", "session_start=judged", *trigger]
    plan = tiny_plan("fedavg", "digits-partial", 10, *settings)
    folder = prepare_run(tmp_path / "run", plan, min_clients=2)
    with devices_in(tmp_path, 5) as devices:
        away: dict[int, Any] = {}

        def fate(node: int, frame: Frame) -> str:
            if requests(node, frame) == "error" and node in devices:
                away[node] = devices.pop(node)
            return "error" if node in away else "arrives"

        # The devices are lost in the fifth round and absent from the sixth one on.
        requests = RequestFates(*((number, "error") for number in (22, 23, 24)))
        served = serve_run(FakeGrid(devices, fate), folder)
    assert [row["cohort"] for row in served.metrics] == [5] * 4 + [2] * 6
    opened = {row["round"]: row["decisions"] for row in served.metrics if "decisions" in row}
    assert list(opened) == [6]
    (decision,) = opened[6]
    reason = "60% of 5 members changed (0 joined, 3 left; tolerance 25%)"
    assert (decision["what"], decision["reason"]) == ("open-session", reason)


def test_late_clients_take_part_from_the_next_round(tmp_path: Path) -> None:
    plan = tiny_plan("fedavg", "digits-partial", 6, "world.availability=1")
    folder = prepare_run(tmp_path / "run", plan, min_clients=2)
    with devices_in(tmp_path, 5) as devices:
        later = {node: devices.pop(node) for node in (102, 103, 104)}
        requests = RequestFates()

        def fate(node: int, frame: Frame) -> str:
            if requests(node, frame) and requests.count == 3:  # in the second round
                devices.update(later)
            return "arrives"

        served = serve_run(FakeGrid(devices, fate), folder)
        assert [row["cohort"] for row in served.metrics] == [2, 2, 5, 5, 5, 5]
    assert len(events_of(folder, "joined")) == 5


def test_round_ends_at_its_deadline(tmp_path: Path) -> None:
    plan = tiny_plan("fedavg", "digits-partial", 3, "world.availability=1")
    folder = prepare_run(tmp_path / "run", plan, min_clients=5, deadline_s=0.3)
    requests = RequestFates((1, "lost"), (2, "dropped"))
    with devices_in(tmp_path, 5) as devices:
        served = serve_run(FakeGrid(devices, requests), folder)
        assert [row["cohort"] for row in served.metrics] == [3, 5, 5]
        assert served.metrics[0]["missing"] == 2
    assert [event["client"] for event in events_of(folder, "late")] == [1, 2]


def test_late_response_counts_in_the_next_round_with_a_staleness_policy(tmp_path: Path) -> None:
    late = "staleness=polynomial"
    plan = tiny_plan("fedavg", "digits-partial", 3, "world.availability=1", late)
    folder = prepare_run(tmp_path / "run", plan, min_clients=5, deadline_s=0.3)
    requests = RequestFates((1, "late"))
    with devices_in(tmp_path, 5) as devices:
        grid = FakeGrid(devices)

        def fate(node: int, frame: Frame) -> str:
            result = requests(node, frame)
            if requests.count == 7:
                grid.release_late()
            return result

        grid.fate = fate
        served = serve_run(grid, folder)
        assert [row["cohort"] for row in served.metrics] == [4, 6, 5]
        assert served.metrics[1]["late"] == 1


def test_client_whose_daemon_rejects_a_request_is_missing_from_the_round(tmp_path: Path) -> None:
    plan = tiny_plan("fedavg", "digits-partial", 2, "world.availability=1")
    folder = prepare_run(tmp_path / "run", plan, min_clients=5)
    with devices_in(tmp_path, 5) as devices:
        answer, seen = devices[101].daemon.handle, []

        def full(frame: Frame) -> Frame:
            seen.append(frame.kind)
            if seen.count("request") == 1 and frame.kind == "request":
                return Frame("rejected", reason="state")
            return answer(frame)

        devices[101].daemon.handle = full  # type: ignore[method-assign]
        served = serve_run(FakeGrid(devices), folder)
        assert [row["cohort"] for row in served.metrics] == [4, 5]
        assert seen == ["identity", "invitation", "request", "identity", "invitation", "request"]
    assert [each["reason"] for each in events_of(folder, "lost")] == [
        "the client cannot use its state folder"
    ]


def test_waiting_for_clients_ends_after_wait_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federation_module, "POLL_S", 0.01)
    plan = tiny_plan("fedavg", "digits-partial", 2)
    folder = prepare_run(tmp_path / "run", plan, min_clients=3, wait_s=0.2)
    reason = r"clients are present after 0\.2 seconds, 3 are needed"
    with devices_in(tmp_path, 2) as devices, pytest.raises(RunError, match=reason):
        serve_run(FakeGrid(devices), folder)
    assert "3 are needed" in (RunFolder(folder).failure() or "")
    assert events_of(folder, "waiting")[0]["wanted"] == 3
    (folder / "serve.json").write_text(json.dumps({"min_clients": 2}))
    with devices_in(tmp_path, 2) as devices:
        serve_run(FakeGrid(devices), folder)
    assert RunFolder(folder).failure() is None


@pytest.mark.parametrize(
    "options, more, reason",
    [
        ({"min_clients": 9}, [], r"min_clients must be at most the number of clients \(5\), got 9"),
        ({"min_clients": 0}, [], "min_clients must be at least 1"),
        ({"deadline_s": 0}, [], "deadline must be positive"),
        ({"share": 0}, [], r"share must be in \(0, 1\], got 0"),
        ({"grace_s": -1}, [], "grace time must be at least 0"),
        ({"deadline": 3}, [], "Did you mean 'deadline_s'"),
        ({"limits": {"max_nrom": 3}}, [], "Did you mean 'max_norm'"),
        ({"limits": {"max_norm": 0}}, [], "max_norm must"),
        ({}, ["faults=unreliable"], "has simulated faults, which are not available on a network"),
    ],
)
def test_invalid_options_are_rejected_before_clients_are_contacted(
    options: dict[str, Any], more: list[str], reason: str, tmp_path: Path
) -> None:
    folder = prepare_run(
        tmp_path / "run", tiny_plan("fedavg", "digits-partial", 2, *more), **options
    )
    with pytest.raises(ConfigError, match=reason):
        serve_run(FakeGrid({}), folder)


def test_transport_polls_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, polls, now = list[float](), list[float](), [0.0]

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(transport_module.time, "monotonic", lambda: now[0])
    nodes: Any = SimpleNamespace(
        present={0: 100},
        max_bytes=1 << 20,
        poll=lambda: polls.append(now[0]),
        recheck_late=lambda client: None,
    )
    grid = FakeGrid({}, lambda node, frame: "lost")
    grid.devices[100] = None  # type: ignore[assignment]
    transport = transport_module.GridTransport(grid, nodes, deadline_s=20.0, sleep=sleep)
    assert list(transport([(0, b"request")])) == []
    assert pauses == sorted(pauses[:-1]) + pauses[-1:]
    assert (pauses[0], max(pauses), sum(pauses)) == (0.05, 1.0, pytest.approx(20.0))
    assert polls[0] > 2, "clients can join during a long round"


class Clock:
    """Time that passes only in `sleep`; clients answer at given times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: dict[int, float]) -> None:
        self.now, self.answers, self.events = 0.0, answers, list[Any]()
        monkeypatch.setattr(transport_module.time, "monotonic", lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def transport(self, deadline_s: float = 600.0, **options: float) -> Any:
        nodes: Any = SimpleNamespace(
            present={client: 100 + client for client in self.answers},
            max_bytes=1 << 20,
            poll=lambda: None,
            recheck_late=lambda client: None,
            record_response=lambda client: None,
            recheck=lambda client: None,
        )
        transport = transport_module.GridTransport(
            FakeGrid({}), nodes, deadline_s, 0, self.events.append, self.sleep, **options
        )
        transport._messenger = DelayedMessenger(self)  # type: ignore[assignment]
        return transport

    def run(self, transport: Any) -> list[int]:
        """The clients whose responses count."""
        return [client for client, _ in transport((client, b"") for client in self.answers)]


class DelayedMessenger:
    """Returns the response of a client when its time has come; a negative time is an error."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.open = clock, dict[str, int]()

    def send(self, node: int, *rest: object) -> str:
        self.open[str(node)] = node - 100
        return str(node)

    def collect(self) -> list[tuple[str, Frame]]:
        due = [key for key, client in self.open.items() if self._time(client) <= self.clock.now]
        clients = {key: self.open.pop(key) for key in due}
        kinds = {
            key: "lost" if self.clock.answers[c] < 0 else "request" for key, c in clients.items()
        }
        return [(key, Frame(kinds[key], b"", "")) for key in due]

    def _time(self, client: int) -> float:
        return abs(self.clock.answers[client])

    def is_pending(self, message_id: str) -> bool:
        return message_id in self.open

    def forget(self, message_id: str) -> None:
        self.open.pop(message_id, None)


NEVER = 1e9


@pytest.mark.parametrize(
    ("answers", "options", "expected", "ends"),
    [
        # Nine of ten in 2 s: the last one has 30 s more.
        ([2.0] * 9 + [NEVER], {"share": 0.9}, 9, 32),
        ([2.0] * 9 + [31.0], {"share": 0.9}, 10, 31),
        # Nine of ten in 100 s: the last one has 100 s more.
        ([100.0] * 9 + [NEVER], {"share": 0.9}, 9, 200),
        # Eight of ten are fewer than the share: the deadline ends the round.
        ([2.0] * 8 + [NEVER] * 2, {"share": 0.9}, 8, 600),
        ([2.0] * 8 + [NEVER] * 2, {"share": 0.8}, 8, 32),
        # One of several clients can always be missing, unless the share is 1.
        ([2.0, NEVER], {"share": 0.9}, 1, 32),
        ([2.0, NEVER], {"share": 1.0}, 1, 600),
        ([NEVER], {"share": 0.9}, 0, 600),
        ([2.0] * 4 + [NEVER], {"share": 0.9, "grace_s": 5.0}, 4, 7),
        # Errors are not responses: of the two other clients one has answered.
        ([-1.0] * 8 + [2.0, NEVER], {"share": 0.9}, 1, 32),
    ],
)
def test_round_ends_a_grace_time_after_a_share_of_the_responses(
    answers: list[float],
    options: dict[str, float],
    expected: int,
    ends: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, dict(enumerate(answers)))
    assert len(clock.run(clock.transport(**options))) == expected
    assert clock.now == pytest.approx(ends, abs=2.1)  # polls are up to one second apart
    late = [event["client"] for event in clock.events if event["event"] == "late"]
    assert late == [client for client, at in enumerate(answers) if at == NEVER]


def test_silent_client_delays_one_round_and_returns_when_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JOIN_WAIT_S", "RESPONSE_TIMEOUT_S", "RETRY_S"):
        monkeypatch.setattr(nodes_module, name, 0.0)
    plan = tiny_plan("fedavg", "digits-partial", 8, "world.availability=1")
    folder = prepare_run(tmp_path / "run", plan, min_clients=4, share=0.9, grace_s=0.2)
    requests = RequestFates()

    def fate(node: int, frame: Frame) -> str:
        requests(node, frame)
        is_silent = 2 <= requests.count < 10  # 5 requests in the first round, then 4
        return "lost" if node == 101 and is_silent else "arrives"

    with devices_in(tmp_path, 5) as devices:
        served = serve_run(FakeGrid(devices, fate), folder)
    cohorts = [row["cohort"] for row in served.metrics]
    assert cohorts[:2] == [4, 4]
    assert cohorts[-1] == 5
    assert [row.get("missing", 0) for row in served.metrics] == [1] + [0] * 7
    assert [event["client"] for event in events_of(folder, "late")] == [1]
