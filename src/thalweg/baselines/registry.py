"""The built-in baselines by name."""

from __future__ import annotations

from collections.abc import Callable

from thalweg.baselines.base import Baseline
from thalweg.baselines.from_river import RiverClassifier, RiverRegressor
from thalweg.baselines.simple import Majority, Mean, NoChange


def majority() -> Baseline:
    """Predicts the most frequent label so far."""
    return Baseline("majority", Majority())


def no_change() -> Baseline:
    """Predicts the last label."""
    return Baseline("no-change", NoChange())


def river_logistic() -> Baseline:
    """Logistic regression with one gradient step per sample.

    River's linear_model.LogisticRegression. Inputs are those of the recipes, already scaled.
    """
    return Baseline("river-logistic", RiverClassifier("linear_model.LogisticRegression"))


def river_tree() -> Baseline:
    """A Hoeffding tree: splits a leaf when enough samples have been seen.

    Domingos and Hulten, "Mining high-speed data streams", 2000; River's
    tree.HoeffdingTreeClassifier.
    """
    return Baseline("river-tree", RiverClassifier("tree.HoeffdingTreeClassifier"))


def river_forest() -> Baseline:
    """An adaptive random forest: ten trees, each replaced when drift is detected in it.

    Gomes et al., "Adaptive random forests for evolving data stream classification", 2017; River's
    forest.ARFClassifier.
    """
    return Baseline("river-forest", RiverClassifier("forest.ARFClassifier"))


def running_mean() -> Baseline:
    """Predicts the mean of the targets so far; for regression."""
    return Baseline("running-mean", Mean())


def river_linear() -> Baseline:
    """Linear regression with one gradient step per sample; for regression.

    River's linear_model.LinearRegression. Inputs are those of the recipes, already scaled.
    """
    return Baseline("river-linear", RiverRegressor("linear_model.LinearRegression"))


def river_tree_regressor() -> Baseline:
    """A Hoeffding tree with linear models in its leaves; for regression.

    River's tree.HoeffdingTreeRegressor.
    """
    return Baseline("river-tree-regressor", RiverRegressor("tree.HoeffdingTreeRegressor"))


BASELINES: dict[str, Callable[[], Baseline]] = {
    "majority": majority,
    "no-change": no_change,
    "river-logistic": river_logistic,
    "river-tree": river_tree,
    "river-forest": river_forest,
    "running-mean": running_mean,
    "river-linear": river_linear,
    "river-tree-regressor": river_tree_regressor,
}
