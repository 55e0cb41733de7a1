import importlib.util
import json
import os
import platform
import shutil
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import thalweg
from contracts.faults import FullSystem, using
from contracts.runs import Interruption, interrupt_after
from thalweg.core import files
from thalweg.core.errors import RunError, format_warning
from thalweg.core.trees import write_tree
from thalweg.core.types import Rejection
from thalweg.core.vectors import freeze
from thalweg.engine import manifest, run_folder
from thalweg.engine.blobs import MIN_BLOB_BYTES
from thalweg.engine.cells import CellJob, is_done
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import make_plan, read_plan
from thalweg.engine.run_folder import SNAPSHOT_EVERY, RunFolder, RunWarning, compute_user_files
from thalweg.report.comparison import read_cell

PLAN = make_plan("fedavg", "digits-partial", seed=1, rounds=4)


def opened(path, plan=PLAN, resume=False):
    folder = RunFolder(path)
    folder.open(plan, command="thalweg run ...", resume=resume)
    return folder


def commit(folder, rnd, clients=None, changed=None, rejections=()):
    """Write a round: by default client 5 has changed, and its state is the round."""
    clients = {5: [rnd]} if clients is None else clients
    changed = set(clients) if changed is None else changed
    folder.commit(rnd, [{"round": rnd}], {"rnd": rnd}, clients, changed, rejections)


def reopened(path):
    folder = opened(path, resume=True)
    return folder, folder.load()


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
    with pytest.raises(RunError, match=r"already contains a run; continue it \(resume=True\)"):
        opened(tmp_path)


def test_another_plan_is_rejected_with_the_differences(tmp_path):
    opened(tmp_path).close()
    other = make_plan("fedavg", "digits-partial", seed=2, rounds=4)
    with pytest.raises(RunError, match="seed: 1 -> 2"):
        opened(tmp_path, other, resume=True)


def test_a_changed_file_of_a_loss_or_metric_is_rejected(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def f(a, b):\n    return (a - b).abs()\n")
    changes = {"loss": f"{file}:f", "metrics": f"gain={file}:f:higher"}
    plan = make_plan("fedavg", "digits-partial", rounds=4, **changes)
    assert list(compute_user_files(plan)) == [str(file)]
    assert compute_user_files(PLAN) == {}
    opened(tmp_path / "run", plan).close()
    opened(tmp_path / "run", plan, resume=True).close()
    file.write_text("def f(a, b):\n    return (a - b).square()\n")
    with pytest.raises(RunError, match=r"mine.py has changed since .*expected the digest \w{16}"):
        opened(tmp_path / "run", plan, resume=True)
    job = CellJob("fedavg", plan, tmp_path / "run", "")
    with pytest.raises(RunError, match=r"mine.py has changed since"):
        is_done(job)


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
    for changes in ({"x_test": 255 - data.x_test}, {"y_test": data.y_test[::-1].copy()}):
        with pytest.raises(RunError, match="started with other data"):
            run_plan(PLAN, out=tmp_path, resume=True, data=replace(data, **changes))


@pytest.mark.parametrize("row", [0, 49], ids=["training", "test"])
@pytest.mark.parametrize("column", ["x", "y", "client"])
def test_a_changed_row_of_a_table_is_reported_on_resume(tmp_path, row, column):
    rows = [{"x": i / 2, "y": i % 2, "client": i % 5, "time": i} for i in range(50)]
    settings = {"data.label": "y", "data.client": "client", "data.time": "time"}
    overrides = [f"{name}={value}" for name, value in settings.items()]

    def start(**options):
        lines = ["x,y,client,time", *(",".join(map(str, each.values())) for each in rows)]
        (tmp_path / "a.csv").write_text("\n".join(lines))
        plan = make_plan("fedavg", str(tmp_path / "a.csv"), rounds=3, overrides=overrides)
        run_plan(plan, out=tmp_path / "run", **options)

    with pytest.raises(Interruption):
        start(watch=interrupt_after(2))
    rows[row] |= {column: {"x": -1.0, "y": 1 - row % 2, "client": 3}[column]}
    with pytest.raises(RunError, match=r"started with other data: the contents of .*a\.csv"):
        start(resume=True)


def test_files_and_lines_of_an_interrupted_round_are_removed(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1)
    commit(folder, 2)
    folder.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3}\n{"round": 4, "los')
    (tmp_path / "checkpoint/clients-00000003-some.safetensors").write_bytes(b"half")
    (tmp_path / "checkpoint/server-00000003.safetensors.part").write_bytes(b"half")
    folder, (server, clients) = reopened(tmp_path)
    assert (server["rnd"], clients) == (2, {5: [2]})
    assert [row["round"] for row in folder.metrics()] == [1, 2]
    assert client_files(tmp_path) == [
        "clients-00000001-some.safetensors",
        "clients-00000002-some.safetensors",
    ]
    commit(folder, 3)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"round": 1}\n{"round": 2}\n{"round": 3}\n'
    assert not list(tmp_path.rglob("*.part"))
    folder.close()


