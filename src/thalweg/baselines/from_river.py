"""Classifiers of River, a package of online learners."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass
from typing import Any

from thalweg.core.config import parse_pairs
from thalweg.core.errors import ConfigError, require
from thalweg.core.types import Floats32


@dataclass(frozen=True)
class RiverClassifier:
    """A classifier of River (``thalweg[river]``) by name, such as tree.HoeffdingTreeClassifier.

    A binary classifier is wrapped in River's one-versus-rest if there are more than two classes. A
    classifier with a seed gets one that is derived from the run's seed, different for each client.
    It predicts 0 before it has learned.
    """

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

    def begin(self, num_classes: int, seed: int) -> RiverLearner:
        kind, settings = self._kind(), self.parse_settings()
        if "seed" in inspect.signature(kind).parameters:
            settings.setdefault("seed", seed)
        try:
            model = kind(**settings)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{self.model} rejects learner.settings={self.settings!r}: {error}."
            ) from error
        if num_classes > 2 and not model._multiclass:
            model = importlib.import_module("river.multiclass").OneVsRestClassifier(model)
        return RiverLearner(model)

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
        if not (isinstance(found, type) and hasattr(found, "predict_one")):
            raise ConfigError(
                f"learner.model={self.model}: River has no such classifier; expected for example "
                "tree.HoeffdingTreeClassifier, forest.ARFClassifier or "
                "linear_model.LogisticRegression."
            )
        return found


class RiverLearner:
    """A River classifier; features are named by their index."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def predict(self, x: Floats32) -> int:
        predicted = self._model.predict_one(dict(enumerate(x.tolist())))
        return 0 if predicted is None else int(predicted)

    def learn(self, x: Floats32, label: int) -> None:
        self._model.learn_one(dict(enumerate(x.tolist())), label)
