import numpy as np
import pytest

from thalweg.aggregation import Adaptive, Averaged, FedAcg, FedAvgM, FedExp, HasEvalModel
from thalweg.core.errors import ConfigError

ZERO = np.zeros(1, dtype=np.float32)
ONE = np.ones((1, 1), dtype=np.float32)


def play(rule, updates, round_weights=None):
    """Return the state and the model after some updates of one parameter."""
    state, model = rule.init(1), ZERO
    for index, update in enumerate(updates):
        if round_weights is not None:
            state = rule.set_round_weight(state, round_weights[index])
        state, model = rule.step(state, model, update * ONE, np.ones(1))
    return state, model


def test_average_has_the_models_before_each_step_with_equal_weights():
    rule = Averaged()
    state, model = play(rule, [1, 2, 5])  # the models are 0, 1, 3, and then 8
    assert model.tolist() == [8.0]
    assert rule.eval_model(state, model).tolist() == pytest.approx([4 / 3])


def test_rounds_count_by_their_total_weight():
    rule = Averaged()
    state, model = play(rule, [1, 2, 5], round_weights=[5.0, 1.0, 2.0])
    assert rule.eval_model(state, model).tolist() == pytest.approx([(1 * 1 + 2 * 3) / 8])


def test_late_rounds_count_more_with_a_positive_power():
    rule = Averaged(power=2.0)
    state, model = play(rule, [1, 2, 5])  # weights 1, 4 and 9
    assert rule.eval_model(state, model).tolist() == pytest.approx([(4 * 1 + 9 * 3) / 14])


def test_rounds_of_weight_zero_do_not_count():
    rule = Averaged()
    state, model = play(rule, [1, 2, 5], round_weights=[0.0, 0.0, 3.0])
    assert rule.eval_model(state, model).tolist() == pytest.approx([3.0])
    state, model = play(rule, [1], round_weights=[0.0])
    assert rule.eval_model(state, model).tolist() == [0.0]


def test_before_the_first_step_the_model_itself_is_evaluated():
    rule = Averaged()
    assert rule.eval_model(rule.init(1), ONE[0]).tolist() == [1.0]


@pytest.mark.parametrize("inner", [FedAvgM(), FedAcg(), FedExp(), Adaptive()])
def test_the_model_in_training_is_that_of_the_averaged_rule(inner):
    rule, state, model = Averaged(inner), inner.init(1), ZERO
    models, evaluated = [], []
    for update in (1.0, -2.0, 4.0):
        evaluated.append(
            inner.eval_model(state, model) if isinstance(inner, HasEvalModel) else model
        )
        state, model = inner.step(state, model, update * ONE, np.ones(1))
        models.append(model)
    average, last = play(rule, [1.0, -2.0, 4.0])
    assert last.tolist() == models[-1].tolist()
    assert rule.eval_model(average, last) == pytest.approx(np.mean(evaluated), abs=1e-6)


def test_learning_rate_of_clients_is_that_of_the_averaged_rule():
    inner = Adaptive()
    rule = Averaged(inner)
    state, _ = play(rule, [1.0, 0.0])
    expected, _ = play(inner, [1.0, 0.0])
    assert rule.lr_scale(state) == inner.lr_scale(expected) < 1
    assert Averaged().lr_scale(Averaged().init(1)) == 1.0


def test_declarations_are_those_of_the_averaged_rule():
    assert not Averaged().needs_individual_updates
    assert Averaged(FedExp()).needs_individual_updates
    assert Averaged("buffered").counts_updates
    assert not Averaged().counts_updates


def test_models_after_the_steps_can_be_averaged():
    rule = Averaged(models="after", power=1.0)
    state, model = play(rule, [1, 2, 5])  # 1, 3 and 8 with weights 1, 2 and 3
    assert rule.eval_model(state, model).tolist() == pytest.approx([31 / 6])


def test_statistics_of_the_last_model_are_those_after_its_step():
    """They are averaged outside of the rule, which returns the earlier ones."""
    rule, start = Averaged(models="after"), np.array([0.0, 9.0], dtype=np.float32)
    update = np.array([[1.0, 0.0]], dtype=np.float32)
    state, moved = rule.step(rule.init(2), start, update, np.ones(1))
    assert moved.tolist() == [1, 9]
    model = np.array([1.0, 5.0], dtype=np.float32)
    assert rule.eval_model(state, model).tolist() == [1, 5]
    state, moved = rule.step(state, model, update, np.ones(1))
    last = np.array([moved[0], 3.0], dtype=np.float32)
    assert rule.eval_model(state, last).tolist() == [1.5, 4]


