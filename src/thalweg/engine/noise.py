"""Dropout and changed images that do not depend on who is computed together with whom."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Ints, Job
from thalweg.data.augment import Augmentation, Images


def noise_seed(seed: int, rnd: int, client: int, probe_round: int = 0) -> int:
    """Where a client's dropout and augmentation start in a round."""
    return int(rng_for(seed, Draw.LOCAL, rnd, client, take=probe_round).integers(2**62))


def noise_seeds(seed: int, jobs: Sequence[Job], rnd: int) -> Ints:
    """(K,) the same for some clients."""
    seeds = [noise_seed(seed, rnd, job.client, job.probe_round) for job in jobs]
    return np.array(seeds, dtype=np.int64)


class ChangedImages:
    """The images of a mini-batch as each of K clients sees them in its present step."""

    def __init__(self, augment: Augmentation, seeds: Ints, num_steps: Ints) -> None:
        self._augment, self._seeds, self._num_steps = augment, seeds, num_steps

    def __call__(self, images: Images) -> Images:
        """Images (K, B, H, W, C), or those of all clients one after the other, (K * B, H, W, C)."""
        K = len(self._seeds)
        B = math.prod(images.shape[:-3]) // K
        clients = images.reshape(K, B, *images.shape[-3:])
        changed = [
            self._augment.apply(mine, image_rng(int(seed), int(step)))
            for mine, seed, step in zip(clients, self._seeds, self._num_steps, strict=True)
        ]
        return np.stack(changed).reshape(images.shape)


def image_rng(seed: int, step: int) -> np.random.Generator:
    """What changes a client's images in one step of a round; `seed` is one of `noise_seeds`."""
    return rng_for(seed, Draw.AUGMENT, step)
