import numpy as np
import pytest

from contracts.examples import some_memory_context
from thalweg.core.types import LastLayer
from thalweg.memory import Ode
from thalweg.memory.ode import (
    GlobalGradient,
    LocalGradient,
    add_samples,
    correct_estimate,
    keep_most_valuable,
    sample_values,
)

Z = np.array([2.0, 1.0, 0.0])
ERROR = np.exp(Z) / np.exp(Z).sum() - np.array([1, 0, 0])
G = np.array([[0.1, 0.2, 0], [-0.1, 0, 0.1], [0, -0.2, -0.1]])


def test_the_value_of_a_sample_is_its_gradient_times_the_global_gradient():
    last_layer = LastLayer(ERROR[None], np.array([[1.0, 2.0]]))
    assert sample_values(last_layer, G.ravel())[0] == pytest.approx(-0.212395, abs=1e-6)


def test_without_a_global_gradient_all_values_are_zero():
    assert sample_values(LastLayer(ERROR[None], np.array([[1.0, 2.0]])), None).tolist() == [0.0]


def test_the_server_adds_the_change_of_an_upload_to_its_estimate():
    server_state = GlobalGradient(
        2,
        np.array([0.2, 0.1], dtype="f4"),
        np.array([7]),
        np.array([[0.1, 0.1]], dtype="f4"),
    )
    after = correct_estimate(server_state, np.array([7]), np.array([[0.4, 0.0]], dtype="f4"))
    assert after.mean.tolist() == pytest.approx([0.35, 0.05])
    assert after.last.tolist() == [[pytest.approx(0.4), 0.0]]


def test_the_local_gradient_is_the_running_mean_over_samples():
    state = Ode().init(4, 4)
    for gradient in ([1.0, 0.0], [0.0, 1.0], [2.0, 2.0]):
        # one class and one feature: the gradient is error x (feature, 1)
        error = gradient[1] or 1.0
        last_layer = LastLayer(np.array([[error]]), np.array([[gradient[0] / error]]))
        state = add_samples(state, last_layer)
        if gradient == [1.0, 0.0]:
            state = LocalGradient(np.array(gradient, dtype="f4"), 1)
    assert state.mean.tolist() == pytest.approx([1.0, 1.0])
    assert state.num == 3


def test_an_upload_restarts_the_running_mean():
    state, uploads = Ode().upload(LocalGradient(np.array([1.0, 2.0], dtype="f4"), 5))
    assert uploads["gradient"].tolist() == [1.0, 2.0]
    fresh = add_samples(state, LastLayer(np.array([[3.0]]), np.array([[2.0]])))
    assert fresh.mean.tolist() == [6.0, 3.0]
    assert fresh.num == 1


@pytest.mark.parametrize(
    ("values", "labels", "capacity", "kept"),
    [
        ([1, 5, 3, 0, 3.5, 4], [0] * 6, 3, [1, 4, 5]),  # the three highest values
        ([1, 5, 1, 4], [0] * 4, 3, [1, 2, 3]),  # of the two ones, the newest
        ([9, 8, 7, 6, 1, 2], [0, 0, 0, 0, 1, 1], 4, [0, 1, 4, 5]),  # two of each class
        ([9, 8, 7, 6, 1], [0, 0, 0, 0, 1], 4, [0, 1, 2, 4]),  # a free slot goes to the other class
        ([1, 2], [0, 3], 5, [0, 1]),  # everything fits
    ],
)
def test_the_most_valuable_samples_of_each_class_stay(values, labels, capacity, kept):
    found = keep_most_valuable(np.array(values, dtype=float), np.array(labels), capacity)
    assert found.tolist() == kept


