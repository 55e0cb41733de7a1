"""Tensors on different devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def get_wide_dtype(device: torch.device) -> torch.dtype:
    """Return the type of numbers for sums: float64, or float32 on MPS, which has no float64."""
    import torch

    return torch.float32 if device.type == "mps" else torch.float64
