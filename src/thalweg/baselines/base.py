"""What a baseline is: a learner outside of any federation, on the same arrivals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from thalweg.baselines.from_river import RiverClassifier
from thalweg.baselines.simple import Majority, NoChange
from thalweg.core.config import check_literals, choice
from thalweg.core.types import Floats32


class Learner(Protocol):
    """Learns one sample after the other. It lives as long as a run does, and is the one thing here that changes."""

    def predict(self, x: Floats32) -> int:
        """The label of a sample (F,); also before anything was learnt."""
        ...

    def learn(self, x: Floats32, label: int) -> None: ...


class OnlineLearner(Protocol):
    """How such a learner is made: a frozen dataclass. Any object of this shape will do."""

    def begin(self, num_classes: int, seed: int) -> Learner:
        """One that has seen nothing; `ConfigError` if it cannot be had here."""
        ...


LEARNERS: dict[str, type[OnlineLearner]] = {
    "majority": Majority,  # the label that was right most often
    "no-change": NoChange,  # the label that was right last
    "river": RiverClassifier,  # any classifier of the package river
}


@dataclass(frozen=True)
class Baseline:
    """An online learner that is tested on every arriving sample and then learns from it; there is no federation.

    What arrives where and when is the scenario's: the same samples that a recipe is tested on in the same round.
    It needs no memory, and its net, selection and faults mean nothing here.
    """

    name: str
    learner: OnlineLearner = choice(LEARNERS)
    pooled: bool = False
    """One learner, to which all clients send their samples; or one for each client, which sends nothing."""
    feedback: Literal["round", "sample"] = "round"
    """When it is told what was right: at the end of the round, as clients of a federation are, or after every
    sample, as online learners usually are. That alone may decide who is best."""

    def __post_init__(self) -> None:
        check_literals(self)
