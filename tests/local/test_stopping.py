import pytest

from thalweg.core.errors import ConfigError
from thalweg.local import GainThreshold


def test_the_first_of_every_ten_samples_is_held_out() -> None:
    assert [GainThreshold().hold_out(n).tolist() for n in (0, 1, 10, 11, 25)] == [
        [],
        [0],
        [0],
        [0, 10],
        [0, 10, 20],
    ]


def test_the_required_gain_falls_with_the_tick() -> None:
    stopping = GainThreshold(gain=0.5)
    assert not stopping.should_stop(1.0, 0.5, tick=1), "exactly the gain is enough"
    assert stopping.should_stop(1.0, 0.625, tick=1)
    assert not stopping.should_stop(1.0, 0.625, tick=2)
    assert stopping.should_stop(1.0, 1.5, tick=100), "a larger loss is no gain"


def test_a_client_without_held_out_samples_stops() -> None:
    assert GainThreshold().should_stop(0.0, 0.0, tick=1)


@pytest.mark.parametrize("gain", [0.0, -0.1, float("inf"), float("nan")])
def test_a_gain_that_is_not_positive_and_finite_is_rejected(gain: float) -> None:
    with pytest.raises(ConfigError, match="gain must be positive and finite"):
        GainThreshold(gain)
