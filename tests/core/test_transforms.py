"""Transforms of images and features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from thalweg.core.config import from_dict, to_dict
from thalweg.core.errors import ConfigError
from thalweg.core.transforms import (
    TRANSFORMS,
    Dimmed,
    Inverted,
    Mirrored,
    Plain,
    Rotated,
    Scaled,
    Shifted,
    Swapped,
    make_rotation,
)

IMAGE = np.arange(12, dtype=np.uint8).reshape(1, 3, 4, 1)
images = arrays(
    np.uint8,
    st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 3])),
)
angles = st.floats(-1000, 1000)


def square(side: int) -> Any:
    return np.random.default_rng(side).integers(0, 256, (2, side, side, 3), dtype=np.uint8)


@pytest.mark.parametrize("side", [1, 4, 5])
@pytest.mark.parametrize("quarters", [-3, -1, 0, 1, 2, 3, 4, 7])
def test_rotation_by_90_degrees_equals_rot90(side: int, quarters: int) -> None:
    expected = np.rot90(square(side), quarters, axes=(1, 2))
    assert np.array_equal(Rotated(90.0 * quarters).apply(square(side)), expected)


@given(samples=images)
def test_rotation_by_360_degrees_changes_nothing(samples: Any) -> None:
    for degrees in (0.0, 360.0, -720.0):
        assert np.array_equal(Rotated(degrees).apply(samples), samples)


@given(samples=images, degrees=angles)
def test_rotated_image_has_pixels_of_the_image_or_black_ones(samples: Any, degrees: float) -> None:
    seen = Rotated(degrees).apply(samples)
    assert (seen.shape, seen.dtype) == (samples.shape, samples.dtype)
    for before, after in zip(samples, seen, strict=True):
        colours = {tuple(pixel) for pixel in before.reshape(-1, before.shape[-1])}
        found = {tuple(pixel) for pixel in after.reshape(-1, after.shape[-1])}
        assert found <= colours | {(0,) * before.shape[-1]}


@given(degrees=angles)
def test_rotation_keeps_the_centre(degrees: float) -> None:
    assert np.array_equal(Rotated(degrees).apply(square(5))[:, 2, 2], square(5)[:, 2, 2])


def test_rotation_by_120_degrees_makes_corners_black() -> None:
    white = np.full((1, 9, 9, 1), 255, dtype=np.uint8)
    seen = Rotated(120).apply(white)[0, :, :, 0]
    assert seen[0, 0] == seen[8, 8] == 0
    assert seen[4, 8] == seen[0, 4] == 255


def test_rotation_keeps_the_size_of_a_rectangular_image() -> None:
    half = Rotated(180).apply(IMAGE)
    assert half[0, :, :, 0].tolist() == [[11, 10, 9, 8], [7, 6, 5, 4], [3, 2, 1, 0]]
    assert Rotated(90).apply(IMAGE).shape == IMAGE.shape


def test_other_transforms_by_hand() -> None:
    assert Mirrored().apply(IMAGE)[0, 0, :, 0].tolist() == [3, 2, 1, 0]
    assert Inverted().apply(IMAGE)[0, 0, :, 0].tolist() == [255, 254, 253, 252]
    assert Dimmed(0.5).apply(IMAGE)[0, 2, :, 0].tolist() == [
        4,
        4,
        5,
        6,
    ]  # halves go to the even one
    assert Dimmed(100.0).apply(IMAGE)[0, 0, :, 0].tolist() == [0, 100, 200, 255]
    features = np.array([[1, 2], [3, 4]], dtype=np.float32)
    assert Shifted(-1.0).apply(features).tolist() == [[0, 1], [2, 3]]
    assert Scaled(3.0).apply(features).tolist() == [[3, 6], [9, 12]]
    assert Swapped(1, 0).apply(features).tolist() == [[2, 1], [4, 3]]
    assert Plain().apply(features) is features


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_keep_shape_dtype_and_input_and_work_per_sample(
    name: str,
) -> None:
    transform = TRANSFORMS[name]()
    for kind, shape, dtype in (("images", (4, 4, 3), np.uint8), ("features", (5,), np.float32)):
        try:
            transform.check(kind, shape)  # type: ignore[arg-type]
        except ConfigError:
            continue
        samples = np.random.default_rng(0).integers(0, 256, (6, *shape)).astype(dtype)
        before = samples.copy()
        seen = transform.apply(samples)
        assert (seen.shape, seen.dtype) == (samples.shape, samples.dtype)
        assert np.array_equal(samples, before)
        one_by_one = np.concatenate([transform.apply(samples[k : k + 1]) for k in range(6)])
        assert np.array_equal(seen, one_by_one)
        assert from_dict(type(transform), to_dict(transform)) == transform


@pytest.mark.parametrize(
    "transform, kind, shape, message",
    [
        (
            Rotated(),
            "features",
            (5,),
            r"Rotated changes images, .* are features .*: shifted, scaled",
        ),
        (Inverted(), "sequences", (80,), "are sequences of shape .*none but plain"),
        (Scaled(), "images", (8, 8, 1), "Scaled changes features, .* rotated, mirrored"),
        (
            Swapped(1, 5),
            "features",
            (5,),
            "columns 1 and 5, but the samples have 5 of them, 0 to 4",
        ),
    ],
)
def test_unsuitable_samples_are_rejected(
    transform: Any, kind: Any, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        transform.check(kind, shape)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rotated(float("nan")),
        lambda: Rotated(float("inf")),
        lambda: Dimmed(-0.1),
        lambda: Shifted(float("inf")),
        lambda: Swapped(-1, 0),
    ],
)
def test_invalid_parameters_are_rejected(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


def test_make_rotation_of_360_degrees_is_plain() -> None:
    assert make_rotation(0) == make_rotation(-360) == Plain()
    assert make_rotation(480) == make_rotation(120) == Rotated(120)
