"""Detection of clients whose concept has changed (RDLD), and its precision and recall."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Ints
from thalweg.theory.inputs import Bools, as_array
from thalweg.theory.prototypes import row_distances


class RealDrift(NamedTuple):
    """Nearest current centres of some clients, before and now."""

    old: Ints  # (K,) centre nearest to a client's old prototype
    new: Ints  # (K,) centre nearest to its new prototype

    @property
    def has_drifted(self) -> Bools:
        """(K,) True if the nearest centre has changed."""
        return np.not_equal(self.old, self.new)


def real_drift(old: npt.ArrayLike, new: npt.ArrayLike, centres: npt.ArrayLike) -> RealDrift:
    r"""Detect clients whose nearest centre has changed.

    .. math::  \arg\min_c d(P_k^{t-1}, P_c^t) \neq \arg\min_c d(P_k^t, P_c^t)

    Both prototypes are computed with the same model and compared with the *current* centres; ties
    go to the first centre. All are (K, ...) or (C, ...) with rows that may be nan; see
    `row_distances`.

    Symbols, FedDAA, Algorithm 2 -> here
        :math:`P_k^{t-1}, P_k^t`  -> old, new
        :math:`P_c^t`             -> centres

    >>> old, new, centres = [[0, 1], [0, 1]], [[3.5, 0], [0.5, 0]], [[0, 0.5], [4, 0.5]]
    >>> real_drift(old, new, centres).has_drifted.tolist()
    [True, False]
    """
    if np.shape(old) != np.shape(new):
        raise ConfigError(
            f"old and new must have the same clients, got shapes {np.shape(old)} and "
            f"{np.shape(new)}."
        )
    return RealDrift(nearest_centre(old, centres), nearest_centre(new, centres))


def nearest_centre(points: npt.ArrayLike, centres: npt.ArrayLike) -> Ints:
    """(K,) index of the nearest centre of each point; ties go to the first."""
    those = as_array(centres, "centres")
    if len(those) == 0:
        raise ConfigError("centres must contain at least one centre, got none.")
    nearest: Ints = row_distances(_rows(points), _rows(those)).argmin(axis=1)
    return nearest


def precision_recall(detected: npt.ArrayLike, true: npt.ArrayLike) -> tuple[float, float]:
    """Precision and recall of detected drifts; masks (K,).

    nan if the denominator is zero. (The released code swaps the two names.)

    >>> precision_recall([True, True, False, False], [True, False, True, True])
    (0.5, 0.3333333333333333)
    """
    found, real = (np.asarray(each) for each in (detected, true))
    if found.dtype != np.bool_ or real.dtype != np.bool_ or found.shape != real.shape:
        raise ConfigError(
            "detected and true must be one boolean per client, "
            f"got {found.dtype} of shape {found.shape} and {real.dtype} of shape {real.shape}."
        )
    both = int((found & real).sum())
    return _share(both, int(found.sum())), _share(both, int(real.sum()))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


def _rows(points: npt.ArrayLike) -> npt.ArrayLike:
    """Plain vectors as prototypes of one row."""
    values = as_array(points, "points")
    return values[:, None, :] if values.ndim == 2 else values
