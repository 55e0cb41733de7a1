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
def client_mixes(draw: st.DrawFn, max_clients: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Draw label mixes (some with one class, some equal) and a goal (often unattainable)."""
    classes = draw(st.integers(1, 5))
    one_hot = st.integers(0, classes - 1).map(lambda c: np.eye(classes)[c])
    kinds = draw(st.lists(st.one_of(distributions(classes), one_hot), min_size=1, max_size=4))
    clients = st.lists(st.integers(0, len(kinds) - 1), min_size=1, max_size=max_clients)
    goal = draw(st.one_of(distributions(classes), one_hot, st.just(np.full(classes, 1 / classes))))
    return np.array([kinds[i] for i in draw(clients)]), goal


def objective(a, mixes, goal, ridge):
    return 0.5 * np.sum((a @ mixes - goal) ** 2) + 0.5 * ridge * np.sum(a**2)


def suboptimality_bound(a, mixes, goal, ridge):
    """Upper bound on the distance of the convex objective from its minimum."""
    slope = mixes @ (a @ mixes - goal) + ridge * a
    return a @ slope - slope.min()


def solve_by_enumeration(mixes, goal, ridge):
    """Solve for every subset of clients; return the best solution without negative entries."""
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


def test_attainable_goal_matches_worked_example():
    expected = [0.2, 0.133333, 0.666667]
    np.testing.assert_allclose(dpcs_probabilities(ONE_MIXED, THIRD, ridge=0), expected, atol=1e-6)
    np.testing.assert_allclose(dpcs_probabilities(ONE_MIXED, THIRD, norm="l1"), expected, atol=1e-6)
    ridged = dpcs_probabilities(ONE_MIXED, THIRD, ridge=0.001)
    np.testing.assert_allclose(ridged, [0.200568, 0.134102, 0.665330], atol=1e-6)


@pytest.mark.parametrize("ridge", [None, 0, 0.001, 1])
def test_permuted_mixes_get_equal_probabilities(ridge):
    mixes = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
    np.testing.assert_allclose(dpcs_probabilities(mixes, THIRD, ridge), THIRD, atol=1e-9)


@pytest.mark.parametrize("mixes", [EITHER_WAY, SKEWED])
def test_ridge_selects_the_most_even_optimum(mixes):
    np.testing.assert_allclose(dpcs_probabilities(mixes, HALF), THIRD, atol=1e-9)
    np.testing.assert_allclose(dpcs_probabilities(mixes, HALF, ridge=0), THIRD, atol=1e-6)


def test_l1_norm_gives_a_corner_solution():
    corner = dpcs_probabilities(EITHER_WAY, HALF, norm="l1")
    ends = [[0, 0.5, 0.5], [1, 0, 0]]
    assert min(np.abs(corner - end).max() for end in ends) < 1e-9
    corner = dpcs_probabilities(SKEWED, HALF, norm="l1")
    np.testing.assert_allclose(corner @ SKEWED, HALF, atol=1e-9)
    assert (corner > 1e-12).sum() == 2  # so that three could not be drawn


def test_unattainable_goal_can_select_a_single_client():
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


def test_two_single_class_clients_match_the_closed_form():
    # minimise (a - .7)^2 + mu/2 (a^2 + (1 - a)^2): a = (1.4 + mu) / (2 + 2 mu)
    a = dpcs_probabilities([[1, 0], [0, 1]], [0.7, 0.3], ridge=0.1)
    np.testing.assert_allclose(a, [1.5 / 2.2, 0.7 / 2.2], atol=1e-12)


def test_single_client_has_probability_one():
    for norm in ("l2", "l1"):
        assert dpcs_probabilities([[0.2, 0.8]], [1, 0], norm=norm).tolist() == [1.0]
    assert dpcs_probabilities([[1.0]], [1.0]).tolist() == [1.0]


def test_class_without_clients_does_not_affect_other_probabilities():
    mixes = [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    for ridge in (0, 1e-6):
        a = dpcs_probabilities(mixes, THIRD, ridge)
        np.testing.assert_allclose(a, [0.5, 0.25, 0.25], atol=1e-6)


def test_default_ridge_is_one_thousandth_of_the_mean_squared_norm():
    norms = (1 + 1 + 0.38) / 3
    given = dpcs_probabilities(ONE_MIXED, THIRD, ridge=1e-3 * norms)
    np.testing.assert_allclose(dpcs_probabilities(ONE_MIXED, THIRD), given, atol=1e-12)


def test_goal_equal_to_the_mean_mix_gives_uniform_probabilities():  # section 2.2
    mixes = np.random.default_rng(0).dirichlet(np.full(10, 0.1), 20)
    a = dpcs_probabilities(mixes, mixes.mean(0))
    np.testing.assert_allclose(a, 1 / 20, atol=1e-9)


def test_huge_ridge_gives_uniform_probabilities():
    np.testing.assert_allclose(dpcs_probabilities(SKEWED, [1, 0], ridge=1e9), THIRD, atol=1e-8)


# Optimality


@given(client_mixes(), st.floats(1e-4, 10))
def test_dpcs_matches_enumeration_of_all_subsets(crowd, ridge):
    a = dpcs_probabilities(*crowd, ridge)
    np.testing.assert_allclose(a, solve_by_enumeration(*crowd, ridge), atol=1e-8)


@given(client_mixes(max_clients=30), st.sampled_from([None, 0, 1e-12, 1e-9, 1e-6, 1e-3, 1, 1e3]))
def test_dpcs_result_lies_on_the_simplex_and_meets_its_tolerance(crowd, ridge):
    mixes, goal = crowd
    a = dpcs_probabilities(mixes, goal, ridge)
    assert a.dtype == np.float64
    assert a.min() >= 0
    assert a.sum() == pytest.approx(1, abs=1e-12)
    mu = 1e-3 * np.mean(np.sum(mixes**2, axis=1)) if ridge is None else ridge
    assert suboptimality_bound(a, mixes, goal, mu) <= 1e-8 * max(1, mu)
    if mu >= 1e-4:
        assert suboptimality_bound(a, mixes, goal, mu) <= 1e-11 * max(1, mu)


@given(st.data(), client_mixes(), st.sampled_from([0, 1e-3, 0.1]), st.sampled_from(["l2", "l1"]))
def test_no_other_probabilities_have_a_better_objective(data: st.DataObject, crowd, ridge, norm):
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
def test_dpcs_matches_a_general_solver(seed):
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
def test_dpcs_is_optimal_for_2000_clients(concentration, goal, ridge):
    rng = np.random.default_rng(3)
    mixes = rng.dirichlet(np.full(10, concentration), 2000)
    wish = {"uniform": np.full(10, 0.1), "one class": np.eye(10)[0], "a client's": mixes[0]}
    g = wish.get(goal, rng.dirichlet(np.full(10, 0.3)))
    a = dpcs_probabilities(mixes, g, ridge)
    mu = 1e-3 * np.mean(np.sum(mixes**2, axis=1)) if ridge is None else 0
    assert suboptimality_bound(a, mixes, g, mu) <= (1e-12 if ridge is None else 1e-9)


def test_dpcs_l1_is_optimal_for_2000_clients():
    rng = np.random.default_rng(3)
    mixes = rng.dirichlet(np.full(10, 0.1), 2000)
    a = dpcs_probabilities(mixes, np.full(10, 0.1), norm="l1")
    assert (a > 0).sum() <= 11
    np.testing.assert_allclose(a @ mixes, 0.1, atol=1e-8)


# Symmetries


@given(st.data(), client_mixes(), st.floats(1e-3, 1))
def test_dpcs_does_not_depend_on_client_and_class_order(data: st.DataObject, crowd, ridge):
    mixes, goal = crowd
    clients = np.array(data.draw(st.permutations(range(len(mixes)))))
    classes = np.array(data.draw(st.permutations(range(len(goal)))))
    a = dpcs_probabilities(mixes, goal, ridge)
    shuffled = dpcs_probabilities(mixes[clients][:, classes], goal[classes], ridge)
    np.testing.assert_allclose(shuffled, a[clients], atol=1e-8)


@given(client_mixes(), st.floats(1e-3, 1))
def test_clients_with_equal_mixes_get_equal_probabilities(crowd, ridge):
    mixes, goal = crowd
    a = dpcs_probabilities(np.vstack([mixes, mixes]), goal, ridge)
    np.testing.assert_allclose(a[: len(mixes)], a[len(mixes) :], atol=1e-8)


def test_dpcs_supports_more_classes_than_clients():
    rng = np.random.default_rng(0)
    mixes, goal = rng.dirichlet(np.full(40, 0.1), 3), np.full(40, 1 / 40)
    a = dpcs_probabilities(mixes, goal, ridge=0.01)
    np.testing.assert_allclose(a, solve_by_enumeration(mixes, goal, 0.01), atol=1e-9)


def test_float32_distributions_are_accepted():
    mixes = np.random.default_rng(0).dirichlet(np.full(10, 0.1), 20)
    a = dpcs_probabilities(mixes.astype(np.float32), np.full(10, 0.1, dtype=np.float32))
    np.testing.assert_allclose(a, dpcs_probabilities(mixes, np.full(10, 0.1)), atol=1e-4)


# Invalid inputs


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
def test_invalid_dpcs_inputs_are_rejected(bad, message):
    good = {"distributions": [[1, 0], [0, 1]], "goal": [0.5, 0.5]}
    with pytest.raises(ConfigError, match=message):
        dpcs_probabilities(**good | bad)


def test_unknown_norms_are_rejected():
    with pytest.raises(UnknownName, match="unknown norm 'l3'"):
        dpcs_probabilities([[1, 0]], [0.5, 0.5], norm="l3")
