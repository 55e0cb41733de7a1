import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.theory import grid_importance, historical_mass, optimal_importance, psi
from theory.cases import distributions, rows

TWO_AND_TWO = [True, True, False, False]
EQUAL_FRESH = [0.1, 0.3, 0.3, 0.3]
UNEQUAL_FRESH = [0.2, 0.2, 0.4, 0.2]

ratios = st.floats(0.01, 20)


@st.composite
def client_shares(draw: st.DrawFn, max_clients: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Draw shares (some zero) and historical flags (possibly none or all)."""
    size = draw(st.integers(1, max_clients))
    historical = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    return draw(distributions(size)), historical


def solve_with_slsqp(shares, historical, ratio):
    """Solve the same program with the general solver SLSQP."""
    size = len(shares)

    def objective(p):  # psi without the checks, because SLSQP steps off the simplex
        return np.linalg.norm(p[~historical]) + ratio * np.linalg.norm(p / np.sqrt(shares))

    found = minimize(
        objective,
        shares,
        method="SLSQP",
        bounds=[(0, 1)] * size,
        constraints=[{"type": "eq", "fun": lambda p: p.sum() - 1}],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    p = np.clip(found.x, 0, 1)
    return p / p.sum()


# Worked examples of section 10


@pytest.mark.parametrize(
    ("shares", "ratio", "expected", "value"),
    [
        (EQUAL_FRESH, 0.4, [0.25, 0.75, 0, 0], 0.632456),
        (EQUAL_FRESH, 0.6, [0.186603, 0.559808, 0.126795, 0.126795], 0.914162),
        (EQUAL_FRESH, 1, [0.145227, 0.435680, 0.209547, 0.209547], 1.362347),
        (EQUAL_FRESH, 100, [0.100424, 0.301273, 0.299151, 0.299151], 100.423664),
        (UNEQUAL_FRESH, 0.7, [0.345855, 0.345855, 0.171112, 0.137178], 1.036677),
        (UNEQUAL_FRESH, 0.2, [0.5, 0.5, 0, 0], 0.2 / math.sqrt(0.4)),
    ],
)
def test_optimal_importance_matches_worked_examples(shares, ratio, expected, value):
    p = optimal_importance(shares, TWO_AND_TWO, ratio)
    np.testing.assert_allclose(p, expected, atol=1e-6)
    assert psi(p, shares, TWO_AND_TWO, ratio) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(
    ("ratio", "share", "expected"),
    [
        (0.150, 0.05, 0.1162),
        (0.150, 0.20, 0.4522),
        (0.150, 0.50, 0.9472),
        (0.284, 0.05, 0.0839),
        (0.284, 0.20, 0.3174),
        (0.284, 0.50, 0.6881),
    ],
)
def test_historical_mass_matches_the_tables_of_the_paper(ratio, share, expected):
    assert historical_mass(share, 25, ratio) == pytest.approx(expected, abs=5e-5)
    shares = np.repeat([share / 25, (1 - share) / 25], 25)
    p = optimal_importance(shares, np.arange(50) < 25, ratio)
    assert p[:25].sum() == pytest.approx(expected, abs=5e-5)


# Optimality


@pytest.mark.parametrize("seed", range(15))
def test_optimal_importance_matches_a_general_solver(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 9))
    shares = rng.dirichlet(np.full(size, 3.0))
    historical = np.arange(size) < rng.integers(0, size + 1)
    threshold = math.sqrt(shares[historical].sum() / max((~historical).sum(), 1))
    ratio = threshold * 1.2 + float(rng.uniform(0.1, 1))  # away from the kink, which stops SLSQP
    ours = optimal_importance(shares, historical, ratio)
    theirs = solve_with_slsqp(shares, historical, ratio)
    assert psi(ours, shares, historical, ratio) <= psi(theirs, shares, historical, ratio) + 1e-10
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@given(st.data(), client_shares(), ratios)
def test_no_other_importance_has_a_better_objective(data: st.DataObject, crowd, ratio):
    shares, historical = crowd
    p = optimal_importance(shares, historical, ratio)
    best = psi(p, shares, historical, ratio)
    rivals = [*np.eye(shares.size)[shares > 0], shares]
    rival = data.draw(rows(shares.size, 0, 1)) * (shares > 0) + 1e-6 * shares
    rivals += [rival / rival.sum()]
    for rival in rivals:
        for step in (1.0, 0.01, 1e-4):  # far away, and small steps in that direction
            moved = (1 - step) * p + step * rival
            assert best <= psi(moved, shares, historical, ratio) + 1e-12 * (1 + best)


@given(client_shares(), ratios)
def test_importance_lies_on_the_simplex_and_is_zero_without_samples(crowd, ratio):
    p = optimal_importance(*crowd, ratio)
    assert p.dtype == np.float64
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert not p[crowd[0] == 0].any()


@given(st.data(), client_shares(), ratios)
def test_importance_does_not_depend_on_client_order(data: st.DataObject, crowd, ratio):
    shares, historical = crowd
    order = np.array(data.draw(st.permutations(range(shares.size))))
    p = optimal_importance(shares, historical, ratio)
    shuffled = optimal_importance(shares[order], historical[order], ratio)
    np.testing.assert_allclose(shuffled, p[order], atol=1e-9)


@given(client_shares(), ratios)
def test_counts_give_the_same_importance_as_shares(crowd, ratio):
    shares, historical = crowd
    p = optimal_importance(shares, historical, ratio)
    np.testing.assert_allclose(optimal_importance(640 * shares, historical, ratio), p, atol=1e-12)


@given(
    st.floats(0.01, 0.99),
    st.integers(1, 9),
    st.integers(1, 3),
    st.floats(1e-3, 30, allow_nan=False),
)
def test_closed_form_matches_the_solver_for_equal_fresh_clients(share, fresh, old, ratio):
    shares = np.concatenate([np.full(old, share / old), np.full(fresh, (1 - share) / fresh)])
    p = optimal_importance(shares, np.arange(old + fresh) < old, ratio)
    assert p[:old].sum() == pytest.approx(historical_mass(share, fresh, ratio), abs=1e-9)


# Thresholds and limits


@given(client_shares())
def test_fresh_clients_have_zero_importance_up_to_the_threshold(crowd):
    shares, historical = crowd
    fresh = ~historical & (shares > 0)
    assume(fresh.any() and shares[historical].any())
    threshold = math.sqrt(shares[historical].sum() / fresh.sum())
    below = optimal_importance(shares, historical, threshold * (1 - 1e-9))
    np.testing.assert_allclose(below, grid_importance(shares, historical, "historical"), atol=1e-12)
    assert not below[fresh].any()
    above = optimal_importance(shares, historical, threshold * (1 + 1e-6))
    assert (above[fresh] > 0).all()
    assert above[fresh].sum() < 1e-3


def test_fresh_clients_without_samples_do_not_move_the_threshold():
    shares, historical = [0.4, 0.3, 0.3, 0], [True, False, False, False]
    assert optimal_importance(shares, historical, 0.44).tolist() == [1, 0, 0, 0]  # sqrt(.4 / 2)
    assert optimal_importance(shares, historical, 0.46)[1] > 0


@given(client_shares())
def test_large_ratio_gives_importance_equal_to_shares(crowd):
    shares, historical = crowd
    np.testing.assert_allclose(optimal_importance(shares, historical, 1e6), shares, atol=1e-6)
    for ratio in (1e16, 1e17, 1e300, math.inf):
        np.testing.assert_allclose(
            optimal_importance(shares, historical, ratio), shares, atol=1e-15
        )


@given(st.data(), st.integers(1, 7), st.floats(0, 20))
def test_importance_equals_shares_without_fresh_clients(data: st.DataObject, size, ratio):
    shares = data.draw(distributions(size))
    p = optimal_importance(shares, np.full(size, True), ratio)
    np.testing.assert_allclose(p, shares, atol=1e-15)


def test_importance_without_historical_clients_lies_between_equal_and_shares():
    shares, none_historical = np.array([0.6, 0.3, 0.1, 0.0]), np.full(4, False)
    equal = [1 / 3, 1 / 3, 1 / 3, 0]
    for ratio in (0.0, 1e-300, 1e-9):
        np.testing.assert_allclose(
            optimal_importance(shares, none_historical, ratio), equal, atol=1e-8
        )
    p = optimal_importance(shares, none_historical, 0.5)
    assert p[0] > p[1] > p[2] > 0.1
    assert p[0] < 0.6


@given(client_shares(), ratios, st.floats(1.0, 3.0))
def test_larger_ratio_never_increases_the_historical_mass(crowd, ratio, factor):
    shares, historical = crowd
    less = optimal_importance(shares, historical, ratio)[historical].sum()
    more = optimal_importance(shares, historical, ratio * factor)[historical].sum()
    assert more <= less + 1e-12


def test_optimal_importance_supports_20000_fresh_clients():
    shares = np.concatenate([[0.2], np.full(20_000, 0.8 / 20_000)])
    p = optimal_importance(shares, np.arange(20_001) < 1, 0.01)
    assert p[0] == pytest.approx(historical_mass(0.2, 20_000, 0.01), abs=1e-9)


# One-shot clients


@given(client_shares(), ratios, st.floats(0.05, 1))
def test_fresh_at_once_scales_the_ratio(crowd, ratio, part):
    shares, historical = crowd
    coming = int((~historical & (shares > 0)).sum())
    assume(coming > 0)
    p = optimal_importance(shares, historical, ratio, fresh_at_once=part * coming)
    scaled = optimal_importance(shares, historical, ratio * math.sqrt(part))
    np.testing.assert_allclose(p, scaled, atol=1e-7)
    all_at_once = optimal_importance(shares, historical, ratio, fresh_at_once=coming)
    np.testing.assert_array_equal(all_at_once, optimal_importance(shares, historical, ratio))


def test_fresh_at_once_reproduces_the_shakespeare_result_of_the_paper():
    shares = np.full(916, 1 / 916)  # section 5: 183 historical, 733 fresh, ratio .064
    historical = np.arange(916) < 183
    mass = optimal_importance(shares, historical, 0.064)[historical].sum()
    assert mass == pytest.approx(0.295, abs=2e-3)
    at_once = optimal_importance(shares, historical, 0.064, fresh_at_once=20)
    assert not at_once[~historical].any()  # as in its table


def test_too_large_fresh_at_once_is_rejected():
    with pytest.raises(
        ConfigError, match="fresh_at_once must be at most 2, the fresh clients, got 3"
    ):
        optimal_importance(EQUAL_FRESH, TWO_AND_TWO, 1, fresh_at_once=3)
    with pytest.raises(ConfigError, match="fresh_at_once must be positive"):
        optimal_importance(EQUAL_FRESH, TWO_AND_TWO, 1, fresh_at_once=0)


# psi


def test_psi_matches_a_hand_computed_value():
    # fresh part sqrt(.3^2 + .4^2) = .5; sum p^2/n = .09/.25 + (.09 + .16)/.375 = 1.026667
    value = psi([0.3, 0.3, 0.4], [0.25, 0.375, 0.375], [True, False, False], 2)
    assert value == pytest.approx(0.5 + 2 * math.sqrt(0.36 + 0.25 / 0.375), abs=1e-12)


def test_psi_is_infinite_for_importance_without_samples():
    assert psi([0.5, 0.5], [1, 0], [True, True], 0.1) == math.inf
    assert psi([1, 0], [1, 0], [True, True], 0.1) == pytest.approx(0.1)


# Given masses


@pytest.mark.parametrize(
    ("mass", "expected"),
    [
        ("uniform", [0.1, 0.3, 0.3, 0.3]),
        ("historical", [0.25, 0.75, 0, 0]),
        ("fresh", [0, 0, 0.5, 0.5]),
        (0.0, [0, 0, 0.5, 0.5]),
        (0.2, [0.05, 0.15, 0.4, 0.4]),
        (0.5, [0.125, 0.375, 0.25, 0.25]),
        (1, [0.25, 0.75, 0, 0]),
    ],
)
def test_grid_importance_supports_strategies_and_masses(mass, expected):
    np.testing.assert_allclose(
        grid_importance(EQUAL_FRESH, TWO_AND_TWO, mass), expected, atol=1e-12
    )


def test_mass_for_missing_clients_is_rejected():
    with pytest.raises(ConfigError, match=r"historical clients must have a mass of 0\.2"):
        grid_importance([1, 1], [False, False], 0.2)
    with pytest.raises(ConfigError, match="fresh clients must have a mass of 1"):
        grid_importance([1, 1, 0], [True, True, False], "fresh")
    assert grid_importance([1, 1], [False, False], "fresh").tolist() == [0.5, 0.5]
    assert grid_importance([1, 1], [False, False], "uniform").tolist() == [0.5, 0.5]


def test_unknown_strategies_are_rejected():
    with pytest.raises(UnknownName, match="Did you mean 'historical'"):
        grid_importance([1, 1], [True, False], "historic")
    with pytest.raises(ConfigError, match="mass must lie in"):
        grid_importance([1, 1], [True, False], 1.5)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"shares": [1.0, -1.0]}, "shares must be non-negative"),
        ({"shares": [0.0, 0.0]}, "shares must have a positive entry"),
        ({"shares": []}, "shares must be one non-empty row"),
        ({"historical": [1, 0]}, "historical must be 2 booleans, got int64"),
        ({"historical": [True]}, "historical must be 2 booleans"),
        ({"ratio": -0.1}, "ratio must be non-negative"),
        ({"ratio": float("nan")}, "ratio must be non-negative"),
    ],
)
def test_invalid_importance_inputs_are_rejected(bad, message):
    good = {"shares": [0.5, 0.5], "historical": [True, False], "ratio": 0.1}
    with pytest.raises(ConfigError, match=message):
        optimal_importance(**good | bad)
    with pytest.raises(ConfigError, match=message):
        psi([0.5, 0.5], **good | bad)


def test_historical_mass_is_correct_at_its_limits():
    assert historical_mass(0.0, 5, 0.1) == 0.0
    assert historical_mass(1.0, 5, 0.1) == 1.0
    assert historical_mass(0.2, 5, 0.2) == 1.0  # exactly at the threshold
    assert historical_mass(0.2, 5, 0.2 + 1e-9) == pytest.approx(1, abs=1e-6)
    assert historical_mass(0.2, 5, 1e9) == pytest.approx(0.2, abs=1e-8)
