import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.theory import dpcs_probabilities
from theory.cases import distributions

THIRD = np.full(3, 1 / 3)
HALF = [0.5, 0.5]
ONE_MIXED = [[1, 0, 0], [0, 1, 0], [0.2, 0.3, 0.5]]
EITHER_WAY = [[0.5, 0.5], [1, 0], [0, 1]]
SKEWED = [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]
ALL_ON_ONE_SIDE = [[0.6, 0.4], [0.9, 0.1], [0.7, 0.3]]


@st.composite
def crowds(draw: st.DrawFn, max_clients: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Label mixes, some with one class only, some alike; and a goal, often out of reach."""
    classes = draw(st.integers(1, 5))
    one_hot = st.integers(0, classes - 1).map(lambda c: np.eye(classes)[c])
    kinds = draw(st.lists(st.one_of(distributions(classes), one_hot), min_size=1, max_size=4))
    clients = st.lists(st.integers(0, len(kinds) - 1), min_size=1, max_size=max_clients)
    goal = draw(st.one_of(distributions(classes), one_hot, st.just(np.full(classes, 1 / classes))))
    return np.array([kinds[i] for i in draw(clients)]), goal


def objective(a, mixes, goal, ridge):
    return 0.5 * np.sum((a @ mixes - goal) ** 2) + 0.5 * ridge * np.sum(a**2)


def improvable(a, mixes, goal, ridge):
    """At least the distance of the objective from its minimum: it is convex."""
    slope = mixes @ (a @ mixes - goal) + ridge * a
    return a @ slope - slope.min()


def by_trying_everything(mixes, goal, ridge):
    """For each set of clients the optimum with sum one; the best of those without a negative."""
    n = len(mixes)
    best, value = None, math.inf
    for size in range(1, n + 1):
        for chosen in map(list, itertools.combinations(range(n), size)):
            own = mixes[chosen] - goal
            system = np.ones((size + 1, size + 1))
            system[:size, :size] = own @ own.T + ridge * np.eye(size)
            system[size, size] = 0
            a = np.zeros(n)
            a[chosen] = np.linalg.solve(system, np.append(np.zeros(size), 1.0))[:size]
            if a.min() >= -1e-12 and objective(a, mixes, goal, ridge) < value:
                best, value = a, objective(a, mixes, goal, ridge)
    return best


# Worked examples of section 7


def test_a_goal_that_one_mixture_attains():
    expected = [0.2, 0.133333, 0.666667]
    np.testing.assert_allclose(dpcs_probabilities(ONE_MIXED, THIRD, ridge=0), expected, atol=1e-6)
    np.testing.assert_allclose(dpcs_probabilities(ONE_MIXED, THIRD, norm="l1"), expected, atol=1e-6)
    ridged = dpcs_probabilities(ONE_MIXED, THIRD, ridge=0.001)
    np.testing.assert_allclose(ridged, [0.200568, 0.134102, 0.665330], atol=1e-6)


@pytest.mark.parametrize("ridge", [None, 0, 0.001, 1])
def test_mixes_that_are_permutations_of_each_other_share_equally(ridge):
    mixes = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    np.testing.assert_allclose(dpcs_probabilities(mixes, THIRD, ridge), THIRD, atol=1e-9)


@pytest.mark.parametrize("mixes", [EITHER_WAY, SKEWED])
def test_of_many_optima_the_ridge_takes_the_one_that_spreads(mixes):
    np.testing.assert_allclose(dpcs_probabilities(mixes, HALF), THIRD, atol=1e-9)
    np.testing.assert_allclose(dpcs_probabilities(mixes, HALF, ridge=0), THIRD, atol=1e-6)


def test_the_sum_of_absolute_differences_takes_a_corner():
    corner = dpcs_probabilities(EITHER_WAY, HALF, norm="l1")
    ends = [[0, 0.5, 0.5], [1, 0, 0]]
    assert min(np.abs(corner - end).max() for end in ends) < 1e-9
    corner = dpcs_probabilities(SKEWED, HALF, norm="l1")
    np.testing.assert_allclose(corner @ SKEWED, HALF, atol=1e-9)
    assert (corner > 1e-12).sum() == 2  # so that three could not be drawn


def test_a_goal_out_of_reach_may_leave_one_client():
    for a in (
        dpcs_probabilities(ALL_ON_ONE_SIDE, HALF),
        dpcs_probabilities(ALL_ON_ONE_SIDE, HALF, ridge=0),
        dpcs_probabilities(ALL_ON_ONE_SIDE, HALF, norm="l1"),
    ):
        np.testing.assert_allclose(a, [1, 0, 0], atol=1e-9)
        missed = a @ np.array(ALL_ON_ONE_SIDE) - HALF
        assert np.linalg.norm(missed) == pytest.approx(0.141421, abs=1e-6)
        assert np.abs(missed).sum() == pytest.approx(0.2, abs=1e-6)


# By hand


def test_two_clients_of_one_class_each():
    # minimise (a - .7)^2 + mu/2 (a^2 + (1 - a)^2): a = (1.4 + mu) / (2 + 2 mu)
    a = dpcs_probabilities([[1, 0], [0, 1]], [0.7, 0.3], ridge=0.1)
    np.testing.assert_allclose(a, [1.5 / 2.2, 0.7 / 2.2], atol=1e-12)


def test_one_client_is_always_drawn():
    for norm in ("l2", "l1"):
        assert dpcs_probabilities([[0.2, 0.8]], [1, 0], norm=norm).tolist() == [1.0]
    assert dpcs_probabilities([[1.0]], [1.0]).tolist() == [1.0]


def test_a_class_that_nobody_has_does_not_decide_among_the_others():
    mixes = [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    for ridge in (0, 1e-6):
        a = dpcs_probabilities(mixes, THIRD, ridge)
        np.testing.assert_allclose(a, [0.5, 0.25, 0.25], atol=1e-6)


def test_the_default_ridge_is_a_thousandth_of_the_mean_squared_norm():
    norms = (1 + 1 + 0.38) / 3
    given = dpcs_probabilities(ONE_MIXED, THIRD, ridge=1e-3 * norms)
    np.testing.assert_allclose(dpcs_probabilities(ONE_MIXED, THIRD), given, atol=1e-12)


def test_the_mean_of_all_clients_as_a_goal_changes_nothing():  # section 2.2
    mixes = np.random.default_rng(0).dirichlet(np.full(10, 0.1), 20)
    a = dpcs_probabilities(mixes, mixes.mean(0))
    np.testing.assert_allclose(a, 1 / 20, atol=1e-9)


def test_a_huge_ridge_draws_everybody_equally_often():
    np.testing.assert_allclose(dpcs_probabilities(SKEWED, [1, 0], ridge=1e9), THIRD, atol=1e-8)


# The optimum is one


@given(crowds(), st.floats(1e-4, 10))
def test_trying_all_sets_of_clients_gives_the_same(crowd, ridge):
    a = dpcs_probabilities(*crowd, ridge)
    np.testing.assert_allclose(a, by_trying_everything(*crowd, ridge), atol=1e-8)


@given(crowds(max_clients=30), st.sampled_from([None, 0, 1e-12, 1e-9, 1e-6, 1e-3, 1, 1e3]))
def test_the_result_is_optimal_to_the_promise_and_lies_on_the_simplex(crowd, ridge):
    mixes, goal = crowd
    a = dpcs_probabilities(mixes, goal, ridge)
    assert a.dtype == np.float64
    assert a.min() >= 0
    assert a.sum() == pytest.approx(1, abs=1e-12)
    mu = 1e-3 * np.mean(np.sum(mixes**2, axis=1)) if ridge is None else ridge
    assert improvable(a, mixes, goal, mu) <= 1e-8 * max(1, mu)
    if mu >= 1e-4:
        assert improvable(a, mixes, goal, mu) <= 1e-11 * max(1, mu)


@given(st.data(), crowds(), st.sampled_from([0, 1e-3, 0.1]), st.sampled_from(["l2", "l1"]))
def test_nobody_else_does_better(data: st.DataObject, crowd, ridge, norm):
    mixes, goal = crowd
    ridge = ridge if norm == "l2" else 0

    def value(a):
        if norm == "l1":
            return np.abs(a @ mixes - goal).sum()
        return objective(a, mixes, goal, ridge)

    best = value(dpcs_probabilities(mixes, goal, ridge, norm))
    rivals = [*np.eye(len(mixes)), data.draw(distributions(len(mixes)))]
    assert best <= min(map(value, rivals)) + 1e-8


@pytest.mark.parametrize("seed", range(5))
def test_a_general_solver_finds_the_same_probabilities(seed):
    rng = np.random.default_rng(seed)
    mixes, goal, ridge = rng.dirichlet(np.full(6, 0.3), 15), rng.dirichlet(np.full(6, 0.5)), 0.01
    found = minimize(
        objective,
        np.full(15, 1 / 15),
        args=(mixes, goal, ridge),
        method="SLSQP",
        bounds=[(0, 1)] * 15,
        constraints=[{"type": "eq", "fun": lambda a: a.sum() - 1}],
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    ours = dpcs_probabilities(mixes, goal, ridge)
    assert objective(ours, mixes, goal, ridge) <= found.fun + 1e-10
    np.testing.assert_allclose(ours, found.x, atol=1e-4)


@pytest.mark.parametrize("concentration", [0.02, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("goal", ["uniform", "one class", "a client's", "any"])
@pytest.mark.parametrize("ridge", [None, 0])
def test_two_thousand_clients(concentration, goal, ridge):
    rng = np.random.default_rng(3)
    mixes = rng.dirichlet(np.full(10, concentration), 2000)
    wish = {"uniform": np.full(10, 0.1), "one class": np.eye(10)[0], "a client's": mixes[0]}
    g = wish.get(goal, rng.dirichlet(np.full(10, 0.3)))
    a = dpcs_probabilities(mixes, g, ridge)
    mu = 1e-3 * np.mean(np.sum(mixes**2, axis=1)) if ridge is None else 0
    assert improvable(a, mixes, g, mu) <= (1e-12 if ridge is None else 1e-9)


def test_two_thousand_clients_and_absolute_differences():
    rng = np.random.default_rng(3)
    mixes = rng.dirichlet(np.full(10, 0.1), 2000)
    a = dpcs_probabilities(mixes, np.full(10, 0.1), norm="l1")
    assert (a > 0).sum() <= 11
    np.testing.assert_allclose(a @ mixes, 0.1, atol=1e-8)


# Who is who does not matter


@given(st.data(), crowds(), st.floats(1e-3, 1))
def test_the_order_of_clients_and_of_classes_does_not_matter(data: st.DataObject, crowd, ridge):
    mixes, goal = crowd
    clients = np.array(data.draw(st.permutations(range(len(mixes)))))
    classes = np.array(data.draw(st.permutations(range(len(goal)))))
    a = dpcs_probabilities(mixes, goal, ridge)
    shuffled = dpcs_probabilities(mixes[clients][:, classes], goal[classes], ridge)
    np.testing.assert_allclose(shuffled, a[clients], atol=1e-8)


@given(crowds(), st.floats(1e-3, 1))
def test_clients_with_the_same_mix_are_drawn_equally_often(crowd, ridge):
    mixes, goal = crowd
    a = dpcs_probabilities(np.vstack([mixes, mixes]), goal, ridge)
    np.testing.assert_allclose(a[: len(mixes)], a[len(mixes) :], atol=1e-8)


def test_more_classes_than_clients():
    rng = np.random.default_rng(0)
    mixes, goal = rng.dirichlet(np.full(40, 0.1), 3), np.full(40, 1 / 40)
    a = dpcs_probabilities(mixes, goal, ridge=0.01)
    np.testing.assert_allclose(a, by_trying_everything(mixes, goal, 0.01), atol=1e-9)


def test_what_was_rounded_to_32_bits_is_a_distribution_still():
    mixes = np.random.default_rng(0).dirichlet(np.full(10, 0.1), 20)
    a = dpcs_probabilities(mixes.astype(np.float32), np.full(10, 0.1, dtype=np.float32))
    np.testing.assert_allclose(a, dpcs_probabilities(mixes, np.full(10, 0.1)), atol=1e-4)


# Inputs


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"goal": [0.5, 0.6]}, r"goal must sum to one, got \[0.5, 0.6\], whose sum is 1.1"),
        ({"goal": [1.5, -0.5]}, "goal must be non-negative"),
        ({"goal": [1.0]}, "goal must have 2 entries, got 1"),
        ({"goal": [[0.5, 0.5]]}, "goal must be one non-empty row"),
        ({"distributions": [[1, 0], [1.5, -0.5]]}, r"non-negative. Row 1 is \[1.5, -0.5\]"),
        ({"distributions": [[1, 0], [0, float("nan")]]}, r"non-negative. Row 1 is \[0.0, nan\]"),
        (
            {"distributions": [[3, 1], [1, 0]]},
            r"sum to one; divide counts .* Row 0 is \[3.0, 1.0\]",
        ),
        ({"distributions": [[1, 0], [float("inf"), 0]]}, "sum to one.* Row 1"),
        (
            {"distributions": [[1, 0], [0, 0], [0, 0]]},
            "leave clients without data out. Row 1.*2 of 3",
        ),
        ({"distributions": [[]]}, r"a row per client and a column per class, got shape \(1, 0\)"),
        ({"distributions": []}, r"got shape \(0,\)"),
        ({"distributions": np.zeros((0, 2))}, r"got shape \(0, 2\)"),
        ({"distributions": [1, 0]}, r"got shape \(2,\)"),
        ({"distributions": [["a", "b"]]}, "distributions must hold numbers"),
        ({"ridge": -1}, "ridge must be non-negative"),
        ({"ridge": float("nan")}, "ridge must be non-negative"),
        ({"ridge": 0.1, "norm": "l1"}, 'a ridge needs norm="l2", got ridge=0.1'),
    ],
)
def test_impossible_inputs_are_refused(bad, message):
    good = {"distributions": [[1, 0], [0, 1]], "goal": [0.5, 0.5]}
    with pytest.raises(ConfigError, match=message):
        dpcs_probabilities(**good | bad)


def test_unknown_norms_are_refused():
    with pytest.raises(UnknownName, match="unknown norm 'l3'"):
        dpcs_probabilities([[1, 0]], [0.5, 0.5], norm="l3")
