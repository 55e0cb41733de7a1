"""Large constant arrays are written once, and a kill leaves a complete checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import to_comparable
from thalweg.core.errors import RunError
from thalweg.core.files import Digest, digest_file
from thalweg.core.trees import Array, Tree, read_tree, write_tree
from thalweg.core.vectors import freeze, is_frozen
from thalweg.engine.blobs import MIN_BLOB_BYTES, Blobs, digest
from thalweg.engine.plan import make_plan
from thalweg.engine.run_folder import RunFolder

NUMBERS = MIN_BLOB_BYTES // 4  # of four bytes


def large(value: float, numbers: int = NUMBERS) -> Array:
    return freeze(np.full(numbers, value, dtype=np.float32))


def files(folder: Path) -> set[str]:
    return {file.name for file in (folder / "blobs").glob("*")}


class Place:
    """A folder with one tree, and arrays beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "server.safetensors"
        self.blobs = Blobs(folder / "blobs")
        self.digests: dict[Path, Digest] = {}

    def write(self, tree: Tree) -> None:
        self.digests = self.blobs.write(self.file, tree)

    def read(self) -> Tree:
        return Blobs(self.folder / "blobs").read(self.file, self.digests)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_large_frozen_array_has_a_file_of_its_own(place: Place) -> None:
    tree = {"model": large(1), "shape": freeze(np.zeros((NUMBERS, 2))), "rnd": 3}
    place.write(tree)
    assert files(place.folder) == {
        f"{digest(tree[name])}.safetensors" for name in ("model", "shape")
    }
    assert place.file.stat().st_size < 1000
    assert to_comparable(place.read()) == to_comparable(tree)


def test_small_or_writable_arrays_stay_in_the_tree(place: Place) -> None:
    whole = large(1)
    tree = [large(1, NUMBERS - 1), np.zeros(NUMBERS), whole[:-1], whole.astype(">f4")]
    tree[3].flags.writeable = False
    place.write(tree)
    assert files(place.folder) == set()
    assert not (place.folder / "blobs").exists(), "most runs have no need of it"
    assert [part.tolist() for part in place.read()] == [part.tolist() for part in tree]


def test_an_unchanged_array_is_not_written_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    replace = os.replace

    def noted(source: Any, target: Any) -> None:
        written.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr(os, "replace", noted)
    models = [large(n) for n in range(3)]
    for rnd in range(5):
        place.write({"rnd": rnd, "models": models})
    assert len(written) == 3 + 5
    assert written.count("server.safetensors") == 5
    models.append(large(3))
    place.write({"rnd": 5, "models": models})
    assert len(written) == 8 + 2


def test_arrays_that_were_read_are_not_written_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write([large(1), large(2)])
    again = Place(place.folder)
    tree = again.blobs.read(again.file, place.digests)
    assert all(map(is_frozen, tree))
    before = {
        file: (place.folder / "blobs" / file).stat().st_mtime_ns for file in files(place.folder)
    }
    again.write(tree)
    after = {
        file: (place.folder / "blobs" / file).stat().st_mtime_ns for file in files(place.folder)
    }
    assert before == after


def test_an_array_that_is_no_longer_used_is_removed_from_memory(place: Place) -> None:
    models = [large(n) for n in range(4)]
    place.write(models)
    written = place.blobs.write(place.file, models[2:])
    names = {f"{digest(model)}.safetensors" for model in models[2:]}
    assert {path.name for path in written} == {"server.safetensors"} | names
    assert len(place.blobs._written) == 2


def test_the_digests_are_those_of_the_files(place: Place) -> None:
    written = place.blobs.write(place.file, [large(1), 3])
    assert len(written) == 2
    assert all(digest_file(path) == found for path, found in written.items())


def test_the_same_array_twice_is_one_file_and_one_object(place: Place) -> None:
    model = large(1)
    place.write([model, model, large(1)])
    assert len(files(place.folder)) == 1
    a, b, c = place.read()
    assert a is b is c


