from __future__ import annotations

import sys

import numpy as np
import pytest

from thalweg.baselines import RiverClassifier
from thalweg.core.errors import ConfigError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3)).astype(np.float32)


def accuracy(learner: RiverClassifier, labels: list[int], num_classes: int) -> float:
    """Train on the first half; return the test-then-train accuracy on the second half."""
    model, right = learner.begin(num_classes, seed=3), 0
    for place, (x, label) in enumerate(zip(X, labels, strict=True)):
        right += place >= 200 and model.predict(x) == label
        model.learn(x, label)
    return right / 200


def test_missing_river_package_gives_an_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(ConfigError, match=r"pip install 'thalweg\[river\]'.*majority, no-change"):
        RiverClassifier().begin(2, seed=0)


@pytest.mark.parametrize("bad", ["HoeffdingTreeClassifier", "tree.", "os.path.join", "tree.x y"])
def test_invalid_river_model_names_are_rejected(bad: str) -> None:
    with pytest.raises(ConfigError, match=r"learner.model must be a module of River"):
        RiverClassifier(bad)


def test_river_settings_are_parsed_as_names_and_values() -> None:
    assert RiverClassifier(settings="").parse_settings() == {}
    assert RiverClassifier(settings="max_depth=3,leaf_prediction=mc").parse_settings() == {
        "max_depth": 3,
        "leaf_prediction": "mc",
    }
    for bad in ("max_depth", "max depth=3", "=3", "max_depth="):
        with pytest.raises(ConfigError, match=r"expected name=value"):
            RiverClassifier(settings=bad)


class TestWithRiver:
    @pytest.fixture(autouse=True)
    def river(self) -> None:
        pytest.importorskip("river", reason="needs the extra river")

    def test_river_trees_and_linear_models_learn_two_classes(self) -> None:
        labels = (X[:, 0] > 0).astype(int).tolist()
        assert accuracy(RiverClassifier(), labels, 2) > 0.8
        assert accuracy(RiverClassifier("linear_model.LogisticRegression"), labels, 2) > 0.8

    def test_binary_river_model_is_wrapped_as_one_vs_rest(self) -> None:
        labels = np.digitize(X[:, 0], [-0.6, 0.6]).tolist()
        assert accuracy(RiverClassifier("linear_model.LogisticRegression"), labels, 3) > 0.6

    def test_untrained_river_model_predicts_class_zero(self) -> None:
        assert RiverClassifier().begin(2, seed=0).predict(X[0]) == 0

    def test_equal_seeds_give_equal_forests(self) -> None:
        labels = (X[:, 0] * X[:, 1] > 0).astype(int).tolist()
        forest = RiverClassifier("forest.ARFClassifier", "n_models=3")
        assert accuracy(forest, labels, 2) == accuracy(forest, labels, 2)

    def test_unknown_river_models_are_rejected(self) -> None:
        for name in ("tree.Oak", "woods.Oak", "metrics.Accuracy"):
            with pytest.raises(ConfigError, match="River has no such classifier"):
                RiverClassifier(name).begin(2, seed=0)

    def test_unknown_river_settings_are_rejected(self) -> None:
        with pytest.raises(ConfigError, match=r"rejects learner.settings='height=3'"):
            RiverClassifier(settings="height=3").begin(2, seed=0)
