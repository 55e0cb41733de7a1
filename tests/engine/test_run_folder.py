import json
import os

import numpy as np
import pytest

import thalweg
from thalweg.core import trees
from thalweg.core.errors import RunError
from thalweg.core.types import Rejection
from thalweg.engine.plan import make_plan, read_plan
from thalweg.engine.run_folder import SNAPSHOT_EVERY, RunFolder

PLAN = make_plan("fedavg", "digits-partial", seed=1, rounds=4)


def opened(path, plan=PLAN, resume=False):
    folder = RunFolder(path)
    folder.open(plan, command="thalweg run ...", resume=resume)
    return folder


def test_a_run_folder_holds_all_that_is_needed_to_repeat_it(tmp_path):
    thalweg.run("fedavg", "digits-partial", seed=1, rounds=4, out=tmp_path / "run")
    names = {file.name for file in (tmp_path / "run").iterdir()}
    assert names >= {
        "plan.toml",
        "command.txt",
        "environment.json",
        "metrics.jsonl",
        "model.safetensors",
        "summary.json",
        "checkpoint",
    }
    assert read_plan(tmp_path / "run") == PLAN
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert "torch" in json.loads((tmp_path / "run/environment.json").read_text())["packages"]


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    opened(tmp_path).close()
    with pytest.raises(RunError, match="already holds a run; continue it with --resume"):
        opened(tmp_path)


def test_another_configuration_is_refused_with_the_difference(tmp_path):
    opened(tmp_path).close()
    other = make_plan("fedavg", "digits-partial", seed=2, rounds=4)
    with pytest.raises(RunError, match="seed: 1 -> 2"):
        opened(tmp_path, other, resume=True)


def test_two_processes_cannot_share_a_folder(tmp_path):
    first = opened(tmp_path)
    with pytest.raises(RunError, match="another process is running in"):
        opened(tmp_path, resume=True)
    first.close()
    opened(tmp_path, resume=True).close()


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    first = thalweg.run("fedavg", "digits-partial", seed=1, rounds=4, out=tmp_path / "run")
    again = thalweg.run(
        "fedavg", "digits-partial", seed=1, rounds=4, out=tmp_path / "run", resume=True
    )
    assert again.metrics == first.metrics
    assert np.array_equal(again.model, first.model)


def test_resuming_on_other_data_is_refused(tmp_path):
    data = PLAN.scenario.data.load(None, 1)
    from dataclasses import replace

    from thalweg.engine.loop import run_plan

    class Stop(Exception):
        pass

    def stop(progress):
        if progress.rounds_done == 2:
            raise Stop

    with pytest.raises(Stop):
        run_plan(PLAN, out=tmp_path, data=data, watch=stop)
    with pytest.raises(RunError, match="begun on other data"):
        run_plan(PLAN, out=tmp_path, resume=True, data=replace(data, x=255 - data.x))


def test_what_is_newer_than_the_checkpoint_is_dropped(tmp_path):
    folder = opened(tmp_path)
    for rnd in (1, 2):
        folder.append_metrics({"round": rnd})
        folder.save(rnd, {"rnd": rnd}, {5: [rnd]}, {5})
    folder.append_metrics({"round": 3})  # killed before the checkpoint of round 3 ...
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 4, "los')  # ... or in a line
    (tmp_path / "checkpoint/clients-00000003-some.safetensors").write_bytes(b"half")
    server, clients = folder.load()
    assert (server["rnd"], clients) == (2, {5: [2]})
    assert [row["round"] for row in folder.metrics()] == [1, 2]
    folder.close()


def test_old_client_files_are_folded_into_one(tmp_path):
    folder = opened(tmp_path)
    clients = {}
    for rnd in range(1, SNAPSHOT_EVERY + 2):
        clients[rnd % 3] = [rnd]
        folder.append_metrics({"round": rnd})
        folder.save(rnd, {"rnd": rnd}, clients, {rnd % 3})
    assert len(list((tmp_path / "checkpoint").glob("clients-*"))) == 2
    assert folder.load()[1] == clients
    folder.close()


def test_a_damaged_checkpoint_is_named(tmp_path):
    folder = opened(tmp_path)
    folder.append_metrics({"round": 1})
    folder.save(1, {"rnd": 1}, {}, set())
    file = tmp_path / "checkpoint/server.safetensors"
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(RunError, match=r"server\.safetensors is not a checkpoint of Thalweg"):
        folder.load()
    folder.close()


def test_a_checkpoint_of_another_format_is_not_resumed(tmp_path, monkeypatch):
    folder = opened(tmp_path)
    folder.append_metrics({"round": 1})
    with monkeypatch.context() as older:
        older.setattr(trees, "FORMAT", 1)
        folder.save(1, {"rnd": 1}, {}, set())
    with pytest.raises(RunError, match=r"server\.safetensors .* its format is 1, but"):
        folder.load()
    folder.close()


def test_an_unwritable_place_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write to the run folder .*: Not a directory\."):
        opened(tmp_path / "file" / "run")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_said_in_one_line(tmp_path):
    folder = opened(tmp_path)
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunError, match="No space left on device"):
        folder.append_metrics({"round": 1})
    folder.close()


def test_a_folder_says_who_was_refused_and_why(tmp_path):
    folder = opened(tmp_path)
    folder.append_rejections(1, [])
    assert not (tmp_path / "rejections.jsonl").exists()
    folder.append_rejections(2, [Rejection(3, "nobody asked."), Rejection(5, "too long.")])
    assert folder.rejections() == [
        {"round": 2, "client": 3, "reason": "nobody asked."},
        {"round": 2, "client": 5, "reason": "too long."},
    ]
    folder.close()


def test_refusals_of_a_round_that_is_played_again_are_dropped(tmp_path):
    folder = opened(tmp_path)
    for rnd in (1, 2, 3):
        folder.append_metrics({"round": rnd})
        folder.append_rejections(rnd, [Rejection(0, "late.")])
        if rnd < 3:
            folder.save(rnd, {"rnd": rnd}, {}, set())
    with (tmp_path / "rejections.jsonl").open("a") as file:
        file.write('{"round": 3, "cli')  # ... and while it wrote
    folder.load()
    assert [row["round"] for row in folder.rejections()] == [1, 2]
    folder.close()


def test_an_embedded_run_notes_what_came_too_late(tmp_path):
    overrides = [
        "faults=unreliable",
        "faults.lost=0.0",
        "faults.late=0.6",
        "capacity=12",
        "ticks=1",
    ]
    thalweg.run("fedavg", "digits-partial", rounds=6, overrides=overrides, out=tmp_path / "run")
    rows = RunFolder(tmp_path / "run").rejections()
    metrics = RunFolder(tmp_path / "run").metrics()
    assert rows
    assert len(rows) == sum(row.get("rejected", 0) for row in metrics)
    assert {row["reason"] for row in rows} == {
        "its update was not asked for, came twice, or came too late."
    }
