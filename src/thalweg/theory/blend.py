"""Similarity between sessions, and the weights of past models in a session start."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.theory.inputs import as_array, at_least_zero, nonnegative, one_of

Distance = Literal["per_tensor_unit", "global_unit", "raw", "inner_product"]
Tensors = npt.ArrayLike | Sequence[npt.ArrayLike]
Group = list[npt.NDArray[Any]]  # flat tensors that are compared as one vector

BLOCK = 1 << 15  # block size: a few blocks fit into the cache
TINY = 1e-290  # smaller sums of squares have lost digits
NEAR = 1e-3  # a cosine closer to one than this has lost digits


def blend_weights(
    current: Tensors,
    past: Sequence[Tensors],
    scale: float,
    distance: Distance = "per_tensor_unit",
) -> Floats:
    r"""(Z,) weight of each past session's model in the initial model of a new session.

    .. math::
        a_z = \frac{e^{-R\, d_z}}{\sum_{z'} e^{-R\, d_{z'}}}, \qquad
        x = \sum_z a_z\, w_z^{last}

    The weights sum to one. A scale of 0 gives the plain average, ``math.inf`` the nearest session;
    equally near sessions share.

    Symbols, Chang et al. (5), (6) -> here
        :math:`G_s`   change of the pilot model in probe rounds of the session  -> current
        :math:`G_z`   the same for past sessions                                -> past
        :math:`R`     sharpness                                                 -> scale
        :math:`d_z`   distance                                                  -> `blend_distances`

    >>> blend_weights([3, 3.5], [[3, 4], [0, 1]], scale=1, distance="raw").round(6)
    array([0.967864, 0.032136])
    """
    return softmin(blend_distances(current, past, distance), scale)


def blend_distances(
    current: Tensors, past: Sequence[Tensors], distance: Distance = "per_tensor_unit"
) -> Floats:
    r"""(Z,) distance between the fingerprint of a session and those of past sessions.

    A fingerprint is one vector, or a sequence of tensors of any shape. With u and v for two
    tensors, each divided by its norm:

    - ``"per_tensor_unit"``: mean over tensors of :math:`\lVert u - v \rVert`, from 0 to 2;
    - ``"global_unit"``: the same for all tensors as one vector;
    - ``"raw"``: :math:`\lVert G_s - G_z \rVert` for all tensors as one vector;
    - ``"inner_product"``: mean over tensors of :math:`1 - \langle u, v \rangle`, from 0 to 2.

    A zero tensor has no direction: its distance is 0 from another zero tensor and 1 from any other.

    Differences from the paper: its text has "raw"; its results and its scale of 10 use
    "per_tensor_unit" (the released ``two_norm``). "inner_product" is the other similarity of that
    code; its softmax of products equals our softmin of one minus the products. The code divides
    zero by zero for zero tensors.

    >>> blend_distances([3, 3.5], [[3, 4], [0, 1]], "raw").round(6)
    array([0.5     , 3.905125])
    >>> past = [[[3, 4], [1, 0, 0]], [[0, 1], [0, 1, 0]]]
    >>> blend_distances([[3, 3.5], [0.9, 0.1, 0]], past).round(6)
    array([0.087857, 1.013868])
    """
    one_of(distance, get_args(Distance), "distance")
    mine = _tensors(current, "current")
    theirs = [_tensors(each, f"past[{z}]") for z, each in enumerate(past)]
    _check_same_sizes(mine, theirs)
    with np.errstate(over="ignore", invalid="ignore"):  # checked where it occurs
        return _distances(mine, theirs, distance)


def softmin(distances: npt.ArrayLike, scale: float) -> Floats:
    r"""(Z,) weights that sum to one and decrease with the distance.

    .. math::  a_z \propto e^{-R\, (d_z - \min d)}

    Subtracting the smallest distance only avoids underflow: the largest term is 1.

    >>> softmin([0.0, 2.0, 0.0], scale=1000).tolist()
    [0.5, 0.0, 0.5]
    """
    d = nonnegative(distances, "distances")
    farther = d - d.min()
    if scale == math.inf:
        terms = (farther == 0).astype(np.float64)
    else:
        with np.errstate(over="ignore", under="ignore"):  # large distances underflow to zero
            terms = np.exp(-at_least_zero(scale, "scale") * farther)
    weights: Floats = terms / terms.sum()
    return weights


def _distances(mine: Group, theirs: list[Group], distance: Distance) -> Floats:
    if distance == "raw":
        return np.array([_distance(mine, each, f"past[{z}]") for z, each in enumerate(theirs)])
    as_groups = _as_one_group if distance == "global_unit" else _as_single_groups
    own = [_normalise(group, "current") for group in as_groups(mine)]
    distances = []
    for z, each in enumerate(theirs):
        pairs = zip(own, as_groups(each), strict=True)
        turns = [
            _direction_distance(unit, group, f"past[{z}]", distance == "inner_product")
            for unit, group in pairs
        ]
        distances.append(np.mean(turns))
    return np.array(distances)


def _as_one_group(tensors: Group) -> list[Group]:
    """All tensors as one vector."""
    return [tensors]


def _as_single_groups(tensors: Group) -> list[Group]:
    return [[tensor] for tensor in tensors]


def _normalise(tensors: Group, name: str) -> Group | None:
    """Tensors of norm one; None: they are zero and have no direction."""
    tensors, length = _scale_and_norm(tensors, _square(tensors), name)
    return None if length == 0 else [tensor / np.float64(length) for tensor in tensors]


def _scale_and_norm(tensors: Group, square: float, name: str) -> tuple[Group, float]:
    """The tensors and their norm, both scaled if squares would overflow or underflow."""
    if not TINY < square < math.inf:  # or zero, or not a number
        largest = _largest(tensors, name)
        if largest == 0:
            return tensors, 0.0
        tensors = [tensor / np.float64(largest) for tensor in tensors]
        square = _square(tensors)
    return tensors, math.sqrt(square)


def _direction_distance(unit: Group | None, tensors: Group, name: str, as_product: bool) -> float:
    r"""Squared distance of directions: :math:`\lVert u - v \rVert^2 = 2 - 2 \langle u, v
    \rangle`.
    """
    square, product = _square_and_product(tensors, tensors if unit is None else unit)
    scaled, length = _scale_and_norm(tensors, square, name)
    if unit is None or length == 0:
        return 0.0 if unit is None and length == 0 else 1.0
    if scaled is not tensors:
        product = _square_and_product(scaled, unit)[1]
    lacking = 1 - product / length
    if lacking < NEAR:  # avoid cancellation
        lacking = _squared_distance(unit, scaled, 1 / length) / 2
    return lacking if as_product else math.sqrt(2 * lacking)


def _distance(a: Group, b: Group, name: str) -> float:
    square = _squared_distance(a, b)
    if TINY < square < math.inf:
        return math.sqrt(square)
    largest = max(_largest(a, "current"), _largest(b, name))
    if largest == 0:
        return 0.0
    a, b = ([tensor / np.float64(largest) for tensor in tensors] for tensors in (a, b))
    return largest * math.sqrt(_squared_distance(a, b))


# Sums over tensors in double precision, block by block. Matrix products are avoided because their
# last bits depend on the number of cores; casts are assignments because mixed-precision
# arithmetic is twice as slow.


def _square(tensors: Group) -> float:
    return sum((float(np.square(block, out=block).sum()) for block in _blocks(tensors)), 0.0)


def _square_and_product(a: Group, b: Group) -> tuple[float, float]:
    """Products of a with itself and with b."""
    square = product = 0.0
    for left, right in zip(_blocks(a), _blocks(b), strict=True):
        right *= left
        product += float(right.sum())
        square += float(np.square(left, out=left).sum())
    return square, product


def _squared_distance(a: Group, b: Group, times: float = 1.0) -> float:
    """Squared norm of a minus `times` b."""
    total = 0.0
    for left, right in zip(_blocks(a), _blocks(b), strict=True):
        right *= times
        left -= right
        total += float(np.square(left, out=left).sum())
    return total


def _blocks(tensors: Group) -> Iterator[Floats]:
    """Copies of the numbers in blocks, valid until the next block is requested."""
    room = np.empty(BLOCK)
    for tensor in tensors:
        for start in range(0, tensor.size, BLOCK):
            block = room[: min(BLOCK, tensor.size - start)]
            block[...] = tensor[start : start + BLOCK]
            yield block


def _largest(tensors: Group, name: str) -> float:
    largest = float(np.max([np.abs(tensor).max(initial=0.0) for tensor in tensors]))
    if not largest < math.inf:
        raise ConfigError(f"{name} must be finite, got an infinite or missing number.")
    return largest


def _tensors(values: Tensors, name: str) -> Group:
    """Flat tensors, without copying floating-point arrays; one vector is one tensor."""
    if isinstance(values, (list, tuple)) and not any(map(_is_number, values)):
        tensors = [_flat(tensor, name) for tensor in values]
    else:
        tensors = [_flat(values, name)]
    if not any(tensor.size for tensor in tensors):
        raise ConfigError(f"{name} must be a non-empty vector or a sequence of tensors.")
    return tensors


def _flat(values: Any, name: str) -> npt.NDArray[Any]:
    if not (isinstance(values, np.ndarray) and values.dtype in (np.float32, np.float64)):
        values = as_array(values, name)
    flat: npt.NDArray[Any] = values.reshape(-1)
    return flat


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) or (isinstance(value, np.ndarray) and value.ndim == 0)


def _check_same_sizes(mine: Group, theirs: list[Group]) -> None:
    if not theirs:
        raise ConfigError("past must contain at least one session.")
    sizes = [tensor.size for tensor in mine]
    for z, tensors in enumerate(theirs):
        if (found := [tensor.size for tensor in tensors]) != sizes:
            raise ConfigError(
                f"past[{z}] must have tensors of {sizes} numbers like current, got {found}. "
                "Does it belong to another architecture?"
            )