def context_of(values, labels, *, held, capacity):
    """Return a context of samples with these values under the global gradient (0, 1)."""
    errors = np.array(values, dtype=float)[:, None]
    return some_memory_context(capacity, held, len(values) - held)._replace(
        last_layer=LastLayer(errors, np.zeros((len(values), 1))),
        held_labels=np.array(labels[:held], dtype=np.int64),
        new_labels=np.array(labels[held:], dtype=np.int64),
        broadcast={"gradient": np.array([0.0, 1.0], dtype="f4")},
    )


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (Ode(), [0, 2, 4, 5]),  # of both classes two, of equal values the newest
        (Ode(quotas="none"), [0, 1, 2, 3]),  # the four highest values
        (Ode(pool="new"), [3, 4, 5, 6]),  # of the new samples, of both classes two
        (Ode(pool="new", quotas="none"), [3, 4, 5, 7]),
    ],
)
def test_quotas_and_pool_determine_which_samples_compete(policy, kept):
    values, labels = [9, 8, 8, 7, 2, 3, 0, 1], [0, 0, 0, 0, 1, 1, 1, 0]
    if policy.pool == "new":
        labels = [0, 0, 0, 0, 0, 1, 1, 0]
    context = context_of(values, labels, held=3, capacity=4)
    assert policy.keep(policy.init(4, 3), context, np.random.default_rng(0))[1].tolist() == kept


@pytest.mark.parametrize("pool", ["all", "new"])
def test_a_tick_without_arrivals_changes_nothing(pool):
    policy = Ode(pool=pool)
    before = LocalGradient(np.array([1.0, 2.0], dtype="f4"), 5)
    after, kept = policy.keep(
        before, context_of([1, 2], [0, 1], held=2, capacity=2), np.random.default_rng(0)
    )
    assert kept.tolist() == [0, 1]
    assert after is before


def test_discarded_samples_count_in_the_local_gradient():
    """The mean is over all arrivals: (9 + 1) / 2, of which one is kept."""
    context = context_of([9, 1], [0, 0], held=0, capacity=1)
    state, kept = Ode().keep(Ode().init(1, 0), context, np.random.default_rng(0))
    assert kept.tolist() == [0]
    assert state.mean.tolist() == [0.0, 5.0]
    assert state.num == 2


def test_the_server_broadcasts_nothing_before_the_first_upload():
    server_state = Ode().init_server(3, 10)
    assert Ode().broadcast(server_state, np.array([0])) == {}
    server_state = Ode().collect(
        server_state, np.array([1]), {"gradient": np.array([[3.0, 6.0]], dtype="f4")}
    )
    assert Ode().broadcast(server_state, np.array([0, 2]))["gradient"].tolist() == [[1.0, 2.0]] * 2


def test_empty_uploads_leave_the_estimate_unchanged() -> None:
    empty = {"gradient": np.empty((2, 0), dtype="f4")}
    server_state = Ode().collect(Ode().init_server(3, 10), np.array([0, 1]), empty)
    assert Ode().broadcast(server_state, np.array([0])) == {}
    server_state = Ode().collect(
        server_state, np.array([1]), {"gradient": np.array([[3.0, 6.0]], dtype="f4")}
    )
    assert Ode().collect(server_state, np.array([0, 2]), empty).mean.tolist() == [1.0, 2.0]


def test_the_participants_estimate_is_the_mean_of_the_last_uploads() -> None:
    policy = Ode(estimate="participants")
    gradients = np.array([[1.0, 0.0], [3.0, 6.0]], dtype="f4")
    server_state = policy.collect(
        policy.init_server(30, 10), np.array([4, 9]), {"gradient": gradients}
    )
    assert policy.broadcast(server_state, np.array([0]))["gradient"].tolist() == [[2.0, 3.0]]
    assert (
        policy.collect(server_state, np.array([1]), {"gradient": np.empty((1, 0), dtype="f4")})
        == server_state
    )


def test_a_global_gradient_of_another_size_is_ignored() -> None:
    last_layer = LastLayer(np.ones((2, 3), dtype=np.float32), np.ones((2, 4), dtype=np.float32))
    assert sample_values(last_layer, np.ones(16, dtype=np.float32)).tolist() == [0, 0]
    assert sample_values(last_layer, np.ones(15, dtype=np.float32)).tolist() == [15, 15]