def test_a_snapshot_of_all_clients_replaces_the_older_files(tmp_path):
    folder = opened(tmp_path)
    clients = {}
    for rnd in range(1, SNAPSHOT_EVERY + 2):
        clients[rnd % 3] = [rnd]
        commit(folder, rnd, clients, {rnd % 3})
    last = SNAPSHOT_EVERY
    assert client_files(tmp_path) == [
        f"clients-{last:08d}-all.safetensors",
        f"clients-{last + 1:08d}-some.safetensors",
    ]
    assert folder.load()[1] == clients
    folder.close()


def damaged_folder(tmp_path, name, rounds=3):
    """Return a folder with some rounds in which one byte of a file was changed."""
    folder = opened(tmp_path)
    for rnd in range(1, rounds + 1):
        commit(folder, rnd)
    folder.close()
    file = tmp_path / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return tmp_path


@pytest.mark.parametrize(
    "name", ["server-00000003.safetensors", "clients-00000003-some.safetensors"]
)
def test_a_run_continues_before_a_damaged_checkpoint_and_says_so(tmp_path, name):
    damaged_folder(tmp_path, f"checkpoint/{name}")
    reason = (
        rf"continues after round 2\. Damaged:\n  checkpoint/{name} \(its content was changed\)$"
    )
    with pytest.warns(RunWarning, match=reason):
        folder, (server, clients) = reopened(tmp_path)
    assert (server, clients) == ({"rnd": 2}, {5: [2]})
    assert [row["round"] for row in folder.metrics()] == [1, 2]
    commit(folder, 3)
    folder.close()
    folder, (server, _) = reopened(tmp_path)
    assert server == {"rnd": 3}
    folder.close()


@pytest.mark.parametrize(
    "name",
    ["server-00000003.safetensors", "clients-00000003-some.safetensors", "manifest-00000003.json"],
)
def test_a_folder_in_place_of_a_checkpoint_file_costs_one_round(tmp_path, name):
    damaged_folder(tmp_path, f"checkpoint/{name}")
    for _ in range(2):  # the second time, the name to which it is moved exists
        (tmp_path / "checkpoint" / name).unlink()
        (tmp_path / "checkpoint" / name).mkdir()
        (tmp_path / "checkpoint" / name / "notes.txt").write_text("mine")
        with pytest.warns(RunWarning, match=rf"round 2\. Damaged:\n  checkpoint/{name} \("):
            folder, (server, _) = reopened(tmp_path)
        assert server == {"rnd": 2}
        commit(folder, 3)
        folder.close()
        folder, (server, _) = reopened(tmp_path)
        assert server == {"rnd": 3}
        folder.close()
    for suffix in ("folder", "folder1"):
        notes = tmp_path / "checkpoint" / f"{name}.{suffix}" / "notes.txt"
        assert notes.read_text() == "mine", "the content of the folder is kept"