def test_a_tree_without_array_files_is_read(place: Place) -> None:
    tree = {"rnd": 4, "bank": np.ones((1, NUMBERS), dtype=np.float32)}
    write_tree(place.file, tree)
    assert to_comparable(place.read()) == to_comparable(tree)
    place.write(place.read())
    assert to_comparable(place.read()) == to_comparable(tree)


# Damage and forgery


def test_a_missing_damaged_or_exchanged_array_file_is_named(place: Place) -> None:
    one, other = large(1), large(2)
    place.write([one])
    (file,) = (place.folder / "blobs").iterdir()
    write_tree(file, other)
    with pytest.raises(RunError, match=f"{digest(one)}.safetensors is damaged"):
        place.read()
    write_tree(file, {"no": "array"})
    with pytest.raises(RunError, match=f"{digest(one)}.safetensors is damaged"):
        place.read()
    place.digests.clear()
    with pytest.raises(RunError, match=f"{digest(one)}.safetensors is not a file of the round"):
        place.read()
    place.write([one])
    file.write_bytes(b"nothing of ours")
    with pytest.raises(RunError, match=f"{digest(one)}.safetensors is not a checkpoint of Thalweg"):
        place.read()
    file.unlink()
    with pytest.raises(RunError, match=f"{digest(one)}.safetensors is not a checkpoint of Thalweg"):
        place.read()


@pytest.mark.parametrize("name", ["../../secret", "", "A" * 32, "0" * 31, "0" * 33, "/" + "0" * 31])
def test_a_name_that_is_a_path_is_rejected(place: Place, name: str) -> None:
    write_tree(place.file, large(1), lambda array: name)
    with pytest.raises(RunError, match="is not the name of an array"):
        place.read()


def test_the_tree_and_the_array_must_agree_on_type_and_shape(place: Place) -> None:
    array = large(1)
    place.write([array])
    write_tree(place.file, np.zeros((2, 2)), lambda _: digest(array))
    with pytest.raises(
        RunError, match=r"should be float64 of shape \[2, 2\], but is float32 of shape"
    ):
        place.read()


def test_a_full_disk_leaves_the_old_tree(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write([large(1)])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RunError, match="No space left on device"):
        place.write([large(2)])
    monkeypatch.undo()
    assert to_comparable(place.read()) == to_comparable([large(1)])
    place.write([large(2)])
    assert to_comparable(place.read()) == to_comparable([large(2)])


# In a run folder; tests/engine/test_faults.py kills it between any two system calls

PLAN = make_plan("fedavg", "digits-partial", rounds=6)
A, B, C, D = (large(n) for n in range(4))
HISTORY = [[A], [A, B], [A, B], [B, C], [C, D], [D]]  # what is stored after each round


def state_after(rnd: int, stored: list[Array]) -> Tree:
    """Return the state of the server after a round, with the stored arrays."""
    bank = np.full((1, NUMBERS), rnd, dtype=np.float32)
    return {"rnd": rnd, "bank": bank, "stored": stored}


def test_the_checkpoint_can_be_read_during_the_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.open(PLAN, command="", resume=False)
    for rnd, stored in enumerate(HISTORY, 1):
        folder.commit(rnd, [{"round": rnd}], state_after(rnd, stored), {}, set())
        assert to_comparable(RunFolder(tmp_path).read_checkpoint()[0]) == to_comparable(
            state_after(rnd, stored)
        )
        kept = [*HISTORY[max(rnd - 2, 0)], *stored]  # of this round and the one before
        assert files(tmp_path / "checkpoint") == {f"{digest(each)}.safetensors" for each in kept}
    folder.close()


def test_a_checkpoint_of_many_sessions_stays_small(tmp_path: Path) -> None:
    place, stored = Place(tmp_path), [large(n) for n in range(20)]
    place.write({"rnd": 1, "stored": stored})
    assert place.file.stat().st_size < 4096
    assert sum(file.stat().st_size for file in (tmp_path / "blobs").iterdir()) < 20 * (
        MIN_BLOB_BYTES + 400
    )
    assert (
        read_tree(tmp_path / "blobs" / f"{digest(stored[0])}.safetensors").tolist() == [0] * NUMBERS
    )
