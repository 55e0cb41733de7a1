"""The definition of a baseline: an online learner outside a federation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from thalweg.baselines.from_river import RiverClassifier, RiverRegressor
from thalweg.baselines.simple import Majority, Mean, NoChange
from thalweg.core.config import check_literals, choice, convert_parts
from thalweg.core.registry import check_name
from thalweg.core.types import Floats32


class Learner(Protocol):
    """Learns from one sample at a time. Mutable; exists for one run."""

    def predict(self, x: Floats32) -> float:
        """Predict the label or number of a sample (F,); also before the first call of `learn`."""
        ...

    def learn(self, x: Floats32, label: float) -> None: ...


class OnlineLearner(Protocol):
    """Configuration of an online learner: a frozen dataclass.

    A class attribute ``task`` declares that it is for one task only, such as "regression". An
    attribute ``is_deterministic`` declares that it does not use the seed, ``ignores_features`` that
    it only uses labels, and ``needs_last_label`` that it predicts the sample after the last label,
    so that it has no scores on a test set.
    """

    def begin(self, num_classes: int, seed: int) -> Learner:
        """A new learner; `ConfigError` if it is not available."""
        ...


LEARNERS: dict[str, type[OnlineLearner]] = {
    "majority": Majority,  # the most frequent label
    "no-change": NoChange,  # the last label
    "mean": Mean,  # the mean of the targets, for regression
    "river": RiverClassifier,  # any classifier of the package river
    "river-regressor": RiverRegressor,  # any regressor of the package river
}


@dataclass(frozen=True)
class Baseline:
    """An online learner that is tested on every arriving sample and then learns from it.

    Arrivals are those of the scenario: the same samples on which a recipe is tested in the same
    round. Memory, net, selection and faults of the scenario are not used.
    """

    name: str
    learner: OnlineLearner = choice(LEARNERS)
    pooled: bool = False
    """True: one learner receives the samples of all clients; False: one learner per client."""
    feedback: Literal["round", "sample"] = "round"
    """When labels become available: at the end of the round, as for clients of a federation, or
    after every sample, as usual for online learners. This choice alone can decide the ranking.
    """

    def __post_init__(self) -> None:
        check_name(self.name)
        convert_parts(self)
        check_literals(self)
