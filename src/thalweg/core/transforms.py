"""Deterministic transforms of inputs, such as rotations and changes of brightness.

Transforms draw no random numbers and change each sample independently of the others, so they can
be applied whenever samples are read. Images are uint8 (B, H, W, C), features float32 (B, F).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_ranges
from thalweg.core.errors import require

Inputs = npt.NDArray[Any]
Kind = Literal["images", "features", "sequences"]
Shape = tuple[int, ...]


class Transform(Protocol):
    """A transform of inputs: a frozen dataclass with these methods."""

    def check(self, kind: Kind, shape: Shape) -> None:
        """Raise a `ConfigError` if samples of shape (H, W, C), (F,) or (L,) are unsuitable."""
        ...

    def apply(self, samples: Inputs) -> Inputs:
        """Return transformed copies of samples (B, ...), of the same shape and type."""
        ...


@dataclass(frozen=True)
class Plain:
    """No change."""

    def check(self, kind: Kind, shape: Shape) -> None:
        return None

    def apply(self, samples: Inputs) -> Inputs:
        return samples


class ImageTransform:
    """Base class of transforms of images."""

    def check(self, kind: Kind, shape: Shape) -> None:
        _require_kind(self, "images", kind, shape)


@dataclass(frozen=True)
class Rotated(ImageTransform):
    """Rotate images counter-clockwise about the centre. The size stays; the new corners are black.

    Each pixel is copied from the nearest one, so multiples of 90 degrees are exact for square
    images.

    >>> Rotated(90).apply(np.array([[[[1], [2]], [[3], [4]]]], dtype=np.uint8))[0, :, :, 0].tolist()
    [[2, 4], [1, 3]]
    """

    degrees: float = 90.0

    def __post_init__(self) -> None:
        check_ranges(self, degrees="(-inf, inf)")

    def apply(self, samples: Inputs) -> Inputs:
        B, height, width, channels = samples.shape
        sources, is_outside = _pixels(height, width, float(self.degrees) % 360)
        pixels = samples.reshape(B, height * width, channels).take(sources, axis=1)
        pixels[:, is_outside] = 0
        return pixels.reshape(samples.shape)


@dataclass(frozen=True)
class Mirrored(ImageTransform):
    """Exchange left and right."""

    def apply(self, samples: Inputs) -> Inputs:
        return np.ascontiguousarray(samples[:, :, ::-1])


@dataclass(frozen=True)
class Inverted(ImageTransform):
    """Invert the brightness: black becomes white."""

    def apply(self, samples: Inputs) -> Inputs:
        return 255 - samples


@dataclass(frozen=True)
class Dimmed(ImageTransform):
    """Multiply the brightness by a factor; values are limited to white."""

    factor: float = 0.5

    def __post_init__(self) -> None:
        check_ranges(self, factor="[0, inf)")

    def apply(self, samples: Inputs) -> Inputs:
        lights = np.minimum(np.rint(np.arange(256) * self.factor), 255).astype(np.uint8)
        dimmed: Inputs = lights.take(samples)
        return dimmed


class FeatureTransform:
    """Base class of transforms of feature vectors."""

    def check(self, kind: Kind, shape: Shape) -> None:
        _require_kind(self, "features", kind, shape)


@dataclass(frozen=True)
class Shifted(FeatureTransform):
    """Add a constant to every feature."""

    by: float = 1.0

    def __post_init__(self) -> None:
        check_ranges(self, by="(-inf, inf)")

    def apply(self, samples: Inputs) -> Inputs:
        return samples + np.float32(self.by)


@dataclass(frozen=True)
class Scaled(FeatureTransform):
    """Multiply every feature by a constant."""

    by: float = 2.0

    def __post_init__(self) -> None:
        check_ranges(self, by="(-inf, inf)")

    def apply(self, samples: Inputs) -> Inputs:
        return samples * np.float32(self.by)


@dataclass(frozen=True)
class Swapped(FeatureTransform):
    """Exchange two columns.

    >>> Swapped(0, 2).apply(np.array([[1, 2, 3]], dtype=np.float32)).tolist()
    [[3.0, 2.0, 1.0]]
    """

    first: int = 0
    second: int = 1

    def __post_init__(self) -> None:
        check_ranges(self, first="[0, inf)", second="[0, inf)")

    def check(self, kind: Kind, shape: Shape) -> None:
        super().check(kind, shape)
        require(
            max(self.first, self.second) < shape[0],
            f"Swapped exchanges columns {self.first} and {self.second}, but the samples have "
            f"{shape[0]} of them, 0 to {shape[0] - 1}.",
        )

    def apply(self, samples: Inputs) -> Inputs:
        order = np.arange(samples.shape[1])
        order[[self.first, self.second]] = self.second, self.first
        return samples.take(order, axis=1)


TRANSFORMS: dict[str, type[Transform]] = {
    "plain": Plain,
    "rotated": Rotated,
    "mirrored": Mirrored,
    "inverted": Inverted,
    "dimmed": Dimmed,
    "shifted": Shifted,
    "scaled": Scaled,
    "swapped": Swapped,
}


def make_rotation(degrees: float) -> Transform:
    """Return a rotation by an angle; `Plain` for multiples of 360 degrees."""
    return Plain() if degrees % 360 == 0 else Rotated(degrees % 360)


def _require_kind(transform: object, expected: Kind, kind: Kind, shape: Shape) -> None:
    base = ImageTransform if kind == "images" else FeatureTransform
    others = [name for name, cls in TRANSFORMS.items() if issubclass(cls, base)]
    fitting = ", ".join(others) if kind != "sequences" else "none but plain"
    require(
        kind == expected,
        f"{type(transform).__name__} changes {expected}, but these samples are {kind} of shape "
        f"{shape}; transforms for them are: {fitting}.",
    )


@lru_cache(maxsize=512)
def _pixels(
    height: int, width: int, degrees: float
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """(H * W,) the source of each pixel of a rotated image, and whether it lies outside."""
    cos, sin = _cos_and_sin(degrees)
    y, x = np.mgrid[:height, :width].astype(float)
    y, x = y - (height - 1) / 2, x - (width - 1) / 2
    # Round first, so that rounding errors in the last digits do not decide between two
    # neighbours.
    row = np.floor(np.round(sin * x + cos * y + (height - 1) / 2, 9) + 0.5).astype(np.intp)
    column = np.floor(np.round(cos * x - sin * y + (width - 1) / 2, 9) + 0.5).astype(np.intp)
    is_outside = (row < 0) | (row >= height) | (column < 0) | (column >= width)
    sources = np.where(is_outside, 0, row * width + column).ravel()
    return sources, is_outside.ravel()


def _cos_and_sin(degrees: float) -> tuple[float, float]:
    """Exact values for right angles; the angle is not negative."""
    if degrees % 90 == 0:
        return ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))[int(degrees // 90) % 4]
    return math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
