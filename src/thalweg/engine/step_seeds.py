"""Seeds of dropout and augmentation. This module does not import torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Ints, Job


def noise_seed(seed: int, rnd: int, client: int, probe_round: int = 0) -> int:
    """Return the seed of the dropout and augmentation of a client in a round."""
    return int(rng_for(seed, Draw.LOCAL, rnd, client, take=probe_round).integers(2**62))


def noise_seeds(seed: int, jobs: Sequence[Job], rnd: int) -> Ints:
    """Return `noise_seed` of the client of each job, (K,)."""
    seeds = [noise_seed(seed, rnd, job.client, job.probe_round) for job in jobs]
    return np.array(seeds, dtype=np.int64)


def step_seeds(seeds: Ints, num_steps: Ints) -> list[int]:
    """Return the seed of the dropout of each client in its current step, from its `noise_seed`."""
    return [int(seed) + int(step) for seed, step in zip(seeds, num_steps, strict=True)]


def image_rng(seed: int, step: int) -> np.random.Generator:
    """Return the generator that augments a client's images in one step, from its `noise_seed`."""
    return rng_for(seed, Draw.AUGMENT, step)
