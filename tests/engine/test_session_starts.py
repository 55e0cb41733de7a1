"""Sessions that start from stored models: resumed to the same bits, with small checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contracts.runs import Interruption, check_same_bits, interrupt_after
from thalweg.engine.loop import Progress, Result, run_plan
from thalweg.engine.plan import Plan, make_plan
from thalweg.engine.run_folder import RunFolder

ROUNDS, LENGTH = 10, 2
SMALL = ["capacity=16", "local.passes=1", "ticks=2", "world.num_clients=6", "evaluate_every=5"]
LARGE = ["net.hidden=[256]", "world.availability=1", "world.availability_spread=0"]  # 77 kB a model
SESSIONS = ["sessions=alternating", f"sessions.length={LENGTH}"]


def plan_of(recipe: str, *overrides: str) -> Plan:
    return make_plan(
        recipe,
        "digits-partial",
        seed=3,
        rounds=ROUNDS,
        overrides=[*SMALL, *LARGE, *SESSIONS, *overrides],
    )


def play(plan: Plan, **options: Any) -> Result:
    return run_plan(plan, workers=1, **options)


PLANS = {
    "warm start": plan_of("fedavg+warmstart", "session_start.scale=3"),
    "three are kept": plan_of(
        "fedprox+warmstart", "session_start.history=3", "session_start.keep=diverse"
    ),
    "average": plan_of("fedexp+average-start"),
    "judged": plan_of("fedavg", "session_start=judged", "session_start.history=2"),
    "sessions from presence": plan_of(
        "fedavg",
        "session_start=judged",
        "session_trigger=presence",
        "session_trigger.tolerance=0.1",
        "session_trigger.risk=0.3",
    ),
    "sessions from alarms": plan_of(
        "fedavg",
        "session_start=judged",
        "session_trigger=presence",
        "session_trigger.alarm_share=0.2",
        "session_trigger.tolerance=0.9",
        "alarm=river",
        "alarm.name=DummyDriftDetector",
        "alarm.settings=t_0=1",
        "alarm.watch=loss",
    ),
    "reset": plan_of("fedavg", "session_start=reset"),
}


@pytest.mark.parametrize("case", PLANS)
def test_a_resumed_run_of_sessions_has_the_same_bits(case: str, tmp_path: Path) -> None:
    whole = play(PLANS[case], out=tmp_path / "whole")
    out = tmp_path / "cut"
    for rounds in (1, 2, 3, 5, 6, 9):  # in the middle and at the end of sessions
        with pytest.raises(Interruption):
            play(PLANS[case], out=out, resume=True, watch=interrupt_after(rounds))
    check_same_bits(whole, play(PLANS[case], out=out, resume=True))
    kept = {
        file.name: file.read_bytes() for file in (tmp_path / "whole/checkpoint/blobs").iterdir()
    }
    assert kept == {file.name: file.read_bytes() for file in (out / "checkpoint/blobs").iterdir()}


@pytest.mark.parametrize(
    ("case", "reason"),
    [("sessions from presence", "members changed"), ("sessions from alarms", "alarms of")],
)
def test_sessions_open_at_run_time(case: str, reason: str) -> None:
    rows = play(PLANS[case]).metrics
    decisions = [each for row in rows for each in row.get("decisions", ())]
    opened = [each for each in decisions if each["what"] == "open-session"]
    assert any(reason in each["reason"] for each in opened)
    assert [each["session"] for each in opened] == list(range(1, len(opened) + 1))
    assert any(each["what"] == "choose-start" for each in decisions)


def test_a_bank_of_several_models_keeps_them_in_judged_sessions() -> None:
    judged, previous = (
        play(plan_of("ifca", f"session_start={each}")) for each in ("judged", "previous")
    )
    assert judged.model.tobytes() == previous.model.tobytes()
    check_same_bits(judged, previous)


def test_stored_models_are_not_written_again_during_a_session(tmp_path: Path) -> None:
    written: list[set[Path]] = []
    stamps: dict[Path, int] = {}

    def watch(progress: Progress) -> None:
        blobs = tmp_path / "checkpoint" / "blobs"
        now = {file: file.stat().st_mtime_ns for file in blobs.glob("*")}
        written.append({file for file in now if stamps.get(file) != now[file]})
        stamps.clear()
        stamps.update(now)

    play(PLANS["warm start"], out=tmp_path, watch=watch)
    # The pilot and the first fingerprint; in later sessions, the last model and a fingerprint.
    assert [len(files) for files in written] == [0, 0, 2, 0, 2, 0, 2, 0, 2, 0]
    (server,) = (file.stat().st_size for file in (tmp_path / "checkpoint").glob("server-00000010*"))
    assert server < 1.2 * 4 * 19_210, "one model, the one in use"


def test_the_checkpoint_of_a_run_of_sessions_can_be_read_during_the_run(tmp_path: Path) -> None:
    seen: list[int] = []

    def watch(progress: Progress) -> None:
        server, _ = RunFolder(tmp_path).read_checkpoint()
        seen.append(len(server["state"]["session_start"]["models"]))  # models of past sessions

    play(PLANS["warm start"], out=tmp_path, watch=watch)
    assert seen == [0, 0, 0, 0, 1, 1, 2, 2, 3, 3]
