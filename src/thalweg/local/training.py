from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from thalweg.core.config import (
    check_literals,
    check_ranges,
    choice,
    convert_parts,
    kind_of,
    with_settings,
)
from thalweg.core.decay import DECAYS, LrDecay
from thalweg.core.errors import require
from thalweg.core.types import Ints
from thalweg.local.optimizers import (
    OPTIMIZERS,
    Optimizer,
    Sgd,
    StepSettings,
    TorchOptimizer,
    expand_optimizer,
)


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains: optimizer, learning rate, mini-batches and number of steps.

    The work per tick is either `steps` or `passes`. A step uses a mini-batch drawn from the memory
    without replacement (the whole memory if it holds at most `batch_size` samples). A pass goes
    through the memory once in random order, cut into mini-batches, the last one smaller; half a
    pass uses half of the samples.

    >>> local = LocalTraining(lr=0.1, batch_size=4, passes=1.5)
    >>> [len(batch) for batch in local.batches(held=10, rng=np.random.default_rng(0))]
    [4, 4, 2, 4, 1]

    The optimizer is an object, a class or a name. Momentum and weight decay are fields of this
    class, because most optimizers have them; they are rejected if the optimizer does not.

    >>> LocalTraining(lr=0.001, steps=5, optimizer="adam").optimizer
    Adam(betas=(0.9, 0.999), eps=1e-08)
    """

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch_size: int = 64
    steps: int | None = None
    """Mini-batches per tick; give either `steps` or `passes`."""
    passes: float | None = None
    """Passes over the memory per tick."""
    drop_last: bool = False
    """In a pass, leave out a last mini-batch of fewer than `batch_size` samples.

    A client that holds fewer samples than that takes no step.
    """
    decay: LrDecay | None = choice(DECAYS, default=None)
    """Learning-rate schedule within a session; none: constant."""
    optimizer: Optimizer = choice(OPTIMIZERS, expand=expand_optimizer, default=Sgd())
    """Computes the steps from gradients."""
    optimizer_state: Literal["reset", "keep"] = "reset"
    """Between the rounds of a client: reset the optimizer, or keep its state at the client."""
    keep_rounds: int | None = None
    """With optimizer_state=keep: all clients start with a new optimizer every `keep_rounds` rounds,
    such as the rounds of a time step; none: they keep it for the whole run."""

    def __post_init__(self) -> None:
        convert_parts(self)
        check_literals(self)
        check_ranges(
            self,
            lr="(0, inf)",
            momentum="[0, 1)",
            weight_decay="[0, inf)",
            batch_size="[1, inf)",
            steps="[1, STEPS] or none",
            passes="(0, PASSES] or none",
            keep_rounds="[1, inf) or none",
        )
        require(
            (self.steps is None) != (self.passes is None),
            "give either steps or passes as the work per tick, not both or none; got "
            f"steps={self.steps}, passes={self.passes}.",
        )
        for name, is_accepted in self._get_accepted_settings().items():
            require(
                is_accepted or getattr(self, name) == 0,
                f"local.{name}={getattr(self, name)} has no effect with "
                f"local.optimizer={self.optimizer_name}. Set local.{name}=0, or use "
                "local.optimizer=sgd.",
            )
        require(
            not self.keeps_optimizer or not self.is_sgd or self.momentum > 0,
            "local.optimizer_state=keep has no effect on SGD without momentum, which has no "
            "state. Set local.momentum=0.9 or local.optimizer_state=reset.",
        )
        require(
            self.keeps_optimizer or self.keep_rounds is None,
            f"local.keep_rounds={self.keep_rounds} has no effect with local.optimizer_state=reset, "
            "which starts with a new optimizer in every round. Set local.optimizer_state=keep.",
        )
        require(
            self.passes is not None or not self.drop_last,
            f"local.drop_last=true has no effect with local.steps={self.steps}, whose mini-batches "
            "all have the same size. Give the work as local.passes.",
        )

    @property
    def is_sgd(self) -> bool:
        return isinstance(self.optimizer, Sgd)

    @property
    def keeps_optimizer(self) -> bool:
        """Whether clients keep the state of their optimizer between rounds."""
        return self.optimizer_state == "keep"

    def keeps_between(self, last: int, rnd: int) -> bool:
        """Return whether a client keeps the optimizer of its round `last` until round `rnd`.

        >>> local = LocalTraining(0.1, 0.9, steps=1, optimizer_state="keep", keep_rounds=40)
        >>> local.keeps_between(38, 39), local.keeps_between(39, 40)
        (True, False)
        """
        if not self.keeps_optimizer:
            return False
        return self.keep_rounds is None or last // self.keep_rounds == rnd // self.keep_rounds

    @property
    def optimizer_name(self) -> str:
        """The name of the optimizer in a setting."""
        if isinstance(self.optimizer, TorchOptimizer):
            return self.optimizer.name
        return kind_of(self.optimizer, OPTIMIZERS)

    @property
    def step_settings(self) -> StepSettings:
        return StepSettings(self.lr, self.momentum, self.weight_decay)

    def adapt_settings(self, settings: Mapping[str, Any], where: str) -> Mapping[str, Any]:
        """Reset the momentum for a new optimizer, and weight decay if it has none.

        Scenarios define them for SGD. Values that are set together with the optimizer remain.

        >>> local = LocalTraining(lr=0.1, momentum=0.9, weight_decay=0.1, steps=1)
        >>> local.adapt_settings({"optimizer": "adam"}, "local")
        {'momentum': 0.0, 'optimizer': 'adam'}
        """
        new = settings.get("optimizer")
        for name in ("lr", "momentum", "weight_decay"):
            require(
                not (isinstance(new, Mapping) and name in new),
                f"local.optimizer: {name} is not an option of an optimizer; set local.{name} "
                "instead.",
            )
        is_change = new is not None and not (isinstance(new, Mapping) and "kind" not in new)
        if not is_change or not (self.momentum or self.weight_decay):
            return settings
        changed = with_settings(LocalTraining(lr=1.0, steps=1), {"optimizer": new}, where)
        unused = {
            "momentum": not changed.is_sgd,
            "weight_decay": not changed.optimizer.accepts_weight_decay,
        }
        reset = [name for name in unused if unused[name] and getattr(self, name)]
        return {**dict.fromkeys(reset, 0.0), **settings}

    def _get_accepted_settings(self) -> dict[str, bool]:
        """Return which of the settings that some optimizers lack this one has."""
        return {
            "momentum": self.optimizer.accepts_momentum,
            "weight_decay": self.optimizer.accepts_weight_decay,
        }

    def lr_scale(self, age: int) -> float:
        """Return the factor on the learning rate after `age` rounds of a session."""
        return 1.0 if self.decay is None else self.decay.factor(age)

    def batches(self, held: int, rng: np.random.Generator, smallest: int = 1) -> list[Ints]:
        """Return the mini-batches of one tick, as positions in a memory of `held` samples.

        With `drop_last`, mini-batches of a pass with fewer than `batch_size` samples are left out.
        A mini-batch of fewer than `smallest` samples is joined to the one before it. If there is
        none before it, it is left out.

        >>> local = LocalTraining(lr=0.1, batch_size=4, passes=1)
        >>> [len(batch) for batch in local.batches(9, np.random.default_rng(0), smallest=2)]
        [4, 5]
        """
        if held == 0:
            return []
        if self.steps is not None:
            drawn = [self._draw_batch(held, rng) for _ in range(self.steps)]
        else:
            drawn = self._draw_passes(held, rng)
        return drawn if smallest == 1 else _join_small_batches(drawn, smallest)

    def _draw_passes(self, held: int, rng: np.random.Generator) -> list[Ints]:
        assert self.passes is not None  # exactly one of the two is set
        todo = max(1, round(self.passes * held))  # samples left to use
        batches: list[Ints] = []
        while todo > 0:
            order = rng.permutation(held)[:todo]
            used = len(order) // self.batch_size * self.batch_size if self.drop_last else len(order)
            batches += [
                order[first : min(first + self.batch_size, used)]
                for first in range(0, used, self.batch_size)
            ]
            todo -= held
        return batches

    def _draw_batch(self, held: int, rng: np.random.Generator) -> Ints:
        if held <= self.batch_size:
            return np.arange(held)
        return rng.choice(held, size=self.batch_size, replace=False)


def _join_small_batches(batches: list[Ints], smallest: int) -> list[Ints]:
    """Join each batch of fewer than `smallest` samples to the one before it, or leave it out."""
    joined: list[Ints] = []
    for batch in batches:
        if len(batch) >= smallest:
            joined.append(batch)
        elif joined:
            joined[-1] = np.concatenate([joined[-1], batch])
    return joined
