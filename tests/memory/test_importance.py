import numpy as np
import pytest

from contracts.examples import some_memory_context
from thalweg.core.errors import ConfigError
from thalweg.core.types import LastLayer
from thalweg.memory import Importance
from thalweg.memory.importance import gradient_norms


def seen(norms, capacity, held):
    """Samples whose gradient norms are these."""
    values = np.array(norms, dtype=np.float32)
    last_layer = LastLayer(values[:, None], np.zeros((len(values), 1), dtype=np.float32))
    return some_memory_context(capacity, held, len(values) - held)._replace(last_layer=last_layer)


def kept(policy, intake):
    return policy.keep(None, intake, np.random.default_rng(0))[1].tolist()


def test_the_norm_of_the_sheet():
    z = np.array([2.0, 1.0, 0.0])
    error = np.exp(z) / np.exp(z).sum() - np.array([1, 0, 0])
    assert np.linalg.norm(error) == pytest.approx(0.424336, abs=1e-6)
    norm = gradient_norms(LastLayer(error[None], np.array([[1.0, 2.0]])))
    assert norm[0] == pytest.approx(1.039407, abs=1e-6)


def test_the_best_new_samples_take_the_places_of_the_worst_held_ones():
    assert kept(Importance(budget=0.5), seen([5, 1, 4, 2, 9, 3, 8, 7], 4, 4)) == [0, 4, 2, 6]


def test_free_places_are_filled_first():
    assert sorted(kept(Importance(budget=0.25), seen([5, 1, 9, 3], 4, 2))) == [0, 1, 2, 3]


def test_outliers_stay_out_if_asked():
    assert kept(Importance(0.5), seen([1, 1, 100, 2, 3], 2, 2)) == [2, 1]
    assert kept(Importance(0.5, outlier=1.2), seen([1, 1, 100, 2, 3], 2, 2)) == [4, 1]


def test_without_a_model_it_says_so():
    with pytest.raises(ConfigError, match=r"needs context\.last_layer"):
        kept(Importance(), some_memory_context(4, 4, 4))