def test_a_folder_in_place_of_a_result_is_moved_aside(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1)
    folder.write_json("scores.json", {"a": 1})
    folder.finish({"rounds": 1})
    folder.close()
    (tmp_path / "scores.json").unlink()
    (tmp_path / "scores.json").mkdir()
    with pytest.warns(RunWarning, match=r"scores\.json \(a folder\)"):
        folder, _ = reopened(tmp_path)
    folder.write_json("scores.json", {"a": 1})
    folder.finish({"rounds": 1})
    assert folder.is_finished(1)
    folder.close()


def test_the_warning_has_a_line_of_at_most_80_columns_for_each_damaged_file(tmp_path):
    damaged_folder(tmp_path, "checkpoint/server-00000003.safetensors")
    (tmp_path / "command.txt").unlink()
    (tmp_path / "environment.json").unlink()
    with pytest.warns(RunWarning) as caught:
        opened(tmp_path, resume=True).close()
    message = str(caught[0].message).replace(str(tmp_path), "runs/a-long-name-of-a-run-seed0")
    assert format_warning(message, RunWarning, "", 1).splitlines() == [
        "thalweg: warning: runs/a-long-name-of-a-run-seed0: the run continues after round",
        "2. Damaged:",
        "  checkpoint/server-00000003.safetensors (its content was changed)",
        "  command.txt (missing)",
        "  environment.json (missing)",
    ]


def test_a_damaged_manifest_costs_one_round(tmp_path):
    damaged_folder(tmp_path, "checkpoint/manifest-00000003.json")
    with pytest.warns(RunWarning, match=r"manifest-00000003\.json \(damaged\)"):
        folder, (server, _) = reopened(tmp_path)
    assert server == {"rnd": 2}
    folder.close()


def test_two_damaged_rounds_are_an_error_with_all_files(tmp_path):
    damaged_folder(tmp_path, "checkpoint/clients-00000001-some.safetensors")
    with pytest.raises(RunError, match=r"no round can be restored. Damaged: .*clients-00000001"):
        opened(tmp_path, resume=True)


def test_a_missing_client_file_is_not_ignored(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1)
    commit(folder, 2)
    folder.close()
    (tmp_path / "checkpoint/clients-00000002-some.safetensors").unlink()
    with pytest.warns(RunWarning, match=r"clients-00000002-some.safetensors \(missing\)"):
        folder, (server, clients) = reopened(tmp_path)
    assert (server, clients) == ({"rnd": 1}, {5: [1]})
    folder.close()


def test_a_client_file_that_was_replaced_by_an_older_one_is_detected(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1)
    commit(folder, 2)
    folder.close()
    checkpoint = tmp_path / "checkpoint"
    older = (checkpoint / "clients-00000001-some.safetensors").read_bytes()
    (checkpoint / "clients-00000002-some.safetensors").write_bytes(older)
    with pytest.warns(RunWarning, match=r"continues after round 1\."):
        opened(tmp_path, resume=True).close()


def test_files_that_no_manifest_contains_are_not_read(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1)
    folder.close()
    write_tree(tmp_path / "checkpoint/clients-00000001-all.safetensors", {"5": [9]})
    write_tree(tmp_path / "checkpoint/clients-x-some.safetensors", {"5": [9]})
    folder, (_, clients) = reopened(tmp_path)
    assert clients == {5: [1]}
    folder.close()


def test_lost_manifests_are_not_taken_for_a_new_run(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1)
    folder.close()
    for file in (tmp_path / "checkpoint").glob("manifest-*"):
        file.unlink()
    with pytest.raises(RunError, match=r"no round can be restored.*manifest-\*\.json \(missing, "):
        opened(tmp_path, resume=True)


