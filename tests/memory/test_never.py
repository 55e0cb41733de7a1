import numpy as np

from contracts.examples import some_outlook
from thalweg.core.types import MemoryContext
from thalweg.memory import Never


def keep(held, new, capacity=4):
    """Return the kept positions and the predicted renewal."""
    labels = np.zeros(held, int), np.zeros(new, int)
    context = MemoryContext(capacity, held, new, 0, *labels, some_outlook())
    _, kept = Never().keep(None, context, np.random.default_rng(0))
    return kept.tolist(), Never().predict_renewal(None, context)


def test_free_slots_are_filled_in_order_of_arrival():
    assert keep(held=1, new=2)[0] == [0, 1, 2]
    assert keep(held=3, new=9)[0] == [0, 1, 2, 3]


def test_a_full_memory_never_changes():
    kept, renewal = keep(held=4, new=9)
    assert kept == [0, 1, 2, 3]
    assert renewal.tolist() == [0, 0, 0]


def test_the_predicted_renewal_is_the_share_of_filled_free_slots():
    assert keep(held=3, new=9)[1].tolist() == [0.25] * 3
