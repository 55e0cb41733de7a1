import numpy as np
import pytest

from contracts.examples import some_memory_context
from thalweg.core.errors import ConfigError
from thalweg.core.types import LastLayer
from thalweg.memory import Importance
from thalweg.memory.importance import gradient_norms


def context_with(norms, capacity, held):
    """Return a context of samples with these gradient norms, the first `held` in memory."""
    values = np.array(norms, dtype=np.float32)
    last_layer = LastLayer(values[:, None], np.zeros((len(values), 1), dtype=np.float32))
    return some_memory_context(capacity, held, len(values) - held)._replace(last_layer=last_layer)


def kept(policy, context):
    return policy.keep(None, context, np.random.default_rng(0))[1].tolist()


def test_the_gradient_norm_includes_the_bias():
    z = np.array([2.0, 1.0, 0.0])
    error = np.exp(z) / np.exp(z).sum() - np.array([1, 0, 0])
    assert np.linalg.norm(error) == pytest.approx(0.424336, abs=1e-6)
    norm = gradient_norms(LastLayer(error[None], np.array([[1.0, 2.0]])))
    assert norm[0] == pytest.approx(1.039407, abs=1e-6)


def test_the_current_model_is_probed():
    assert Importance().probed_model == "current"


def test_the_best_new_samples_replace_the_worst_held_ones():
    context = context_with([5, 1, 4, 2, 9, 3, 8, 7], capacity=4, held=4)
    assert kept(Importance(budget=0.5), context) == [0, 4, 2, 6]
    assert kept(Importance(), context) == [0, 4, 2, 6], "the default budget is one half"
    assert kept(Importance(budget=0.25), context) == [0, 4, 2, 3]
    assert kept(Importance(budget=1.0), context) == [5, 4, 7, 6]


def test_ties_are_broken_by_position():
    assert kept(Importance(budget=0.5), context_with([1, 1, 2, 2], capacity=2, held=2)) == [2, 1]


def test_free_slots_are_filled_beyond_the_budget():
    assert kept(Importance(budget=0.25), context_with([5, 1, 9, 3], 4, 2)) == [0, 1, 2, 3]


def test_new_samples_beyond_the_free_slots_replace_held_ones_within_the_budget():
    # One free slot and a budget of two: 9 replaces the held 1, 8 takes the free slot.
    assert kept(Importance(budget=0.5), context_with([5, 1, 4, 9, 8, 7], 4, 3)) == [0, 3, 2, 4]


def test_fewer_arrivals_than_free_slots_are_all_kept():
    assert kept(Importance(), context_with([5, 9], capacity=4, held=1)) == [0, 1]


def test_outliers_among_new_samples_are_rejected():
    assert kept(Importance(0.5), context_with([1, 1, 100, 2, 3], 2, 2)) == [2, 1]
    assert kept(Importance(0.5, outlier=1.2), context_with([1, 1, 100, 2, 3], 2, 2)) == [4, 1]


def test_a_value_equal_to_the_outlier_limit_is_not_an_outlier():
    # The mean of the new values is 2, the limit 3.
    assert kept(Importance(0.5, outlier=1.5), context_with([0, 2, 1, 3], 2, 2)) == [3, 1]


def test_outliers_fill_free_slots_if_there_are_no_other_samples():
    # The limit is 1.2 * 34 = 40.8. Three free slots need the outlier 100, two do not.
    norms = [5, 1, 1, 100]
    assert kept(Importance(outlier=1.2), context_with(norms, 4, 1)) == [0, 3, 1, 2]
    assert kept(Importance(outlier=1.2), context_with(norms, 3, 1)) == [0, 1, 2]


def test_fewer_ordinary_samples_than_arrivals_suffice_if_they_fill_the_free_slots():
    # Two arrivals for three free slots; without the outlier one of them would be missing.
    assert kept(Importance(outlier=1.2), context_with([5, 1, 100], 4, 1)) == [0, 2, 1]


def test_a_tick_without_arrivals_keeps_the_memory():
    assert kept(Importance(outlier=1.2), context_with([5, 1], capacity=2, held=2)) == [0, 1]


def test_a_context_without_last_layer_is_rejected():
    with pytest.raises(ConfigError, match=r"Importance needs context\.last_layer"):
        kept(Importance(), some_memory_context(4, 4, 4))


@pytest.mark.parametrize("bad", [{"budget": 0.0}, {"budget": 1.01}, {"outlier": 0.0}], ids=str)
def test_invalid_parameters_are_rejected(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Importance(**bad)
