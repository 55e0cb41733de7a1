import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.core.types import SampleAges
from thalweg.sample_weights import InverseAge


def weights(ages, **kwargs):
    ages = np.array(ages)
    return InverseAge(**kwargs).weigh(SampleAges(ages, np.zeros(len(ages), int)))


def test_a_sample_of_age_ten_counts_a_tenth_of_a_new_one():
    # 100 samples for ten rounds weigh 10, 20 new ones 20.
    assert weights([10] * 100).sum() == pytest.approx(10)
    assert weights([1] * 20).sum() == pytest.approx(20)


def test_with_power_zero_all_samples_count_the_same():
    assert weights([1, 5, 9], power=0.0).tolist() == [1, 1, 1]


def test_a_negative_power_is_rejected():
    with pytest.raises(ConfigError, match="power must not be negative"):
        InverseAge(power=-1)
