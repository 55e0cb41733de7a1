"""Augmentation of small photographs in training: random shifts and flips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_ranges

Images = npt.NDArray[np.uint8]


class Augmentation(Protocol):
    """Protocol of an augmentation: a frozen dataclass."""

    def apply(self, images: Images, rng: np.random.Generator) -> Images:
        """Augmented copies of images (B, H, W, C), with the same shape.

        The result for an image may depend on the generator and its position in the batch, but not
        on later images, which may be padding.
        """
        ...


@dataclass(frozen=True)
class Augment:
    """Pad with zeros, crop at a random position, and flip half of the images.

    >>> image = np.array([[[[1], [2]], [[3], [4]]]], dtype=np.uint8)  # (1, 2, 2, 1)
    >>> Augment(padding=0, flip=False).apply(image, np.random.default_rng(0)) is image
    True
    """

    padding: int = 4  # pixels on every side: the maximum shift
    flip: bool = True  # flip horizontally with probability 1/2

    def __post_init__(self) -> None:
        check_ranges(self, padding="[0, MODELS]")

    def apply(self, images: Images, rng: np.random.Generator) -> Images:
        """Augmented copies of images (B, H, W, C).

        The result for an image depends on the generator and its position in the batch, not on later
        images: padding a batch changes nothing.
        """
        if self.padding == 0 and not self.flip:
            return images
        B, height, width, _ = images.shape
        choices = [2 * self.padding + 1, 2 * self.padding + 1, 2 if self.flip else 1]
        down, right, mirrored = rng.integers(0, choices, (B, 3)).T
        margin = (self.padding, self.padding)
        padded = np.pad(images, ((0, 0), margin, margin, (0, 0)))
        rows = down[:, None] + np.arange(height)  # (B, H)
        columns = np.arange(width)
        columns = np.where(mirrored[:, None] == 1, columns[::-1], columns) + right[:, None]
        changed: Images = padded[np.arange(B)[:, None, None], rows[:, :, None], columns[:, None, :]]
        return changed


AUGMENTATIONS: dict[str, type[Augmentation]] = {
    "standard": Augment,  # random shifts and flips, as usual for small photographs
}
