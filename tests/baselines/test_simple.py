from __future__ import annotations

import numpy as np

from thalweg.baselines import Learner, Majority, NoChange

X = np.zeros(3, dtype=np.float32)


def collect_predictions(learner: Learner, labels: list[int]) -> list[int]:
    """Return the predictions before the first label and after each label."""
    answers = [learner.predict(X)]
    for label in labels:
        learner.learn(X, label)
        answers.append(learner.predict(X))
    return answers


def test_majority_predicts_the_most_frequent_label_and_breaks_ties_by_order() -> None:
    assert collect_predictions(Majority().begin(3, seed=0), [2, 1, 1, 2, 2]) == [0, 2, 1, 1, 1, 2]


def test_no_change_predicts_the_last_label() -> None:
    assert collect_predictions(NoChange().begin(3, seed=0), [2, 1, 1, 0]) == [0, 2, 1, 1, 0]