@pytest.mark.parametrize(
    "left",
    [
        "metrics.jsonl",
        "rejections.jsonl",
        "model.safetensors",
        "summary.json",
        "checkpoint/clients-00000003-some.safetensors",
        "checkpoint/manifest-3.json",
        "checkpoint/blobs/0123456789abcdef.safetensors",
    ],
)
@pytest.mark.parametrize("has_plan", [True, False])
def test_files_of_rounds_without_a_manifest_are_never_overwritten(tmp_path, left, has_plan):
    folder = opened(tmp_path)
    commit(folder, 1, rejections=[Rejection(5, "late")])
    folder.close()
    shutil.rmtree(tmp_path / "checkpoint")
    for name in ("metrics.jsonl", "rejections.jsonl"):
        (tmp_path / name).unlink()
    if not has_plan:
        (tmp_path / "plan.toml").unlink()
    file = tmp_path / left
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"content")
    with pytest.raises(RunError, match=rf"no round can be restored.*there is {left}"):
        opened(tmp_path, resume=True)
    assert file.read_bytes() == b"content"


NAMES = ("metrics.jsonl", "rejections.jsonl", "model.safetensors", "summary.json", "command.txt")


@pytest.mark.parametrize("name", [*NAMES, "preprocessing.json"])
@pytest.mark.parametrize("is_new", [True, False])
def test_folder_with_the_name_of_a_file_of_an_unfinished_run_is_moved_aside(tmp_path, name, is_new):
    if not is_new:
        opened(tmp_path).close()
        (tmp_path / "command.txt").unlink()
    (tmp_path / name / "content").mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        folder = opened(tmp_path, resume=not is_new)
    commit(folder, 1, rejections=[Rejection(5, "late")])
    folder.write_result("model.safetensors", b"model")
    folder.write_json("preprocessing.json", {})
    folder.finish({"rounds": 1})
    folder.close()
    assert folder.summary() == {"rounds": 1}
    assert (tmp_path / f"{name}.folder/content").exists()


@pytest.mark.parametrize("name", [".lock", "checkpoint"])
def test_name_of_a_path_that_cannot_be_written_is_in_the_message(tmp_path, name):
    if name == ".lock":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).touch()
    with pytest.raises(RunError, match=rf"cannot write to the run folder .* \(.*/{name}\)\.$"):
        opened(tmp_path)


def test_run_that_was_killed_before_its_first_manifest_starts(tmp_path):
    opened(tmp_path).close()
    first = tmp_path / "checkpoint/manifest-00000000.json"
    first.rename(f"{first}.part")
    (tmp_path / "metrics.jsonl").touch()
    opened(tmp_path, resume=True).close()
    assert first.exists()


def test_a_folder_of_an_older_version_is_not_resumed(tmp_path):
    opened(tmp_path).close()
    (tmp_path / "checkpoint/manifest-00000000.json").unlink()
    write_tree(tmp_path / "checkpoint/server.safetensors", {"rnd": 1})
    with pytest.raises(RunError, match="no round can be restored"):
        opened(tmp_path, resume=True)


