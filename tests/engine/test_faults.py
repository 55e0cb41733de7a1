"""Faults at every system call of a run folder: no round is lost, and no bit differs.

The run is a counter with the files of a real one: metrics, rejections, clients, arrays, results.
`test_all_faults` injects more than 10,000 faults; the other tests inject a sample of them.
"""

from __future__ import annotations

import errno
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from contracts.faults import (
    FailingSystem,
    FaultySystem,
    FullSystem,
    Killed,
    KillingSystem,
    PowerLossSystem,
    ShortWritingSystem,
    using,
)
from thalweg.core.errors import RunError
from thalweg.core.trees import Tree
from thalweg.core.types import Rejection
from thalweg.core.vectors import freeze
from thalweg.engine import blobs, run_folder
from thalweg.engine.plan import make_plan
from thalweg.engine.run_folder import RunFolder, RunWarning

ROUNDS = 5
PLAN = make_plan("fedavg", "digits-partial", rounds=ROUNDS)
A, B, C = (freeze(np.full(16, value, dtype=np.float32)) for value in range(3))
STORED = [[A], [A, B], [B], [B, C], [C]]  # arrays of the server after each round


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use array files for small arrays, and a snapshot of all clients in round 3."""
    monkeypatch.setattr(blobs, "MIN_BLOB_BYTES", 64)
    monkeypatch.setattr(run_folder, "SNAPSHOT_EVERY", 3)
    monkeypatch.setattr(run_folder, "environment", lambda device: {"packages": {}})
    monkeypatch.setattr(run_folder, "parse_plan", lambda text, where: {})  # both are slow
    monkeypatch.setattr(run_folder, "any_plan_from_dict", lambda plain: PLAN)


def state_after(rnd: int) -> Tree:
    return {"rnd": rnd, "model": np.arange(4.0) * rnd, "stored": STORED[rnd - 1]}


def play(path: Path, done: list[int]) -> int:
    """Start or resume the run; append each complete round to `done`. Return the first round."""
    folder = RunFolder(path)
    try:
        first = 1
        if folder.open(PLAN, command="thalweg run ...", resume=True):
            server, clients = folder.load()
            first = server["rnd"] + 1
            assert clients == {client: [server["rnd"]] for client in (0, 1)}
            assert [row["round"] for row in folder.metrics()] == list(range(1, first))
        for rnd in range(first, ROUNDS + 1):
            clients = {client: [rnd] for client in (0, 1)}
            late = [Rejection(rnd, "late.")] if rnd % 2 else []
            folder.commit(rnd, [{"round": rnd}], state_after(rnd), clients, {0, 1}, late)
            done.append(rnd)
        folder.write_result("model.safetensors", b"the model")
        folder.finish({"rounds": ROUNDS})
        return first
    finally:
        folder.close()


def content(path: Path) -> dict[str, bytes]:
    files = (file for file in path.rglob("*") if file.is_file() and file.name != ".lock")
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    """Return the files of a run without faults."""
    with using(FaultySystem()):
        play(tmp_path / "whole", [])
    return content(tmp_path / "whole")


def count_calls(path: Path) -> int:
    system = FaultySystem()
    with using(system):
        play(path, [])
    return system.calls


def check_recovers(path: Path, whole: dict[str, bytes], done: list[int]) -> None:
    """Resume the run: complete rounds are not repeated, and the files have the same bytes."""
    with using(FaultySystem()):
        first = play(path, [])
    assert first > max(done, default=0), "no complete round is lost"
    assert content(path) == whole


def inject(path: Path, system: FaultySystem | FullSystem) -> list[int]:
    """Run until the fault; return the complete rounds."""
    done: list[int] = []
    with using(system), suppress(Killed, RunError):
        play(path, done)
    return done


def sample(number: int, every: int) -> Iterator[int]:
    yield from range(0, number, every)


def check_kills(tmp_path: Path, whole: dict[str, bytes], every: int) -> int:
    calls, faults = count_calls(tmp_path / "count"), 0
    for half in (False, True):
        for at in sample(calls, every):
            path = tmp_path / f"kill-{half}-{at}"
            check_recovers(path, whole, inject(path, KillingSystem(at, half)))
            shutil.rmtree(path)
            faults += 1
    return faults


def check_errors(tmp_path: Path, whole: dict[str, bytes], every: int) -> int:
    calls, faults = count_calls(tmp_path / "count"), 0
    for number in (errno.EIO, errno.ENOSPC, errno.EROFS):
        for at in sample(calls, every):
            path = tmp_path / f"error-{number}-{at}"
            check_recovers(path, whole, inject(path, FailingSystem(at, number)))
            shutil.rmtree(path)
            faults += 1
    return faults


def check_full_disks(tmp_path: Path, whole: dict[str, bytes], every: int) -> int:
    faults = 0
    with using(FullSystem(10**9)) as _:
        space = FullSystem(10**9)
        with using(space):
            play(tmp_path / "space", [])
    written = 10**9 - space.left
    for bytes_left in sample(written, every):
        path = tmp_path / f"full-{bytes_left}"
        check_recovers(path, whole, inject(path, FullSystem(bytes_left)))
        shutil.rmtree(path)
        faults += 1
    return faults


def check_power_losses(tmp_path: Path, whole: dict[str, bytes], every: int, repeat: int) -> int:
    calls, faults = count_calls(tmp_path / "count"), 0
    for at in sample(calls, every):
        for seed in range(repeat):
            path = tmp_path / f"power-{at}-{seed}"
            path.mkdir()
            system = PowerLossSystem(path, at)
            done = inject(path, system)
            system.lose_power(random.Random(seed))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RunWarning)
                check_recovers(path, whole, done)
            shutil.rmtree(path)
            faults += 1
    return faults


def check_flips(tmp_path: Path, whole: dict[str, bytes], every: int) -> int:
    """Change one bit of a file after round 4: it is reported, or has no effect."""
    start, faults, rng = tmp_path / "start", 0, random.Random(0)
    start_run(start, rounds=4)
    for name, payload in sorted(content(start).items()):
        for place in sample(len(payload), every):
            path = tmp_path / "flipped"
            shutil.copytree(start, path)
            changed = bytearray(payload)
            changed[place] ^= 1 << rng.randrange(8)
            (path / name).write_bytes(changed)
            check_damage(path, whole, name)
            shutil.rmtree(path)
            faults += 1
    return faults


def start_run(path: Path, rounds: int) -> None:
    class Stopped(Exception):
        pass

    class Stopping(list[int]):
        def append(self, rnd: int) -> None:
            if rnd == rounds:
                raise Stopped

    with using(FaultySystem()), suppress(Stopped):
        play(path, Stopping())


def check_damage(path: Path, whole: dict[str, bytes], name: str) -> None:
    """Resume a damaged run: an error in one line, or a warning and the same bytes."""
    with warnings.catch_warnings(record=True) as caught, using(FaultySystem()):
        warnings.simplefilter("always")
        try:
            play(path, [])
        except RunError:
            return
    is_manifest = "manifest" in name  # without its manifest, a round was interrupted
    assert caught or is_manifest, f"damage of {name} was not reported"
    now = content(path)
    intact = {each for each in whole if not each.startswith("checkpoint/manifest") or each in now}
    about = {"command.txt", "environment.json"}
    differing = {each for each in intact if now.get(each) != whole[each]}
    # Manifests contain the digests of the two files that are not needed.
    assert not {each for each in differing - about if "manifest" not in each}, differing


def test_a_kill_at_any_system_call_loses_no_complete_round(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    assert check_kills(tmp_path, whole, every=11) > 15


def test_an_io_error_at_any_system_call_leaves_a_run_that_can_be_resumed(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    assert check_errors(tmp_path, whole, every=29) > 10


def test_short_writes_are_continued(tmp_path: Path, whole: dict[str, bytes]) -> None:
    with using(ShortWritingSystem()):
        play(tmp_path / "run", [])
    assert content(tmp_path / "run") == whole


def test_a_disk_that_is_full_after_any_byte_leaves_a_run_that_can_be_resumed(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    assert check_full_disks(tmp_path, whole, every=509) > 20


def test_a_power_cut_at_any_system_call_loses_no_complete_round(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    assert check_power_losses(tmp_path, whole, every=11, repeat=2) > 15


def test_a_flipped_bit_is_reported(tmp_path: Path, whole: dict[str, bytes]) -> None:
    assert check_flips(tmp_path, whole, every=211) > 30


@pytest.mark.parametrize("change", ["remove", "empty", "cut", "extend", "replace", "folder"])
def test_a_changed_file_is_reported(tmp_path: Path, whole: dict[str, bytes], change: str) -> None:
    start = tmp_path / "start"
    start_run(start, rounds=4)
    names = sorted(content(start))
    for index, name in enumerate(names):
        path = tmp_path / "changed"
        shutil.copytree(start, path)
        file = path / name
        CHANGES[change](file, path / names[index - 1])
        # Additional lines belong to a round that was interrupted.
        if content(path) != content(start) and (change, file.suffix) != ("extend", ".jsonl"):
            check_damage(path, whole, name)
        shutil.rmtree(path)


def make_a_folder(file: Path, other: Path) -> None:
    file.unlink()
    file.mkdir()


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "remove": lambda file, other: file.unlink(),
    "empty": lambda file, other: file.write_bytes(b""),
    "cut": lambda file, other: file.write_bytes(file.read_bytes()[:-1]),
    "extend": lambda file, other: file.write_bytes(file.read_bytes() + b"\n"),
    "replace": lambda file, other: file.write_bytes(other.read_bytes()),
    "folder": make_a_folder,
}


@pytest.mark.slow
def test_all_faults(tmp_path: Path, whole: dict[str, bytes]) -> None:
    faults = check_kills(tmp_path, whole, every=1)
    faults += check_errors(tmp_path, whole, every=1)
    faults += check_full_disks(tmp_path, whole, every=2)
    faults += check_power_losses(tmp_path, whole, every=1, repeat=15)
    faults += check_flips(tmp_path, whole, every=1)
    assert faults > 10_000, faults
