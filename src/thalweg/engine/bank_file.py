"""The file of the models that clients use, in the folder of a finished run.

It contains the models, the share of clients that use each, and the mixtures of the clients:
``mixtures`` are the weights of the models that all clients can use (only the rows that differ from
the common one, if these are few), and ``own_*`` are the entries of further models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from thalweg.core.errors import ConfigError, RunError
from thalweg.core.mixtures import Mixtures
from thalweg.engine.sparse_arrays import SparseArray, pack_sparse, unpack_sparse
from thalweg.federation import ServedModels
from thalweg.nets import Net

BANK = "bank.safetensors"
OWN = ("clients", "models", "weights")  # fields of `Mixtures`


def bank_to_bytes(served: ServedModels) -> bytes:
    """Return the content of the file."""
    tensors: dict[str, Any] = {"models": served.models, "shares": served.shares}
    if (mixtures := served.mixtures) is not None:
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
    models = bank["models"]
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
