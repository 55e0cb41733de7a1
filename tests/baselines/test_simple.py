from __future__ import annotations

import numpy as np

from thalweg.baselines import Learner, Majority, NoChange

X = np.zeros(3, dtype=np.float32)


def said(learner: Learner, labels: list[int]) -> list[int]:
    """Before anything is learnt, and after each label."""
    answers = [learner.predict(X)]
    for label in labels:
        learner.learn(X, label)
        answers.append(learner.predict(X))
    return answers


def test_the_majority_is_what_was_right_most_often_and_of_equals_the_first() -> None:
    assert said(Majority().begin(3, seed=0), [2, 1, 1, 2, 2]) == [0, 2, 1, 1, 1, 2]


def test_no_change_repeats_what_was_right_last() -> None:
    assert said(NoChange().begin(3, seed=0), [2, 1, 1, 0]) == [0, 2, 1, 1, 0]
