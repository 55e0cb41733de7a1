from __future__ import annotations

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.data.augment import Augment


def images(n: int = 200) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 256, (n, 5, 6, 3), dtype=np.uint8)


def test_augmented_images_are_shifted_and_possibly_mirrored() -> None:
    x = images()
    got = Augment(padding=2).apply(x, np.random.default_rng(1))
    assert (got.shape, got.dtype) == (x.shape, np.uint8)
    places = set()
    for image, changed in zip(x, got, strict=True):
        padded = np.pad(image, ((2, 2), (2, 2), (0, 0)))
        windows = {
            (down, right, way): padded[down : down + 5, right : right + 6][:, ::way]
            for down in range(5)
            for right in range(5)
            for way in (1, -1)
        }
        fits = [place for place, window in windows.items() if np.array_equal(window, changed)]
        assert len(fits) == 1
        places.add(fits[0])
    assert len(places) > 40  # of 50


def test_about_half_of_the_images_are_mirrored() -> None:
    x = images(1000)
    got = Augment(padding=0).apply(x, np.random.default_rng(2))
    mirrored = (got == x[:, :, ::-1]).all(axis=(1, 2, 3))
    kept = (got == x).all(axis=(1, 2, 3))
    assert (mirrored ^ kept).all()
    assert 400 < mirrored.sum() < 600


def test_flip_false_disables_mirroring() -> None:
    x = images(50)
    got = Augment(padding=1, flip=False).apply(x, np.random.default_rng(3))
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for i, changed in enumerate(got):
        assert any(
            np.array_equal(padded[i, down : down + 5, right : right + 6], changed)
            for down in range(3)
            for right in range(3)
        )


def test_augmentation_leaves_its_input_unchanged() -> None:
    x = images(20)
    before = x.copy()
    Augment().apply(x, np.random.default_rng(0))
    np.testing.assert_array_equal(x, before)


def test_augmentation_of_an_image_does_not_depend_on_later_images() -> None:
    x = images(64)
    short = Augment().apply(x[:13], np.random.default_rng(5))
    np.testing.assert_array_equal(short, Augment().apply(x, np.random.default_rng(5))[:13])


def test_empty_batch_stays_empty() -> None:
    assert Augment().apply(images(0), np.random.default_rng(0)).shape == (0, 5, 6, 3)


def test_negative_padding_is_rejected() -> None:
    with pytest.raises(ConfigError, match="padding must not be negative or infinite, got -1"):
        Augment(padding=-1)
