"""The world of FedDAA: every few rounds all clients get new samples, many another concept, all another angle."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from thalweg.core.config import check_ranges
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
    """Time goes in steps: at the first round of each, a shard of samples arrives at every client, and then nothing.

    The training set is cut into as many shards as there are clients, and every concept owns an equal part of the
    shards. In a step each of its concepts has the same number of clients, give or take one; they get shards of
    that concept, drawn without replacement until all of them are dealt. So images recur, most clients change
    their concept at every step, and all images of a step are turned by the same angle. Nobody misses anything by
    being away: the clock is that of the run. There is one latent state.

    Symbols, Peng and Tang (FedDAA) -> here
        t, T   time step                    -> step; as many as the run has rounds for
        τ      rounds of a time step        -> rounds_per_step
        K      clients                      -> num_clients
        concepts 1 to 4, of R classes y     -> 0: y; 1: R - 1 - y; 2: y + 1; 3: y + 2, modulo R
    """

    num_clients: int = 60
    rounds_per_step: int = 40
    concepts: tuple[tuple[int, ...], ...] = ((0, 1), (0, 1, 2), *((0, 1, 2, 3),) * 4)
    """For every step the concepts that clients have in it, counted from 0 (`core.views.concept_map`)."""
    rotations: tuple[float, ...] = (0.0, 120.0, 240.0, 0.0, 120.0, 240.0)
    """For every step the angle of all images in degrees; a single one holds for all steps."""
    cycle: int = 3
    """In a run that is longer than the steps, the last so many of them repeat."""
    stay_probability: float = 0.0
    """Probability that a client keeps its concept at the next step, as far as there is room for it."""
    dirichlet: float | None = None
    """Shards have label mixes of their own, by Dirichlet draws of this concentration, so that labels drift with
    every step; none: shards are cut at random, all of one size."""
    shard_size: int | None = None
    """Samples of a shard; of an average one if they have label mixes of their own. None: all samples are dealt."""
    memory_shards: int = 2
    """Shards that fit a client's memory, of the largest size; the scenario's capacity plays no part."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            num_clients="[1, inf)",
            rounds_per_step="[1, inf)",
            cycle="[1, inf)",
            stay_probability="[0, 1]",
            dirichlet="(0, inf) or none",
            shard_size="[1, inf) or none",
            memory_shards="[1, inf)",
        )
        require(len(self.concepts) >= 1, "Steps needs at least one step; concepts is empty.")
        for step in self.concepts:
            require(
                len(step) >= 1 and len(set(step)) == len(step) and min(step) >= 0,
                f"the concepts of a step are different numbers from 0 on, at least one; got {step}.",
            )
        require(
            len(self.rotations) in (1, len(self.concepts)),
            f"rotations has {len(self.rotations)} angles for {len(self.concepts)} steps; expected one for each, "
            "or one for all.",
        )

    @property
    def all_concepts(self) -> list[int]:
        return sorted({concept for step in self.concepts for concept in step})

    def step_settings(self, step: int) -> tuple[tuple[int, ...], float]:
        """Concepts and angle of a step, counted from 0; the last ones repeat."""
        number, cycle = len(self.concepts), min(self.cycle, len(self.concepts))
        if step >= number:
            step = number - cycle + (step - number) % cycle
        return self.concepts[step], self.rotations[step % len(self.rotations)]

    def build(self, setting: Setting) -> StepsWorld:
        """Cut the shards, and deal them step after step."""
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
            f"{len(labels)} samples cannot be cut into {number} shards of {self.shard_size or 'at least 1'}; use "
            "fewer clients, or smaller shards.",
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
    """Deals concepts and shards, one step after the other."""

    def __init__(self, spec: Steps, seed: int) -> None:
        self._spec, self._seed = spec, seed
        self._concepts: Ints | None = None  # (N,) of the step before

    def assign_next(self, step: int) -> tuple[Ints, Ints]:
        """(N,) concept of every client in the next step, and its shard."""
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
        """The shards of every concept; all of them if there are fewer than concepts."""
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
            for place, concept in enumerate(wanted.tolist()):
                stay = rng.permutation(np.flatnonzero(willing & (self._concepts == concept)))
                stay = stay[: room[place]]
                concepts[stay] = concept
                room[place] -= len(stay)
        others = np.flatnonzero(concepts < 0)
        concepts[others] = rng.permutation(np.repeat(wanted, room))
        return concepts
