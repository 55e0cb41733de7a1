import numpy as np

from contracts.examples import some_outlook
from thalweg.core.types import MemoryContext
from thalweg.memory import Never


def keep(held, new, capacity=4):
    labels = np.zeros(held, int), np.zeros(new, int)
    intake = MemoryContext(capacity, held, new, 0, *labels, some_outlook())
    return Never().keep(None, intake, np.random.default_rng(0))[
        1
    ].tolist(), Never().predict_renewal(None, intake)


def test_free_places_are_filled_in_the_order_of_arrival():
    assert keep(held=1, new=2)[0] == [0, 1, 2]
    assert keep(held=3, new=9)[0] == [0, 1, 2, 3]


def test_a_full_memory_never_changes():
    kept, renewal = keep(held=4, new=9)
    assert kept == [0, 1, 2, 3]
    assert renewal.tolist() == [0, 0, 0]


def test_what_it_will_renew_is_what_still_fits():
    assert keep(held=3, new=9)[1].tolist() == [0.25] * 3
