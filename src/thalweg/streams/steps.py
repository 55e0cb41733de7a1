"""The world of FedDAA: new samples, concepts and rotations at the start of every time step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar

import numpy as np

from thalweg.core.config import UPPER_BOUNDS, check_ranges
from thalweg.core.errors import require
from thalweg.core.rng import Draw, rng_for
from thalweg.core.transforms import make_rotation
from thalweg.core.types import Ints
from thalweg.core.views import View, distinct_views
from thalweg.streams.base import Setting
from thalweg.streams.drawing import draw_rows
from thalweg.streams.splitting import split_by_dirichlet
from thalweg.streams.steps_world import StepsWorld


@dataclass(frozen=True)
class Steps:
    """Time steps: a shard of samples arrives at every client in the first round of a step.

    The training set is cut into as many shards as there are clients, and every concept owns an
    equal part of the shards. In a step each concept has the same number of clients, up to one; they
    get shards of that concept, drawn without replacement until all shards are used. Images
    therefore recur, most clients change their concept at every step, and all images of a step have
    the same rotation. Absent clients miss no data: the clock is that of the run. There is one
    latent state.

    Symbols, Peng and Tang (FedDAA) -> here
        t, T   time step                    -> step; as many as the run has rounds for
        τ      rounds of a time step        -> rounds_per_step
        K      clients                      -> num_clients
        concepts 1 to 4, of R classes y     -> 0: y; 1: R - 1 - y; 2: y + 1; 3: y + 2, modulo R
    """

    needs_class_labels: ClassVar[bool] = True  # concepts are label maps

    num_clients: int = 60
    rounds_per_step: int = 40
    concepts: tuple[tuple[int, ...], ...] = ((0, 1), (0, 1, 2), *((0, 1, 2, 3),) * 4)
    """Concepts of the clients in each step, counted from 0 (`core.views.concept_map`)."""
    rotations: tuple[float, ...] = (0.0, 120.0, 240.0, 0.0, 120.0, 240.0)
    """Rotation of all images in each step, in degrees; a single value holds for all steps."""
    cycle: int = 3
    """In a longer run, the last `cycle` steps repeat."""
    stay_probability: float = 0.0
    """Probability that a client keeps its concept in the next step, as far as capacity allows."""
    dirichlet: float | None = None
    """Concentration of the Dirichlet draws of the shards' label mixes, so that labels drift with
    every step; None: random shards of equal size.
    """
    shard_size: int | None = None
    """Samples per shard (the mean with `dirichlet`); None: all samples are used."""
    train_share: float = 1.0
    """Share of a shard that arrives, rounded down; the samples are drawn anew in each step."""
    memory_shards: int = 2
    """Memory size in arrivals of the largest shard; the scenario's capacity is not used."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            num_clients="[1, CLIENTS]",
            rounds_per_step="[1, inf)",
            cycle="[1, inf)",
            stay_probability="[0, 1]",
            dirichlet="(0, inf) or none",
            shard_size="[1, inf) or none",
            train_share="(0, 1]",
            memory_shards="[1, inf)",
        )
        require(len(self.concepts) >= 1, "concepts must have at least one step, got none.")
        for step in self.concepts:
            require(
                len(step) >= 1 and len(set(step)) == len(step) and min(step) >= 0,
                "the concepts of a step must be different integers from 0 on, at least one; got "
                f"{step}.",
            )
            require(
                max(step) < UPPER_BOUNDS["MODELS"],
                f"concepts must be below {UPPER_BOUNDS['MODELS']:,}, got {step}.",
            )
        require(
            len(self.rotations) in (1, len(self.concepts)),
            f"rotations must have one angle, or one for each of {len(self.concepts)} steps, got "
            f"{len(self.rotations)}.",
        )

    @property
    def all_concepts(self) -> list[int]:
        return sorted({concept for step in self.concepts for concept in step})

    def step_settings(self, step: int) -> tuple[tuple[int, ...], float]:
        """Concepts and rotation of a step, counted from 0; the last steps repeat."""
        number, cycle = len(self.concepts), min(self.cycle, len(self.concepts))
        if step >= number:
            step = number - cycle + (step - number) % cycle
        return self.concepts[step], self.rotations[step % len(self.rotations)]

    def build(self, setting: Setting) -> StepsWorld:
        """Cut the shards and assign them step by step."""
        shards = self._shards(setting)
        pairs = list(product(dict.fromkeys(self.rotations), self.all_concepts))
        views, numbers = distinct_views(
            [View(make_rotation(angle), concept) for angle, concept in pairs], setting.num_classes
        )
        number_of = dict(zip(pairs, numbers, strict=True))
        schedule = _StepAssigner(self, setting.seed)
        shard_ids, view_ids = [], []
        for step in range(-(-setting.rounds // self.rounds_per_step)):
            concepts, mine = schedule.assign_next(step)
            angle = self.step_settings(step)[1]
            shard_ids.append(mine)
            view_ids.append([number_of[angle, concept] for concept in concepts.tolist()])
        return StepsWorld(
            self, setting, tuple(shards), np.stack(shard_ids), np.array(view_ids), views
        )

    def _shards(self, setting: Setting) -> list[Ints]:
        labels, number = setting.labels, self.num_clients
        wanted = number * (self.shard_size or 1)
        require(
            wanted <= len(labels),
            f"{len(labels)} samples cannot be cut into {number} shards of "
            f"{self.shard_size or 'at least 1'}; use fewer clients or smaller shards.",
        )
        rng = rng_for(setting.seed, Draw.PARTITION)
        rows = rng.permutation(len(labels))
        if self.shard_size is not None:
            rows = rows[:wanted]
        if self.dirichlet is None:
            return list(rows[: len(rows) // number * number].reshape(number, -1))
        shards = split_by_dirichlet(rows, labels, number, self.dirichlet, 1, rng)
        return [rng.permutation(shard) for shard in shards]


class _StepAssigner:
    """Assigns concepts and shards, one step after the other."""

    def __init__(self, spec: Steps, seed: int) -> None:
        self._spec, self._seed = spec, seed
        self._concepts: Ints | None = None  # (N,) of the previous step

    def assign_next(self, step: int) -> tuple[Ints, Ints]:
        """(N,) concept and shard of every client in the next step."""
        rng = rng_for(self._seed, Draw.DRIFT, rnd=step)
        concepts = self._concepts_of(step, rng)
        shards = np.empty(len(concepts), dtype=np.int64)
        for concept in np.unique(concepts).tolist():
            mine = np.flatnonzero(concepts == concept)
            shards[mine] = draw_rows(self._pools[concept], len(mine), rng)
        self._concepts = concepts
        return concepts, shards

    @cached_property
    def _pools(self) -> dict[int, Ints]:
        """Shards of every concept; all shards if there are fewer shards than concepts."""
        everything, concepts = np.arange(self._spec.num_clients), self._spec.all_concepts
        parts = np.array_split(everything, len(concepts))
        return {
            concept: part if len(part) else everything
            for concept, part in zip(concepts, parts, strict=True)
        }

    def _concepts_of(self, step: int, rng: np.random.Generator) -> Ints:
        number, wanted = self._spec.num_clients, np.array(self._spec.step_settings(step)[0])
        room = np.bincount(np.arange(number) % len(wanted), minlength=len(wanted))
        concepts = np.full(number, -1)
        if self._concepts is not None and self._spec.stay_probability > 0:
            willing = rng.random(number) < self._spec.stay_probability
            for index, concept in enumerate(wanted.tolist()):
                stay = rng.permutation(np.flatnonzero(willing & (self._concepts == concept)))
                stay = stay[: room[index]]
                concepts[stay] = concept
                room[index] -= len(stay)
        others = np.flatnonzero(concepts < 0)
        concepts[others] = rng.permutation(np.repeat(wanted, room))
        return concepts
