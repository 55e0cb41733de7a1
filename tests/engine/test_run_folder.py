import importlib.util
import json
import os
import platform
from dataclasses import replace

import numpy as np
import pytest

import thalweg
from contracts.runs import Interruption, interrupt_after
from thalweg.core import trees
from thalweg.core.errors import RunError
from thalweg.core.trees import write_tree
from thalweg.core.types import Rejection
from thalweg.engine import run_folder
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import make_plan, read_plan
from thalweg.engine.run_folder import SNAPSHOT_EVERY, RunFolder

PLAN = make_plan("fedavg", "digits-partial", seed=1, rounds=4)


def opened(path, plan=PLAN, resume=False):
    folder = RunFolder(path)
    folder.open(plan, command="thalweg run ...", resume=resume)
    return folder


def client_files(path):
    return sorted(file.name for file in (path / "checkpoint").glob("clients-*"))


def test_a_run_folder_contains_all_files_needed_to_repeat_the_run(tmp_path):
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


def test_a_folder_that_contains_a_run_is_not_overwritten(tmp_path):
    opened(tmp_path).close()
    with pytest.raises(RunError, match="already contains a run; continue it with --resume"):
        opened(tmp_path)


def test_another_plan_is_rejected_with_the_differences(tmp_path):
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


def test_resuming_with_other_data_is_rejected(tmp_path):
    data = PLAN.scenario.data.load(None, 1)
    with pytest.raises(Interruption):
        run_plan(PLAN, out=tmp_path, data=data, watch=interrupt_after(2))
    with pytest.raises(RunError, match="started with other data"):
        run_plan(PLAN, out=tmp_path, resume=True, data=replace(data, x=255 - data.x))


def test_files_and_lines_after_the_checkpoint_are_removed(tmp_path):
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
    assert client_files(tmp_path) == [
        "clients-00000001-some.safetensors",
        "clients-00000002-some.safetensors",
    ]
    folder.close()


def test_a_snapshot_of_all_clients_replaces_the_older_files(tmp_path):
    folder = opened(tmp_path)
    clients = {}
    for rnd in range(1, SNAPSHOT_EVERY + 2):
        clients[rnd % 3] = [rnd]
        folder.append_metrics({"round": rnd})
        folder.save(rnd, {"rnd": rnd}, clients, {rnd % 3})
    assert len(list((tmp_path / "checkpoint").glob("clients-*"))) == 2
    assert folder.load()[1] == clients
    folder.close()


def test_a_damaged_checkpoint_is_reported_with_its_file(tmp_path):
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


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write to the run folder .*: Not a directory\."):
        opened(tmp_path / "file" / "run")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_reported(tmp_path):
    folder = opened(tmp_path)
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(RunError, match="No space left on device"):
        folder.append_metrics({"round": 1})
    folder.close()


def test_rejections_are_written_one_per_line(tmp_path):
    folder = opened(tmp_path)
    folder.append_rejections(1, [])
    assert not (tmp_path / "rejections.jsonl").exists()
    folder.append_rejections(2, [Rejection(3, "not requested."), Rejection(5, "too long.")])
    assert folder.rejections() == [
        {"round": 2, "client": 3, "reason": "not requested."},
        {"round": 2, "client": 5, "reason": "too long."},
    ]
    folder.close()


def test_rejections_after_the_checkpoint_are_removed(tmp_path):
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


def test_a_run_writes_its_rejections(tmp_path):
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


def save_rounds(folder, *rounds, clients=None):
    for rnd in rounds:
        folder.append_metrics({"round": rnd})
        folder.save(rnd, {"rnd": rnd}, clients or {5: [rnd]}, {5})


def test_open_returns_whether_there_is_a_checkpoint(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.open(PLAN, command="thalweg run x", resume=False) is False
    assert (tmp_path / "command.txt").read_text() == "thalweg run x\n"
    save_rounds(folder, 1)
    folder.close()
    assert folder.open(PLAN, command="another", resume=True) is True
    assert (tmp_path / "command.txt").read_text() == "thalweg run x\n", "the first command is kept"
    folder.close()


def test_a_folder_that_was_rejected_is_not_locked(tmp_path):
    opened(tmp_path).close()
    rejected = RunFolder(tmp_path)
    with pytest.raises(RunError, match="already contains a run"):
        rejected.open(PLAN, command="", resume=False)
    opened(tmp_path, resume=True).close()


def test_a_folder_can_be_closed_twice(tmp_path):
    folder = opened(tmp_path)
    folder.close()
    folder.close()
    opened(tmp_path, resume=True).close()


def test_without_file_locks_a_folder_can_still_be_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "fcntl", None)
    first, second = opened(tmp_path), opened(tmp_path, resume=True)
    first.close()
    second.close()
    assert not (tmp_path / ".lock").exists()


def test_a_checkpoint_contains_the_changed_clients_only(tmp_path):
    folder = opened(tmp_path)
    folder.save(1, {"rnd": 1}, {0: [10], 1: [11]}, {0, 1})
    folder.save(2, {"rnd": 2}, {0: [20], 1: [99]}, {0})  # client 1 is not among the changed
    assert folder.read_checkpoint() == ({"rnd": 2}, {0: [20], 1: [11]})
    folder.close()


