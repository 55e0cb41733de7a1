"""Classifiers and regressors of River, a package of online learners."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from thalweg.core.config import parse_pairs
from thalweg.core.errors import ConfigError, require
from thalweg.core.types import Floats32

# The base class in River of the learners of a task, and examples of them.
BASES = {
    "classification": (
        "Classifier",
        "tree.HoeffdingTreeClassifier, forest.ARFClassifier or linear_model.LogisticRegression",
    ),
    "regression": (
        "Regressor",
        "tree.HoeffdingTreeRegressor, forest.ARFRegressor or linear_model.LinearRegression",
    ),
}


@dataclass(frozen=True)
class RiverClassifier:
    """A classifier of River (``thalweg[river]``) by name, such as tree.HoeffdingTreeClassifier.

    A binary classifier is wrapped in River's one-versus-rest if there are more than two classes. A
    classifier with a seed gets one that is derived from the run's seed, different for each client.
    It predicts 0 before it has learned.
    """

    task: ClassVar[str] = "classification"

    model: str = "tree.HoeffdingTreeClassifier"
    settings: str = ""
    """Constructor arguments, such as grace_period=50,max_depth=6; empty: River's defaults."""

    def __post_init__(self) -> None:
        require(
            re.fullmatch(r"[a-z_]+\.[A-Za-z]\w*", self.model) is not None,
            f"learner.model must be a module of River and a class in it, such as "
            f"tree.HoeffdingTreeClassifier, got {self.model!r}.",
        )
        self.parse_settings()  # report syntax errors immediately

    def parse_settings(self) -> dict[str, Any]:
        """The arguments in `settings` by name.

        >>> RiverClassifier(settings="grace_period=50, delta=0.01").parse_settings()
        {'grace_period': 50, 'delta': 0.01}
        """
        return parse_pairs(self.settings, "learner.settings", "max_depth=6")

    @property
    def is_deterministic(self) -> bool:
        """Whether runs with different seeds are the same: the class has no seed, or a given one."""
        has_seed = "seed" in inspect.signature(self._kind()).parameters
        return not has_seed or isinstance(self.parse_settings().get("seed"), int)

    def begin(self, num_classes: int, seed: int) -> RiverLearner:
        model = self.make_model(seed)
        if num_classes > 2 and not model._multiclass:
            model = importlib.import_module("river.multiclass").OneVsRestClassifier(model)
        return RiverLearner(model)

    def make_model(self, seed: int) -> Any:
        """Create the River model; `ConfigError` if it does not exist or rejects its settings."""
        kind, settings = self._kind(), self.parse_settings()
        if "seed" in inspect.signature(kind).parameters:
            settings.setdefault("seed", seed)
        try:
            return kind(**settings)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{self.model} rejects learner.settings={self.settings!r}: {error}."
            ) from error

    def _kind(self) -> type[Any]:
        module, _, name = self.model.partition(".")
        try:
            importlib.import_module("river")
        except ImportError as error:
            raise ConfigError(
                "learner=river needs the package river, which is not installed: pip install "
                "'thalweg[river]'. Baselines without it: majority, no-change."
            ) from error
        try:
            found = getattr(importlib.import_module(f"river.{module}"), name, None)
        except ImportError:
            found = None
        base, examples = BASES[self.task]
        expected = getattr(importlib.import_module("river.base"), base)
        if not (isinstance(found, type) and issubclass(found, expected)):
            raise ConfigError(
                f"learner.model={self.model}: River has no such {base.lower()}; expected for "
                f"example {examples}."
            )
        return found


@dataclass(frozen=True)
class RiverRegressor(RiverClassifier):
    """A regressor of River (``thalweg[river]``) by name, such as linear_model.LinearRegression.

    A regressor with a seed gets one that is derived from the run's seed, different for each client.
    It predicts 0 before it has learned.
    """

    task: ClassVar[str] = "regression"

    model: str = "tree.HoeffdingTreeRegressor"

    def begin(self, num_classes: int, seed: int) -> RiverLearner:
        return RiverNumberLearner(self.make_model(seed))


class RiverLearner:
    """A River classifier; features are named by their index."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def predict(self, x: Floats32) -> float:
        predicted = self._model.predict_one(dict(enumerate(x.tolist())))
        return 0 if predicted is None else int(predicted)

    def learn(self, x: Floats32, label: float) -> None:
        self._model.learn_one(dict(enumerate(x.tolist())), label)


class RiverNumberLearner(RiverLearner):
    """A River regressor."""

    def predict(self, x: Floats32) -> float:
        predicted = self._model.predict_one(dict(enumerate(x.tolist())))
        return 0.0 if predicted is None else float(predicted)
