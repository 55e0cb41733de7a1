"""Samples and labels in views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import require
from thalweg.core.transforms import Inputs, Kind, Plain, Transform
from thalweg.core.types import Ints
from thalweg.core.views import View

MAX_ROWS = 2**31  # memories store rows as 32-bit integers


class ViewTransforms(NamedTuple):
    """The different transforms of some views."""

    transforms: tuple[Transform, ...]
    of_view: Ints  # (V,) index of each view's transform


def collect_transforms(views: Sequence[View]) -> ViewTransforms:
    found = dict.fromkeys(view.transform for view in views)
    index_of = {transform: number for number, transform in enumerate(found)}
    return ViewTransforms(tuple(found), np.array([index_of[view.transform] for view in views]))


def take_samples(
    x: Inputs,
    rows: npt.NDArray[np.integer[Any]],
    view_transforms: ViewTransforms,
    index: Ints | None = None,
) -> Inputs:
    """Samples of rows of any shape; row v * n + i is sample i of x (n, ...) in view v.

    With an index (n,), sample i is row index[i] of x.
    Every transform is applied once, to all samples in its views.
    """
    views, samples_of = np.divmod(rows, len(x if index is None else index))
    samples: Inputs = np.take(x, samples_of, axis=0) if index is None else x[index[samples_of]]
    transform_of_row = np.take(view_transforms.of_view, views)
    for number in np.unique(transform_of_row):
        transform = view_transforms.transforms[number]
        if isinstance(transform, Plain):
            continue
        mine = transform_of_row == number
        samples[mine] = transform.apply(samples[mine])
    return samples


def map_labels(y: npt.NDArray[Any], views: Sequence[View], num_classes: int) -> npt.NDArray[Any]:
    """(V * n,) labels (n,) in every view. The targets of a regression (no classes) stay equal."""
    if num_classes == 0:
        return np.concatenate([y] * len(views))
    return np.concatenate([view.label_map(num_classes)[y] for view in views])


def check_views(
    views: Sequence[View], x: Inputs, kind: Kind, num_classes: int, num_samples: int
) -> None:
    """Reject views that do not fit the samples x (n, ...), or too many views for `num_samples`."""
    require(
        views[0].resolve(num_classes) == View(),
        f"the first view must be the identity; got {views[0]}.",
    )
    require(
        len(views) * num_samples < MAX_ROWS,
        f"{len(views)} views of {num_samples} samples are more rows than {MAX_ROWS}; use fewer "
        "views.",
    )
    for view in views:
        view.label_map(num_classes)
        view.transform.check(kind, x.shape[1:])
        one = x[:1].copy()
        seen = view.transform.apply(one)
        require(
            seen.shape == one.shape and seen.dtype == one.dtype,
            f"{type(view.transform).__name__}.apply must keep the shape and dtype of the samples, "
            f"{one.shape} and {one.dtype}; got {seen.shape} and {seen.dtype}.",
        )
