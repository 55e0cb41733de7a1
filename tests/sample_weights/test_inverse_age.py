import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.core.types import SampleAges
from thalweg.sample_weights import InverseAge


def weights(stays, **kwargs):
    stays = np.array(stays)
    return InverseAge(**kwargs).weigh(SampleAges(stays, np.zeros(len(stays), int)))


def test_a_stored_sample_of_ten_rounds_counts_a_tenth_of_a_new_one():
    # The sheet's Uniform: 100 samples for ten rounds weigh 10, 20 new ones 20.
    assert weights([10] * 100).sum() == pytest.approx(10)
    assert weights([1] * 20).sum() == pytest.approx(20)


def test_a_power_of_zero_counts_all_the_same():
    assert weights([1, 5, 9], power=0.0).tolist() == [1, 1, 1]


def test_a_negative_power_is_refused():
    with pytest.raises(ConfigError, match="power must not be negative"):
        InverseAge(power=-1)
