"""Losses: what a prediction costs, per sample. The task of the data set decides which ones fit.

To add a loss, pass any function of outputs and targets (`LossFunction`), or write a frozen
dataclass with ``__call__`` and add it to `LOSSES`.
"""

from thalweg.losses.base import (
    Loss,
    check_loss,
    compute_output_errors,
    count_outputs,
    decode_outputs,
    get_log_probabilities,
    resolve_loss,
)
from thalweg.losses.classes import BinaryCrossEntropy, CrossEntropy
from thalweg.losses.function import LossFunction, wrap_function
from thalweg.losses.numbers import Huber, MeanAbsoluteError, MeanSquaredError, Quantile

LOSSES: dict[str, type[Loss]] = {
    "binary_cross_entropy": BinaryCrossEntropy,
    "cross_entropy": CrossEntropy,
    "function": LossFunction,
    "huber": Huber,
    "mae": MeanAbsoluteError,
    "mse": MeanSquaredError,
    "quantile": Quantile,
}

__all__ = [
    "LOSSES",
    "BinaryCrossEntropy",
    "CrossEntropy",
    "Huber",
    "Loss",
    "LossFunction",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Quantile",
    "check_loss",
    "compute_output_errors",
    "count_outputs",
    "decode_outputs",
    "get_log_probabilities",
    "resolve_loss",
    "wrap_function",
]
