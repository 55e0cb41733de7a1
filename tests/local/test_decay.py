import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError
from thalweg.local import LocalTraining, PolynomialDecay


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
    with pytest.raises(ConfigError, match="First choose one, such as --set decay=polynomial"):
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
