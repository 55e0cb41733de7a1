import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.theory import dds_ratios, kernel_mismatch, long_run_mixture, mismatch, mixture_step
from theory.cases import SPREAD, THIRDS, Case, cases

PROBS = (0.5, 0.3, 0.2)


def test_long_run_mixture_matches_worked_example():  # worked example 14.14
    ratios = dds_ratios(PROBS, THIRDS, SPREAD, 0.5, 0.15, 0.25)
    held = long_run_mixture(PROBS, ratios, 0.5)
    np.testing.assert_allclose(held, [0.535193, 0.331402, 0.133406], atol=1e-6)


def test_simulated_memory_converges_to_the_long_run_mixture():
    ratios = dds_ratios(PROBS, THIRDS, SPREAD, 0.5, 0.15, 0.25)
    rng = np.random.default_rng(5)
    num_chains, num_ticks, burn_in = 20_000, 80, 30
    states = rng.choice(3, size=(num_ticks, num_chains), p=PROBS)
    held, total = np.full((num_chains, 3), 1 / 3), np.zeros(3)
    for tick in range(num_ticks):
        a = ratios[states[tick]][:, None]  # (num_chains, 1)
        held = (1 - a) * held + a * np.eye(3)[states[tick]]
        if tick >= burn_in:
            total += held.mean(axis=0)
    # Standard deviation of a mean over a million correlated ticks: about 0.0005.
    np.testing.assert_allclose(
        total / (num_ticks - burn_in), long_run_mixture(PROBS, ratios, 0.5), atol=0.003
    )


def test_mixture_step_matches_hand_computed_values():
    assert mixture_step([0.5, 0.3, 0.2], 2, 0.5).tolist() == pytest.approx([0.25, 0.15, 0.6])
    assert mixture_step([0.5, 0.5], 0, 0.0).tolist() == [0.5, 0.5]
    assert mixture_step([0.5, 0.5], 0, 1.0).tolist() == [1.0, 0.0]


def test_mixture_step_leaves_its_input_unchanged():
    before = np.array([0.5, 0.5])
    mixture_step(before, 0, 0.5)
    assert before.tolist() == [0.5, 0.5]


@given(cases())
def test_long_run_mixture_is_a_fixed_point_of_the_mean_step(case: Case):
    ratios = dds_ratios(*case, slope=0.15, offset=0.25)
    held = long_run_mixture(case.probs, ratios, case.budget)
    # The renewed share depends on the state drawn, not on what is held: means multiply.
    after = (1 - case.probs @ ratios) * held + case.probs * ratios
    np.testing.assert_allclose(after, held, atol=1e-12)
    assert held.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    "bad", [{"state": 2}, {"state": -1}, {"ratio": 1.1}, {"ratio": -0.1}, {"mixture": [0.0, 0.0]}]
)
def test_invalid_mixture_steps_are_rejected(bad):
    with pytest.raises(ConfigError):
        mixture_step(**{"mixture": [0.5, 0.5], "state": 0, "ratio": 0.5} | bad)


def test_kernel_mismatch_matches_worked_example():  # worked example 14.15
    similar = [[1, 0.5], [0.5, 1]]
    assert kernel_mismatch([0.7, 0.3], [0.5, 0.5], similar) == pytest.approx(0.04, abs=1e-12)
    assert kernel_mismatch([0.7, 0.3], [0.5, 0.5], np.eye(2)) == pytest.approx(0.08, abs=1e-12)


def test_identical_states_have_zero_kernel_mismatch():
    assert kernel_mismatch([1.0, 0.0], [0.0, 1.0], np.ones((2, 2))) == 0


@given(cases(), st.data())
def test_identity_kernel_gives_the_plain_mismatch(case: Case, data: st.DataObject):
    size = len(case.probs)
    ratios = np.array(data.draw(st.lists(st.floats(0, 1), min_size=size, max_size=size)))
    held = long_run_mixture(case.probs, ratios, case.budget)  # need not sum to 1
    plain = mismatch(case.probs, ratios, case.importance, case.budget)
    assert kernel_mismatch(held, case.importance, np.eye(size)) == pytest.approx(plain)


@pytest.mark.parametrize(
    ("gram", "message"),
    [
        (np.eye(3), "shape"),
        ([[1, 0.5], [0.4, 1]], "symmetric"),
        ([[1, float("nan")], [float("nan"), 1]], "finite"),
        (-np.eye(2), "semi-definite"),
    ],
)
def test_invalid_gram_matrices_are_rejected(gram, message):
    with pytest.raises(ConfigError, match=message):
        kernel_mismatch([0.7, 0.3], [0.5, 0.5], gram)