def test_another_format_of_run_folders_is_rejected(tmp_path, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(manifest, "FORMAT", 7)
        folder = opened(tmp_path)
        commit(folder, 1)
        folder.close()
    with pytest.raises(RunError, match=r"has run folder format 7, .* reads format 1\. Resume it"):
        opened(tmp_path, resume=True)


def test_a_changed_plan_is_not_resumed(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1)
    folder.close()
    text = (tmp_path / "plan.toml").read_text()
    (tmp_path / "plan.toml").write_text(text.replace("rounds = 4", "rounds = 5"))
    changed = read_plan(tmp_path)  # as thalweg run FOLDER --resume reads it
    with pytest.raises(RunError, match=r"plan\.toml was changed after the run had started"):
        opened(tmp_path, changed, resume=True)


@pytest.mark.parametrize("name", ["plan.toml", "metrics.jsonl"])
def test_a_text_file_that_is_not_utf_8_is_reported_without_a_traceback(tmp_path, name):
    folder = opened(tmp_path)
    for rnd in (1, 2, 3):
        commit(folder, rnd)
    folder.close()
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(b"\xff" + content[1:])
    with pytest.raises(RunError, match=name):
        opened(tmp_path, resume=True)


def test_damage_of_a_file_that_is_not_needed_is_reported(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1)
    folder.close()
    (tmp_path / "command.txt").unlink()
    with pytest.warns(RunWarning, match=r"continues after .*\n  command.txt \(missing\)$"):
        folder, (server, _) = reopened(tmp_path)
    assert server == {"rnd": 1}
    commit(folder, 2)
    commit(folder, 3)
    folder.close()
    opened(tmp_path, resume=True).close()  # without a warning: the kept rounds do not contain it


def test_other_versions_of_packages_are_reported(tmp_path, monkeypatch):
    folder = opened(tmp_path)
    commit(folder, 1)
    folder.close()
    versions = {**run_folder._package_versions(), "torch": "9.9"}
    monkeypatch.setattr(run_folder, "_package_versions", lambda: versions)
    with pytest.warns(RunWarning, match=r"other versions \(torch .* -> 9\.9\)"):
        opened(tmp_path, resume=True).close()


def test_another_kernel_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "get_kernel_name", lambda: "native-avx2")
    folder = opened(tmp_path)
    commit(folder, 1)
    folder.close()
    assert json.loads((tmp_path / "environment.json").read_text())["packages"]["kernel"] == (
        "native-avx2"
    )
    opened(tmp_path, resume=True).close()  # the same kernel: no warning
    monkeypatch.setattr(run_folder, "get_kernel_name", lambda: "torch")
    with pytest.warns(RunWarning, match=r"other versions \(kernel native-avx2 -> torch\)"):
        opened(tmp_path, resume=True).close()


def test_files_and_folders_are_private(tmp_path):
    path = tmp_path / "study" / "run"
    folder = opened(path)
    commit(folder, 1, rejections=[Rejection(0, "late.")])
    folder.close()
    files = [each for each in path.rglob("*") if each.is_file()]
    assert len(files) == 10
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}
    folders = [path, path / "checkpoint"]
    assert {each.stat().st_mode & 0o777 for each in folders} == {0o700}


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    match = r"cannot write to the run folder .*: Not a directory \(.*file\)\."
    with pytest.raises(RunError, match=match):
        opened(tmp_path / "file" / "run")


def test_a_full_disk_is_reported(tmp_path):
    folder = opened(tmp_path)
    with using(FullSystem(10)), pytest.raises(RunError, match="No space left on device"):
        commit(folder, 1)
    folder.close()


def test_rejections_are_written_one_per_line(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1)
    assert not (tmp_path / "rejections.jsonl").exists()
    commit(folder, 2, rejections=[Rejection(3, "not requested."), Rejection(5, "too long.")])
    assert folder.rejections() == [
        {"round": 2, "client": 3, "reason": "not requested."},
        {"round": 2, "client": 5, "reason": "too long."},
    ]
    folder.close()


def test_rejections_of_an_interrupted_round_are_removed(tmp_path):
    folder = opened(tmp_path)
    for rnd in (1, 2):
        commit(folder, rnd, rejections=[Rejection(0, "late.")])
    folder.close()
    with (tmp_path / "rejections.jsonl").open("a") as file:
        file.write('{"round": 3, "client": 0, "reason": "late."}\n{"round": 3, "cli')
    folder, _ = reopened(tmp_path)
    assert [row["round"] for row in folder.rejections()] == [1, 2]
    commit(folder, 3)
    assert len((tmp_path / "rejections.jsonl").read_text().splitlines()) == 2
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


