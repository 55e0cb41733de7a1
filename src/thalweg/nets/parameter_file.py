"""Initial parameters from a file of another run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from thalweg.core.errors import ConfigError, DataError
from thalweg.core.types import Floats32
from thalweg.nets.net import Net, Shape

REMEDY = "Choose the net and the data that the file was made for, or start without it."


def load_parameters(path: Path, net: Net) -> Floats32:
    """Load the parameters (P,) of a net from a safetensors file with one tensor per name.

    The file ``model.safetensors`` of a run has this form, and so has the state dict of a module.
    The order of the tensors does not matter. Files of other nets and files with non-finite numbers
    are rejected. Constants of a module, such as integer buffers, are not loaded.
    """
    from safetensors import SafetensorError, safe_open

    params = np.empty(net.num_params, dtype=np.float32)
    wanted = net.named_parameters(params)
    constants = net.saved_tensors(params).keys() - wanted.keys()
    try:
        with safe_open(path, framework="numpy") as file:
            found = {name: file.get_slice(name) for name in file.keys() if name not in constants}  # noqa: SIM118
            shapes = {name: tuple(piece.get_shape()) for name, piece in found.items()}
            _check_architecture(path, {name: each.shape for name, each in wanted.items()}, shapes)
            for name, piece in wanted.items():
                if (kind := found[name].get_dtype()) != "F32":
                    raise DataError(
                        f"{path}: {name} is {kind}; expected F32. Write it as 32-bit numbers."
                    )
                piece[...] = file.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"{path} is not a readable safetensors file ({error}); expected a file such as "
            "model.safetensors of a run folder."
        ) from error
    for name, piece in wanted.items():
        if not np.isfinite(piece).all():
            raise DataError(f"{path}: {name} has non-finite numbers; expected finite numbers.")
    return params


def _check_architecture(path: Path, wanted: dict[str, Shape], found: dict[str, Shape]) -> None:
    """Require the same tensors with the same shapes.

    Report the first difference in the net's order.
    """
    for name, shape in wanted.items():
        if name not in found:
            raise ConfigError(
                f"{path} belongs to another net: it has no {name}, which has shape {shape} in this "
                f"net. It has: {', '.join(found) or 'nothing'}. {REMEDY}"
            )
        if found[name] != shape:
            raise ConfigError(
                f"{path} belongs to another net: {name} has shape {found[name]}, expected {shape}. "
                f"{REMEDY}"
            )
    if more := [name for name in found if name not in wanted]:
        raise ConfigError(
            f"{path} belongs to another net: it has {', '.join(more)}, which this net does not "
            f"have. {REMEDY}"
        )
