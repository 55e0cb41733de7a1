"""The file of the models that clients use, in the folder of a finished run.

It contains the models, the share of clients that use each, and the mixtures of the clients:
``mixtures`` are the weights of the models that all clients can use (only the rows that differ from
the common one, if these are few), and ``own_*`` are the entries of further models. A further model
that differs from a shared one in few values, such as an adjusted model, is stored as these values
(``near_*``); ``models`` are all others, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from thalweg.core.errors import ConfigError, RunError
from thalweg.core.mixtures import Mixtures
from thalweg.core.types import Floats32
from thalweg.engine.sparse_arrays import SparseArray, pack_sparse, unpack_sparse
from thalweg.federation import ServedModels
from thalweg.nets import Net

BANK = "bank.safetensors"
OWN = ("clients", "models", "weights")  # fields of `Mixtures`
MAX_CHANGED = 0.125  # of the values of a model may differ from those of a shared one


def bank_to_bytes(served: ServedModels) -> bytes:
    """Return the content of the file."""
    tensors: dict[str, Any] = {"models": served.models, "shares": served.shares}
    if (mixtures := served.mixtures) is not None:
        tensors |= _pack_models(served.models, mixtures.shared.shape[1])
        packed = pack_sparse(mixtures.shared)
        if isinstance(packed, SparseArray):
            tensors |= {f"mixtures.{name}": value for name, value in packed._asdict().items()}
        else:
            tensors["mixtures"] = packed
        tensors |= {f"own_{name}": getattr(mixtures, name) for name in OWN}
    return save({name: np.ascontiguousarray(value) for name, value in tensors.items()})


def read_bank(path: Path, net: Net) -> ServedModels | None:
    """Return the models of a finished run; None if all clients use one model."""
    file = path / BANK
    if not file.is_file():
        return None
    try:
        bank = load_file(file)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{file} is not a readable safetensors file ({error}).") from error
    models = _unpack_models(bank)
    if models.shape[1] != net.num_params:
        raise ConfigError(
            f"{file} belongs to another net: its models have {models.shape[1]} parameters, "
            f"expected {net.num_params}. Load it with the model of the run."
        )
    if "own_models" not in bank:
        return ServedModels(models, bank["shares"])
    shared = bank.get("mixtures")
    if shared is None:
        parts: dict[str, Any] = {name: bank[f"mixtures.{name}"] for name in SparseArray._fields}
        shared = unpack_sparse(parts | {"sparse_rows": int(parts["sparse_rows"][0])})
    clients, own_models, weights = (bank[f"own_{name}"] for name in OWN)
    mixtures = Mixtures(shared, clients, own_models, weights, len(models))
    return ServedModels(models, bank["shares"], mixtures)


def _pack_models(models: Floats32, num_shared: int) -> dict[str, Any]:
    """Return the tensors of models (J, P), of which the first `num_shared` are for all clients."""
    bits = models.view(np.uint32)  # -0.0 is not 0.0
    base = np.zeros(len(models), dtype=np.int64)  # the nearest shared model
    num_changed = np.full(len(models), models.shape[1])
    for shared in range(num_shared):
        number = (bits[num_shared:] != bits[shared]).sum(axis=1)
        is_nearer = np.flatnonzero(number < num_changed[num_shared:]) + num_shared
        base[is_nearer], num_changed[is_nearer] = shared, number[is_nearer - num_shared]
    near = np.flatnonzero(num_changed <= MAX_CHANGED * models.shape[1])
    positions = np.flatnonzero((bits[near] != bits[base[near]]).any(axis=0))
    if len(near) == 0 or len(positions) > MAX_CHANGED * models.shape[1]:
        return {"models": models}
    return {
        "models": np.delete(models, near, axis=0),
        "near_models": near,
        "near_base": base[near],
        "near_positions": positions,
        "near_values": models[np.ix_(near, positions)],
    }


def _unpack_models(bank: Mapping[str, Any]) -> Floats32:
    stored: Floats32 = bank["models"]
    if "near_models" not in bank:
        return stored
    near = bank["near_models"]
    models = np.empty((len(stored) + len(near), stored.shape[1]), dtype=stored.dtype)
    models[np.delete(np.arange(len(models)), near)] = stored
    models[near] = models[bank["near_base"]]
    models[np.ix_(near, bank["near_positions"])] = bank["near_values"]
    return models
