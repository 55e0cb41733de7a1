import pytest

from thalweg.core.errors import ConfigError
from thalweg.theory import session_lr_bound


@pytest.mark.parametrize(
    ("steps", "bound"), [(1, 1 / 2), (2, 1 / 4), (3, 1 / 18), (4, -1 / 16), (5, -0.14)]
)
def test_lr_bound_is_positive_for_at_most_three_local_steps(steps, bound):
    assert session_lr_bound(1.0, steps) == pytest.approx(bound, abs=1e-12)


def test_smoother_loss_allows_larger_steps():
    assert session_lr_bound(0.5, 2) == 2 * session_lr_bound(1.0, 2)


@pytest.mark.parametrize(
    ("smoothness", "steps", "message"),
    [
        (0.0, 2, "smoothness must be positive"),
        (float("nan"), 2, "smoothness must be positive"),
        (1.0, 0, "min_steps must be at least 1"),
        (1.0, 2.5, "min_steps must be a whole number"),
    ],
)
def test_invalid_lr_bound_inputs_are_rejected(smoothness, steps, message):
    with pytest.raises(ConfigError, match=message):
        session_lr_bound(smoothness, steps)