def test_a_snapshot_contains_all_clients(tmp_path):
    folder = opened(tmp_path)
    last = SNAPSHOT_EVERY
    folder.save(last - 1, {"rnd": last - 1}, {0: [1], 1: [1]}, {0, 1})
    assert client_files(tmp_path) == [f"clients-{last - 1:08d}-some.safetensors"]
    folder.save(last, {"rnd": last}, {0: [2], 1: [2]}, {0})
    assert client_files(tmp_path) == [f"clients-{last:08d}-all.safetensors"]
    assert folder.read_checkpoint()[1] == {0: [2], 1: [2]}
    folder.close()


def test_reading_a_checkpoint_changes_nothing_and_ignores_later_files(tmp_path):
    folder = opened(tmp_path)
    save_rounds(folder, 1, 2)
    write_tree(tmp_path / "checkpoint/clients-00000003-some.safetensors", {"5": [3]})
    folder.append_metrics({"round": 3})
    assert folder.read_checkpoint() == ({"rnd": 2}, {5: [2]})
    assert len(client_files(tmp_path)) == 3
    assert len(folder.metrics()) == 3
    folder.close()


def test_loading_keeps_the_files_of_the_last_round_and_of_earlier_ones(tmp_path):
    folder = opened(tmp_path)
    save_rounds(folder, 1, 2)
    write_tree(tmp_path / "checkpoint/clients-00000003-some.safetensors", {"5": [3]})
    folder.load()
    assert client_files(tmp_path) == [
        "clients-00000001-some.safetensors",
        "clients-00000002-some.safetensors",
    ]
    folder.close()


def test_metrics_with_fewer_lines_than_rounds_are_rejected(tmp_path):
    folder = opened(tmp_path)
    save_rounds(folder, 1, 2)
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}\n')
    with pytest.raises(RunError, match=r"should have 2 complete lines, .* but has 1"):
        folder.load()
    folder.close()


def test_rejections_of_the_last_round_are_kept_when_resuming(tmp_path):
    folder = opened(tmp_path)
    for rnd in (1, 2, 3):
        folder.append_rejections(rnd, [Rejection(rnd, "late.")])
    save_rounds(folder, 1, 2)
    folder.load()
    assert [row["client"] for row in folder.rejections()] == [1, 2]
    folder.close()


def test_a_folder_without_rejections_is_resumed_without_such_a_file(tmp_path):
    folder = opened(tmp_path)
    save_rounds(folder, 1)
    folder.load()
    assert not (tmp_path / "rejections.jsonl").exists()
    assert folder.rejections() == []
    folder.close()


def test_deleting_the_metrics_deletes_the_rejections_too(tmp_path):
    folder = opened(tmp_path)
    folder.append_metrics({"round": 1})
    folder.append_rejections(1, [Rejection(0, "late.")])
    folder.delete_metrics()
    assert folder.metrics() == folder.rejections() == []
    folder.delete_metrics()  # nothing to delete is no error
    folder.close()


def test_a_run_is_finished_when_its_summary_has_all_rounds(tmp_path):
    folder = opened(tmp_path)
    assert not folder.is_finished(4)
    folder.write_summary({"rounds": 4})
    assert folder.summary() == {"rounds": 4}
    assert folder.is_finished(4)
    assert not folder.is_finished(5)
    folder.close()


@pytest.mark.parametrize("text", ["", '{"rounds": 4', "[4]"])
def test_a_damaged_summary_is_that_of_an_unfinished_run(tmp_path, text):
    folder = opened(tmp_path)
    (tmp_path / "summary.json").write_text(text)
    assert folder.summary() == {}
    folder.close()


def test_the_reason_of_a_failure_is_stored_and_removed(tmp_path):
    folder = RunFolder(tmp_path / "study/run")
    assert folder.failure() is None
    folder.write_failure("the data are missing.")  # also before the run has a folder
    assert folder.failure() == "the data are missing."
    assert (tmp_path / "study/run/failure.txt").read_text() == "the data are missing.\n"
    folder.write_failure("the disk is full.")  # in a folder that exists
    assert folder.failure() == "the disk is full."
    folder.write_failure(None)
    folder.write_failure(None)
    assert folder.failure() is None


def test_no_temporary_files_are_left(tmp_path):
    folder = opened(tmp_path)
    save_rounds(folder, 1)
    folder.write_summary({"rounds": 1})
    assert list(tmp_path.rglob("*.part")) == []
    folder.close()


def test_the_environment_names_versions_and_the_machine():
    found = run_folder.environment()
    assert found["cores"] == os.cpu_count()
    assert found["python"] == platform.python_version()
    required = {"numpy", "scipy", "scikit-learn", "torch", "safetensors"}
    is_installed = importlib.util.find_spec("river") is not None
    assert found["packages"].keys() == required | ({"river"} if is_installed else set())
    assert found["thalweg"] == thalweg.__version__
