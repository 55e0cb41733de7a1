"""The usual changes of small photographs while training: shifted a little, and mirrored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_ranges

Images = npt.NDArray[np.uint8]


class Augmentation(Protocol):
    """Changes images while they are trained on: a frozen dataclass, so that it is configuration."""

    def apply(self, images: Images, rng: np.random.Generator) -> Images:
        """Changed copies of images (B, H, W, C), of the same shape.

        What happens to an image may depend on the generator and its place in the batch, not on how
        many come after it: those may be padding.
        """
        ...


@dataclass(frozen=True)
class Augment:
    """Pad with black, cut out at a random place, mirror half of the images.

    >>> image = np.array([[[[1], [2]], [[3], [4]]]], dtype=np.uint8)  # (1, 2, 2, 1)
    >>> Augment(padding=0, flip=False).apply(image, np.random.default_rng(0)) is image
    True
    """

    padding: int = 4  # pixels on every side; an image moves by at most so many
    flip: bool = True  # mirror left and right with probability 1/2

    def __post_init__(self) -> None:
        check_ranges(self, padding="[0, inf)")

    def apply(self, images: Images, rng: np.random.Generator) -> Images:
        """Changed copies of images (B, H, W, C).

        What happens to an image depends on the generator and its place in the batch, not on how many
        come after it: padding of a batch changes nothing.
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
    "standard": Augment,  # shifted and mirrored, as is usual for small photographs
}