def test_open_returns_whether_there_is_a_checkpoint(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.open(PLAN, command="thalweg run x", resume=False) is False
    assert (tmp_path / "command.txt").read_text() == "thalweg run x\n"
    commit(folder, 1)
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
    again = opened(tmp_path, resume=True)
    again.close()
    assert again.path == folder.path


def test_without_file_locks_a_folder_can_still_be_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    first, second = opened(tmp_path), opened(tmp_path, resume=True)
    first.close()
    second.close()
    assert not (tmp_path / ".lock").exists()


def test_a_checkpoint_contains_the_changed_clients_only(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1, {0: [10], 1: [11]})
    commit(folder, 2, {0: [20], 1: [99]}, {0})  # client 1 is not among the changed
    assert folder.read_checkpoint() == ({"rnd": 2}, {0: [20], 1: [11]})
    folder.close()


def test_without_changed_clients_no_file_is_written(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1, {0: [10]}, set())
    assert client_files(tmp_path) == []
    folder.close()


def test_a_snapshot_contains_all_clients(tmp_path):
    folder = opened(tmp_path)
    last = SNAPSHOT_EVERY
    commit(folder, last - 1, {0: [1], 1: [1]})
    commit(folder, last, {0: [2], 1: [2]}, {0})
    assert folder.read_checkpoint()[1] == {0: [2], 1: [2]}
    names = [f"clients-{last - 1:08d}-some.safetensors", f"clients-{last:08d}-all.safetensors"]
    assert client_files(tmp_path) == names, "the round before the last one is kept"
    commit(folder, last + 1, {0: [3], 1: [2]}, {0})
    assert client_files(tmp_path) == [names[1], f"clients-{last + 1:08d}-some.safetensors"]
    folder.close()


def test_reading_a_checkpoint_changes_nothing_and_ignores_later_files(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1)
    commit(folder, 2)
    write_tree(tmp_path / "checkpoint/clients-00000003-some.safetensors", {"5": [3]})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3}\n')
    assert RunFolder(tmp_path).read_checkpoint() == ({"rnd": 2}, {5: [2]})
    assert len(RunFolder(tmp_path).metrics()) == 2, "a round is visible with its checkpoint"
    assert len(client_files(tmp_path)) == 3
    folder.close()


def test_metrics_with_fewer_lines_than_rounds_are_rejected(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1)
    commit(folder, 2)
    folder.close()
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}\n')
    with pytest.raises(RunError, match=r"metrics.jsonl is damaged"):
        folder.metrics()
    with pytest.warns(RunWarning, match=r"metrics.jsonl \(13 bytes, expected 26\)"):
        folder, (server, _) = reopened(tmp_path)
    assert server == {"rnd": 1}
    folder.close()


def test_a_folder_without_rejections_is_resumed_without_such_a_file(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1)
    folder.close()
    folder, _ = reopened(tmp_path)
    assert not (tmp_path / "rejections.jsonl").exists()
    assert folder.rejections() == []
    folder.close()


def test_clearing_removes_metrics_and_rejections(tmp_path):
    folder = opened(tmp_path)
    commit(folder, 1, rejections=[Rejection(0, "late.")])
    folder.clear()
    assert folder.metrics() == folder.rejections() == []
    commit(folder, 1)
    assert folder.metrics() == [{"round": 1}]
    assert folder.rejections() == []
    folder.close()


def finished(tmp_path):
    folder = opened(tmp_path)
    for rnd in range(1, 5):
        commit(folder, rnd)
    folder.write_result("model.safetensors", b"model")
    folder.finish({"rounds": 4})
    folder.close()
    return folder


def test_a_run_is_finished_when_its_summary_has_all_rounds(tmp_path):
    folder = opened(tmp_path)
    assert not folder.is_finished(4)
    folder.close()
    folder = finished(tmp_path / "run")
    assert folder.summary() == {"rounds": 4}
    assert folder.is_finished(4)
    assert not folder.is_finished(5)
    folder.check_results()


def count_digests(monkeypatch):
    """Count how often the content of each file is read to verify it."""
    counts = Counter()

    def digest_file(path, size=None):
        counts[path.name] += 1
        return files.digest_file(path, size)

    for module in (manifest, run_folder):
        monkeypatch.setattr(module, "digest_file", digest_file)
    return counts


