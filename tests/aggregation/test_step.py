from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.aggregation import Step
from thalweg.core.decay import PolynomialDecay, StepwiseDecay

MODEL = np.array([1.0, 2.0], dtype=np.float32)
DELTAS = np.array([[1.0, 0.0], [3.0, -8.0]], dtype=np.float32)


def test_model_moves_by_the_weighted_mean_of_the_updates() -> None:
    _, moved = Step().step(None, MODEL, DELTAS, np.array([0.75, 0.25]))
    assert moved.tolist() == [1 + 0.75 + 0.75, 2 - 2]


def test_learning_rate_scales_the_update_and_not_the_model() -> None:
    _, moved = Step(lr=0.5).step(None, MODEL, DELTAS, np.array([0.75, 0.25]))
    assert moved.tolist() == [1 + 0.75, 2 - 1]


def test_weights_below_one_shrink_the_update_and_not_the_model() -> None:
    _, moved = Step().step(None, MODEL, DELTAS, np.array([0.25, 0.0]))
    assert moved.tolist() == [1.25, 2.0]


def test_step_does_not_change_its_arguments() -> None:
    Step().step(None, MODEL, DELTAS, np.array([0.5, 0.5]))
    assert MODEL.tolist() == [1.0, 2.0]


@given(size=st.integers(1, 6), seed=st.integers(0, 9))
def test_step_with_lr_one_gives_the_weighted_mean_of_the_clients_models(
    size: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    model = rng.normal(size=5).astype(np.float32)
    deltas = rng.normal(size=(size, 5)).astype(np.float32)
    p = rng.dirichlet(np.ones(size))
    _, moved = Step().step(None, model, deltas, p)
    assert moved.dtype == np.float32
    assert moved == pytest.approx(p @ (model + deltas).astype(np.float64), abs=1e-5)


def test_decay_lowers_the_learning_rate_step_by_step() -> None:
    rule = Step(lr=0.5, decay=StepwiseDecay(every=2, gamma=0.5))
    state, model, moves = rule.init(2), np.zeros(2, dtype=np.float32), []
    for _ in range(4):
        state, moved = rule.step(state, model, DELTAS[:1], np.ones(1))
        moves.append(float((moved - model)[0]))
        model = moved
    assert moves == [0.5, 0.5, 0.25, 0.25]


def test_decay_can_be_chosen_by_name() -> None:
    assert Step(decay="polynomial").decay == PolynomialDecay()  # type: ignore[arg-type]
    assert Step().init(2) is None, "without a decay there is nothing to count"


@pytest.mark.parametrize("lr", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_learning_rate_is_rejected(lr: float) -> None:
    with pytest.raises(ValueError, match="lr must be positive and finite"):
        Step(lr)


def test_radius_projects_the_model_onto_a_ball() -> None:
    nothing = np.zeros((1, 2), dtype=np.float32)
    long = np.array([3.0, 4.0], dtype=np.float32)
    _, projected = Step(radius=2.5).step(None, long, nothing, np.ones(1))
    assert projected.tolist() == pytest.approx([1.5, 2.0])
    assert projected.dtype == np.float32
    _, inside = Step(radius=5.0).step(None, long, nothing, np.ones(1))
    assert inside.tolist() == [3.0, 4.0]
    with pytest.raises(ValueError, match="radius must be positive and finite, or none"):
        Step(radius=0.0)
