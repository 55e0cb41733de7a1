"""The file of the models that clients use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from thalweg.core.errors import ConfigError, RunError
from thalweg.core.mixtures import Mixtures
from thalweg.engine.bank_file import BANK, bank_to_bytes, read_bank
from thalweg.federation import ServedModels
from thalweg.nets import Linear, Net

MODELS = np.arange(9, dtype=np.float32).reshape(3, 3)
SHARES = np.array([1.0, 0.0, 0.0])


def make_net() -> Net:
    return Linear().build((2,), 1)


def write_and_read(folder: Path, served: ServedModels) -> ServedModels:
    (folder / BANK).write_bytes(bank_to_bytes(served))
    found = read_bank(folder, make_net())
    assert found is not None
    assert np.array_equal(found.models, served.models)
    assert np.array_equal(found.shares, served.shares)
    return found


@pytest.mark.parametrize("number", [4, 10_000])
def test_mixtures_are_read_as_they_were_written(tmp_path: Path, number: int) -> None:
    shared = np.ones((number, 1))
    shared[[1, 3]] = 0.25
    mixtures = Mixtures.from_entries(shared, [(1, 1, 0.75), (3, 2, 0.75)], 3)
    found = write_and_read(tmp_path, ServedModels(MODELS, SHARES, mixtures)).mixtures
    assert found is not None
    assert found.num_models == 3
    everyone = np.arange(number)
    assert np.array_equal(found.get_rows(everyone), mixtures.get_rows(everyone))


def test_models_without_mixtures_are_read_as_they_were_written(tmp_path: Path) -> None:
    assert write_and_read(tmp_path, ServedModels(MODELS, SHARES)).mixtures is None


def test_clients_that_have_never_taken_part_cost_no_bytes() -> None:
    sizes = []
    for number in (10_000, 100_000):
        shared = np.ones((number, 1))
        shared[:50] = 0.5
        entries = [(client, 1 + client % 2, 0.5) for client in range(50)]
        served = ServedModels(MODELS, SHARES, Mixtures.from_entries(shared, entries, 3))
        sizes.append(len(bank_to_bytes(served)))
    assert sizes[0] == sizes[1] < 5000


def test_models_that_differ_in_few_values_are_stored_as_these_values(tmp_path: Path) -> None:
    """Models 3 and 5 are models 0 and 1 with another bias; model 4 is not like a shared one."""
    net = Linear().build((24,), 1)  # 24 weights and a bias
    rng = np.random.default_rng(0)
    models = rng.normal(size=(6, 25)).astype(np.float32)
    models[3], models[5] = models[0], models[1]
    models[0, 7], models[3, 7] = 0.0, -0.0
    models[[3, 5], 24] = [1.5, 2.5]
    shares, shared = np.eye(6)[0], np.full((5000, 2), 0.5)
    shared[:3] = 0.25
    entries = [(client, 3 + client, 0.5) for client in range(3)] + [(0, 2, 0.25)]
    payload = bank_to_bytes(ServedModels(models, shares, Mixtures.from_entries(shared, entries, 6)))
    tensors = load(payload)
    assert np.array_equal(tensors["models"], models[[0, 1, 2, 4]])
    assert tensors["near_base"].tolist() == [0, 1]
    assert tensors["near_positions"].tolist() == [7, 24]
    (tmp_path / BANK).write_bytes(payload)
    found = read_bank(tmp_path, net)
    assert found is not None
    assert found.models.tobytes() == models.tobytes()


def test_rows_that_differ_are_stored_as_they_are() -> None:
    rows = np.random.default_rng(0).random((5000, 3))
    tensors = load(bank_to_bytes(ServedModels(MODELS, SHARES, Mixtures.from_rows(rows))))
    assert np.array_equal(tensors["mixtures"], rows)


def test_a_bank_of_another_net_and_a_damaged_file_are_rejected(tmp_path: Path) -> None:
    assert read_bank(tmp_path, make_net()) is None
    wide = np.zeros((2, 5), dtype=np.float32)
    (tmp_path / BANK).write_bytes(bank_to_bytes(ServedModels(wide, SHARES[:2])))
    with pytest.raises(ConfigError, match="belongs to another net: its models have 5 parameters"):
        read_bank(tmp_path, make_net())
    (tmp_path / BANK).write_bytes(b"no tensors")
    with pytest.raises(RunError, match="is not a readable safetensors file"):
        read_bank(tmp_path, make_net())