def test_each_result_is_verified_once(tmp_path, monkeypatch):
    thalweg.run("fedavg", "digits-partial", seed=1, rounds=4, out=tmp_path / "run")
    counts = count_digests(monkeypatch)
    thalweg.load(tmp_path / "run")
    results = ["model.safetensors", "preprocessing.json", "summary.json"]
    assert counts == dict.fromkeys(results, 1)
    counts.clear()
    assert read_cell(CellJob("fedavg", PLAN, tmp_path / "run", "")).is_done
    assert counts == dict.fromkeys(results, 1)


def test_each_file_is_verified_once_on_resume(tmp_path, monkeypatch):
    blob = freeze(np.zeros(MIN_BLOB_BYTES))
    folder = opened(tmp_path)
    for rnd in range(1, 5):
        folder.commit(rnd, [{"round": rnd}], {"rnd": rnd, "a": blob}, {5: [rnd]}, {5})
    folder.write_result("model.safetensors", b"model")
    folder.finish({"rounds": 4})
    folder.close()
    counts = count_digests(monkeypatch)
    folder, _ = reopened(tmp_path)
    assert folder.is_finished(4)
    assert folder.summary() == {"rounds": 4}
    folder.check_results()
    folder.read_checkpoint()
    folder.close()
    kept = [*folder._kept[0].files, *folder._kept[1].files, "model.safetensors", "summary.json"]
    assert len(set(kept)) == 13
    assert counts == {Path(name).name: 1 for name in kept}


def test_a_file_that_changes_after_it_was_verified_is_verified_again(tmp_path):
    folder = finished(tmp_path)
    assert folder.is_finished(4)
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"mudel")  # the same size
    os.utime(file, ns=(0, 0))
    assert not folder.is_finished(4)
    file.write_bytes(b"model")
    assert folder.is_finished(4)


@pytest.mark.parametrize("text", ["", '{"rounds": 4', "[4]"])
def test_a_damaged_summary_is_that_of_an_unfinished_run(tmp_path, text):
    folder = finished(tmp_path)
    (tmp_path / "summary.json").write_text(text)
    assert folder.summary() == {}
    with pytest.raises(RunError, match=r"damaged: summary\.json .* --resume"):
        folder.check_results()


def test_damaged_results_are_written_again(tmp_path):
    finished(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"mudel")
    with pytest.warns(RunWarning, match=r"continues after round 4\. Damaged:\n  model.safetensors"):
        folder, (server, _) = reopened(tmp_path)
    assert server == {"rnd": 4}
    folder.write_result("model.safetensors", b"model")
    folder.finish({"rounds": 4})
    folder.close()
    assert folder.is_finished(4)


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
    commit(folder, 1)
    folder.finish({"rounds": 1})
    assert list(tmp_path.rglob("*.part")) == []
    folder.close()


def test_the_environment_names_versions_and_the_machine():
    found = run_folder.environment()
    assert found["cores"] == os.cpu_count()
    assert found["python"] == platform.python_version()
    required = {"numpy", "scipy", "scikit-learn", "torch", "safetensors", "kernel", "device"}
    is_installed = importlib.util.find_spec("river") is not None
    assert found["packages"].keys() == required | ({"river"} if is_installed else set())
    assert found["thalweg"] == thalweg.__version__


def test_file_that_changed_is_named_when_a_run_is_resumed(tmp_path):
    file, out = tmp_path / "own.csv", tmp_path / "run"
    lines = [f"{i},{i % 2}" for i in range(40)]
    file.write_text("\n".join(["x,label", *lines]))
    plan = make_plan("fedavg", file)
    with pytest.raises(Interruption):
        run_plan(plan, out=out, watch=interrupt_after(2))
    file.write_text("\n".join(["x,label", *(f"{i * i},{i % 2}" for i in range(40))]))
    message = rf"contents of {file} \(data\) have changed .*expected checksum \d+, got \d+"
    with pytest.raises(RunError, match=message):
        run_plan(plan, out=out, resume=True)
    file.write_text("\n".join(["x,label", *lines * 3]))
    with pytest.raises(RunError, match=rf"rows of {file}: has the file changed\?"):
        run_plan(make_plan("fedavg", file), out=out, resume=True)
