import numpy as np
import pytest

from thalweg.aggregation import Flash
from thalweg.core.errors import ConfigError

UPDATES = (0.1, 0.1, -0.5)


def run_steps(rule, state):
    model, made = np.zeros(1, dtype=np.float32), []
    for update in UPDATES:
        following, moved = rule.step(state, model, np.array([[update]], dtype="f4"), np.ones(1))
        made.append(float(moved[0] - model[0]))
        state, model = following, moved
    return made, state


def test_raw_steps_of_a_worked_example_have_the_wrong_direction_after_a_drift():
    rule = Flash(lr=0.01, raw=True)
    made, state = run_steps(rule, rule.init(1))
    assert made == pytest.approx([0.086853, 0.035578, 0.001694], abs=2e-6)
    assert state.mean[0] == pytest.approx(-0.0329, abs=1e-6)
    assert state.drift[0] == pytest.approx(0.247112, abs=1e-4)


def test_raw_steps_of_a_worked_example_from_a_variance_of_zero():
    rule = Flash(lr=0.01, raw=True)
    fresh = rule.init(1)
    made, _ = run_steps(rule, fresh._replace(variance=np.zeros(1, dtype=np.float32)))
    assert made == pytest.approx([0.090909, 0.035817, 0.001694], abs=2e-6)


def test_default_steps_keep_their_direction_after_a_drift():
    rule = Flash(lr=0.01)
    made, _ = run_steps(rule, rule.init(1))
    assert made[2] == pytest.approx(0.01 * -0.0329 / 0.001, rel=1e-4)


def test_parameter_that_never_changes_stays_the_same():
    rule = Flash(raw=True)
    state = rule.init(1)._replace(variance=np.zeros(1, dtype=np.float32))
    following, moved = rule.step(
        state, np.ones(1, dtype="f4"), np.zeros((1, 1), dtype="f4"), np.ones(1)
    )
    assert moved.tolist() == [1.0]
    assert following.drift.tolist() == [0.0]


def test_invalid_fields_are_rejected():
    with pytest.raises(ConfigError, match="adaptivity_floor must be positive"):
        Flash(adaptivity_floor=0.0)
    with pytest.raises(ConfigError, match="beta_var must lie"):
        Flash(beta_var=1.0)
