import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError
from thalweg.local import (
    DECAYS,
    CosineDecay,
    LocalTraining,
    PolynomialDecay,
    StepwiseDecay,
    Warmup,
)


def test_the_learning_rate_follows_the_polynomial():
    local = LocalTraining(lr=0.001, steps=5, decay=PolynomialDecay(power=0.9, floor=0.6, rounds=50))
    rates = [local.lr * local.lr_scale(age) for age in (0, 1, 25, 49)]
    assert rates == pytest.approx([0.001, 0.000992793, 0.000814355, 0.000611830], abs=1e-9)


def test_after_the_last_round_the_rate_stays_at_the_floor():
    decay = PolynomialDecay(floor=0.25, rounds=4)
    assert [decay.factor(age) for age in (4, 5, 1000)] == [0.25, 0.25, 0.25]


def test_without_a_decay_the_learning_rate_is_constant():
    assert [LocalTraining(lr=0.1, steps=1).lr_scale(age) for age in (0, 7)] == [1.0, 1.0]


@given(
    power=st.floats(0.1, 5),
    floor=st.floats(0, 1),
    rounds=st.integers(1, 100),
    age=st.integers(0, 200),
)
def test_the_factor_falls_from_one_to_the_floor(power, floor, rounds, age):
    decay = PolynomialDecay(power, floor, rounds)
    assert decay.factor(0) == pytest.approx(1.0)
    assert floor - 1e-12 <= decay.factor(age + 1) <= decay.factor(age) + 1e-12 <= 1 + 1e-9


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("power", 0.0, "power must be positive"),
        ("floor", 1.5, r"floor must lie in \[0, 1\]"),
        ("rounds", 0, "rounds must be at least 1"),
    ],
)
def test_invalid_parameters_are_rejected(field, value, message):
    with pytest.raises(ConfigError, match=message):
        PolynomialDecay(**{field: value})


def test_the_decay_can_be_set_by_overrides():
    local = with_overrides(
        LocalTraining(lr=0.1, steps=1), ["decay=polynomial", "decay.rounds=7", "decay.floor=0.5"]
    )
    assert local.decay == PolynomialDecay(floor=0.5, rounds=7)
    assert with_overrides(local, ["decay=none"]).decay is None
    with pytest.raises(ConfigError, match="First choose one, such as decay='polynomial'"):
        with_overrides(LocalTraining(lr=0.1, steps=1), ["decay.rounds=7"])


def test_the_decay_survives_a_round_trip_through_a_dict():
    local = LocalTraining(lr=0.1, steps=1, decay=PolynomialDecay(rounds=7))
    plain = to_dict(local)
    assert plain["decay"] == {"kind": "polynomial", "power": 0.9, "floor": 0.6, "rounds": 7}
    assert from_dict(LocalTraining, plain) == local
    assert from_dict(LocalTraining, to_dict(LocalTraining(lr=0.1, steps=1))) == LocalTraining(
        lr=0.1, steps=1
    )
    with pytest.raises(ConfigError, match="decay"):
        from_dict(LocalTraining, {**plain, "decay": "polynom"})


@pytest.mark.parametrize(
    ("decay", "factors"),
    [
        (CosineDecay(rounds=4), [1.0, 0.853553, 0.5, 0.146447, 0.0, 0.0]),
        (CosineDecay(rounds=2, floor=0.2), [1.0, 0.6, 0.2, 0.2, 0.2, 0.2]),
        (StepwiseDecay(every=2, gamma=0.1), [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]),
        (StepwiseDecay(every=1, gamma=0.5), [1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125]),
        (Warmup(rounds=2, start=0.5), [0.5, 0.75, 1.0, 1.0, 1.0, 1.0]),
        (
            Warmup(rounds=2, start=0.1, then=CosineDecay(rounds=2)),
            [0.1, 0.55, 1.0, 0.5, 0.0, 0.0],
        ),
    ],
    ids=repr,
)
def test_the_factors_of_a_schedule_by_hand(decay, factors):
    assert [decay.factor(age) for age in range(6)] == pytest.approx(factors, abs=1e-6)


@pytest.mark.parametrize("decay", [*(cls() for cls in DECAYS.values())], ids=repr)
def test_factors_are_pure_and_between_zero_and_one(decay):
    factors = [decay.factor(age) for age in range(200)]
    assert factors == [decay.factor(age) for age in range(200)]
    assert all(0 <= factor <= 1 for factor in factors)


def test_a_warmup_is_followed_by_another_schedule():
    local = with_overrides(
        LocalTraining(lr=0.1, steps=1),
        ["decay=warmup", "decay.rounds=3", "decay.then=cosine", "decay.then.rounds=9"],
    )
    assert local.decay == Warmup(rounds=3, then=CosineDecay(rounds=9))
    assert from_dict(LocalTraining, to_dict(local)) == local
    assert Warmup(then="cosine") == Warmup(then=CosineDecay())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CosineDecay(rounds=0), "rounds must be at least 1"),
        (lambda: CosineDecay(floor=2), "floor must lie in"),
        (lambda: CosineDecay(floor=float("nan")), "floor must lie in"),
        (lambda: StepwiseDecay(every=0), "every must be at least 1"),
        (lambda: StepwiseDecay(gamma=0), "gamma must lie in"),
        (lambda: StepwiseDecay(gamma=1.5), "gamma must lie in"),
        (lambda: Warmup(rounds=0), "rounds must be at least 1"),
        (lambda: Warmup(start=0), "start must lie in"),
        (lambda: Warmup(then="cosin"), "Did you mean 'cosine'"),
    ],
)
def test_invalid_schedules_are_rejected(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