def note(rule, state, clients, alarmed):
    clients = np.array(clients)
    return rule.note_alarms(state, clients, np.isin(clients, alarmed))


def test_alarms_of_a_share_of_the_clients_restart_the_average():
    rule = Averaged(FedAvgM(), restart_share=0.5)
    state, model = play(rule, [1, 2, 5])
    state, decision = note(rule, state, [0, 2, 4, 6], [4])
    assert decision is None
    assert rule.eval_model(state, model).tolist() != model.tolist()
    restarted, decision = note(rule, state, [0, 2], [2])  # two of four
    assert decision == {
        "what": "restart-average",
        "reason": "2 of the 4 clients of the last rounds raised an alarm",
        "alarmed": 2,
        "clients": 4,
        "rounds": 3,
    }
    assert rule.eval_model(restarted, model).tolist() == model.tolist(), "not the old average"
    assert restarted.rule == state.rule, "the momentum stays"
    later, moved = rule.step(restarted, model, ONE, np.ones(1))
    assert rule.eval_model(later, moved).tolist() == model.tolist(), "the first of a new average"
    assert len(restarted.recent) == 0, "alarms count from the restart"


@pytest.mark.parametrize(("num_clients", "restarts"), [(5, True), (6, False), (20, False)])
def test_alarms_of_one_client_restart_no_average_of_six_or_more(num_clients, restarts):
    rule, clients = Averaged(), np.arange(num_clients)
    state, _ = play(rule, [1, 2, 5])
    for _ in range(4):
        state, decision = rule.note_alarms(state, clients, clients == 0)
        assert (decision is not None) == restarts
        state, _ = rule.step(state, ZERO, ONE, np.ones(1))


def test_several_alarms_of_a_client_count_once():
    rule, (state, _) = Averaged(restart_share=0.5), play(Averaged(), [1])
    for _ in range(3):
        state, decision = note(rule, state, [1, 2, 3], [2])
        assert decision is None


def test_alarms_and_clients_of_earlier_rounds_are_forgotten():
    rule = Averaged(restart_share=0.5, restart_window=2)
    state, model = play(rule, [1])
    state, _ = note(rule, state, [0, 1, 2, 3, 4], [0, 1])
    for _ in range(2):
        state, model = rule.step(state, model, ONE, np.ones(1))
    state, decision = note(rule, state, [0, 5, 6], [5])  # 1 of 3, not 3 of 7
    assert decision is None
    assert state.recent.tolist() == [[0, 3, 1], [5, 3, 3], [6, 3, 0]]


def test_alarms_can_be_ignored():
    rule = Averaged(restart_share=None)
    state, _ = play(rule, [1])
    assert note(rule, state, [0, 1], [0, 1]) == (state, None)


def test_a_round_without_alarms_does_not_restart_the_average():
    rule = Averaged(restart_share=1e-9)
    state, _ = play(rule, [1])
    assert note(rule, state, [0, 1], [])[1] is None


def test_invalid_options_are_rejected():
    with pytest.raises(ConfigError, match="restart_share"):
        Averaged(restart_share=0.0)
    with pytest.raises(ConfigError, match="restart_window"):
        Averaged(restart_window=0)
    with pytest.raises(ConfigError, match=r"restart_window=9 has no effect without"):
        Averaged(restart_share=None, restart_window=9)
    with pytest.raises(ConfigError, match="models"):
        Averaged(models="between")
    with pytest.raises(ConfigError, match="power"):
        Averaged(power=-1.0)
    with pytest.raises(ConfigError, match=r"power must lie in \[0, 50\]"):
        Averaged(power=51.0)  # weights of a million rounds would not be finite
    with pytest.raises(ConfigError, match="averaged"):
        Averaged("averaged")


def test_weights_of_a_million_rounds_with_the_largest_power_are_finite():
    rule, model = Averaged(power=50.0, models="after"), np.zeros(1, dtype=np.float32)
    state = rule.init(1)._replace(rounds=10**6 - 1, total=1e304, mean=model)
    state, moved = rule.step(state, model, np.ones((1, 1), dtype=np.float32), np.ones(1))
    assert np.isfinite(state.total)
    assert moved.tolist() == [1.0]
