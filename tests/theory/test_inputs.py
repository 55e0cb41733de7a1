import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.theory import inputs

BAD_NUMBERS = [float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize("bad", BAD_NUMBERS)
@pytest.mark.parametrize(
    "check", [inputs.vector, inputs.nonnegative, inputs.fractions, inputs.distribution]
)
def test_non_finite_vectors_are_rejected(check, bad):
    with pytest.raises(ConfigError, match="weights must"):
        check([0.5, bad], "weights")


@pytest.mark.parametrize("bad", BAD_NUMBERS)
@pytest.mark.parametrize(
    "check", [inputs.number, inputs.at_least_zero, inputs.positive, inputs.share]
)
def test_non_finite_numbers_are_rejected(check, bad):
    with pytest.raises(ConfigError, match="noise must"):
        check(bad, "noise")


def test_error_messages_state_expected_and_actual_values():
    with pytest.raises(ConfigError, match=r"probs must be non-negative and finite, got \[0.5, -1"):
        inputs.distribution([0.5, -1.0], "probs")
    with pytest.raises(ConfigError, match=r"budget must lie in \(0, 1\], got 1.5"):
        inputs.share(1.5, "budget")
    with pytest.raises(ConfigError, match="ratios must have 3 entries, got 2"):
        inputs.fractions([0.5, 0.5], "ratios", 3)
    with pytest.raises(ConfigError, match=r"got shape \(1, 2\)"):
        inputs.vector([[1.0, 2.0]], "scores")
    with pytest.raises(UnknownName, match="Did you mean 'zero'"):
        inputs.one_of("zeros", ("extend", "zero"), "rule")


def test_long_vectors_are_shortened_in_error_messages():
    with pytest.raises(ConfigError) as caught:
        inputs.nonnegative(np.full(10_000, -1.0), "counts")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("bad", ["0.5", None, [0.5], 1j])
def test_text_and_lists_are_rejected_as_numbers(bad):
    with pytest.raises(ConfigError, match="must be a number"):
        inputs.number(bad, "slope")


def test_non_numeric_and_empty_vectors_are_rejected():
    with pytest.raises(ConfigError, match="probs must hold numbers"):
        inputs.distribution(["many", "few"], "probs")
    with pytest.raises(ConfigError, match="one non-empty row"):
        inputs.distribution([], "probs")


@pytest.mark.parametrize("bad", [0, -3, 2.0, "2", None])
def test_counts_must_be_positive_integers(bad):
    with pytest.raises(ConfigError, match="ticks must be"):
        inputs.count(bad, "ticks")


def test_numpy_scalars_are_accepted():
    assert inputs.count(np.int64(3), "ticks") == 3
    assert inputs.share(np.float32(0.5), "budget") == 0.5


@pytest.mark.parametrize("bad", [-1, 3, 1.0])
def test_invalid_positions_are_rejected(bad):
    with pytest.raises(ConfigError, match="state must"):
        inputs.position(bad, "state", 3)


def test_scalar_budget_applies_to_all_clients():
    assert inputs.shares(0.5, "budgets", 3).tolist() == [0.5, 0.5, 0.5]
    assert inputs.shares([0.1, 0.2], "budgets", 2).tolist() == [0.1, 0.2]
    with pytest.raises(ConfigError, match=r"must lie in \(0, 1\]"):
        inputs.shares([0.1, 0.0], "budgets", 2)


def test_overflowing_and_zero_probability_sums_are_rejected():
    with pytest.raises(ConfigError, match="finite"):
        inputs.distribution([1e308, 1e308], "probs")
    with pytest.raises(ConfigError, match="2 zeros"):
        inputs.distribution([0.0, 0.0], "probs")


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=9).filter(any))
def test_distribution_sums_to_one_and_leaves_its_input_unchanged(raw):
    given_row = np.array(raw)
    before = given_row.copy()
    result = inputs.distribution(given_row, "probs")
    assert result.sum() == pytest.approx(1, abs=1e-12)
    assert not np.shares_memory(result, given_row)
    assert (given_row == before).all()


def test_probabilities_must_sum_to_one_up_to_rounding():
    rounded = inputs.probabilities([0.3, 0.7 + 5e-7], "goal")
    assert rounded.sum() == pytest.approx(1, abs=1e-15)
    with pytest.raises(
        ConfigError, match=r"goal must sum to one, got \[0.3, 0.6\], whose sum is 0.9"
    ):
        inputs.probabilities([0.3, 0.6], "goal")
    with pytest.raises(ConfigError, match="goal must be non-negative"):
        inputs.probabilities([1.5, -0.5], "goal")


def test_mask_accepts_only_booleans():
    assert inputs.mask([True, False], "historical", 2).tolist() == [True, False]
    for bad in ([1, 0], [True], [[True, False]], []):
        with pytest.raises(ConfigError, match="historical must be 2 booleans"):
            inputs.mask(bad, "historical", 2)
