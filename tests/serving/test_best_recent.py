"""Serving best-recent, with numbers that can be checked by hand."""

import math

import numpy as np
import pytest

from contracts.checkpoint import round_trip, to_comparable
from thalweg.core.errors import ConfigError
from thalweg.serving import ArrivedSamples, BestRecent
from thalweg.theory import mix_regret_bound

LN2 = math.log(2)
ALL = np.array([True, True])
TWO, THREE = ("latest", "trained"), ("latest", "trained", "last_label")


def classes(*probs, targets, names=TWO):
    """Return samples of two classes, given the probability of class 1 of each predictor."""
    of_one = np.array(probs, dtype=float)
    return ArrivedSamples(names, np.stack([1 - of_one, of_one], axis=2), np.array(targets))


def serve(serving, samples, state=None):
    return serving.serve(serving.init() if state is None else state, samples)


def test_a_wrong_prediction_halves_the_weight_if_eta_is_ln_2():
    serving = BestRecent(loss="error", eta=LN2, switch_every=1e9)
    state, _ = serve(serving, classes([0.1, 0.1], [0.9, 0.9], targets=[1, 1]))
    assert serving.mix(state, TWO, ALL) == pytest.approx([1 / 5, 4 / 5])


def test_log_losses_give_posterior_probabilities():
    serving = BestRecent(switch_every=1e9)
    state, _ = serve(serving, classes([0.2], [0.8], targets=[1]))
    a, b = 0.99 * 0.2 + 0.005, 0.99 * 0.8 + 0.005  # one per cent of the uniform distribution
    assert serving.mix(state, TWO, ALL) == pytest.approx([a / (a + b), b / (a + b)])


def test_the_mixture_predicts_better_than_each_predictor():
    """Each predictor is unsure where it is wrong, and the other one is sure there."""
    samples = classes([0.9, 0.45], [0.45, 0.9], targets=[1, 1])
    _, predicted = serve(BestRecent(switch_every=1e9), samples)
    assert predicted.tolist() == [1, 1]
    assert (samples.outputs.argmax(axis=2) == 1).sum() == 2  # one of two samples each


def test_the_best_predictor_alone_is_used_on_request():
    serving = BestRecent(loss="error", combine="best")
    samples = classes([0.4, 0.4, 0.4], [0.55, 0.55, 0.55], targets=[1, 1, 1])
    state, predicted = serve(serving, samples)
    assert predicted.tolist() == [0, 1, 1]  # the first of equal ones, then the right one
    assert serving.mix(state, TWO, ALL).tolist() == [0, 1]


def test_the_weights_follow_a_change_of_the_best_predictor():
    right, wrong = [0.9] * 200, [0.1] * 200
    samples = classes(right + wrong, wrong + right, targets=[1] * 400)
    _, predicted = serve(BestRecent(), samples)
    errors = np.flatnonzero(predicted == 0)
    assert len(errors) < 15
    assert (errors[errors > 0] >= 200).all()
    assert (errors < 215).all()


def test_samples_one_by_one_give_the_same_as_together():
    rng = np.random.default_rng(0)
    samples = classes(*rng.random((3, 20)), targets=rng.integers(0, 2, 20), names=THREE)
    serving = BestRecent()
    together, predicted = serve(serving, samples)
    state, one_by_one = serving.init(), []
    for row in range(20):
        part = samples._replace(
            outputs=samples.outputs[:, row : row + 1], targets=samples.targets[row : row + 1]
        )
        state, found = serving.serve(state, part)
        one_by_one += found.tolist()
    assert one_by_one == predicted.tolist()
    assert state.weights == pytest.approx(together.weights)


def test_the_last_label_is_smoothed():
    last = np.array([[[0.0, 1.0]]])  # one-hot
    latest = np.array([[[0.93, 0.07]]])
    samples = ArrivedSamples(
        ("latest", "last_label"), np.concatenate([latest, last]), np.array([1])
    )
    assert serve(BestRecent(smoothing=0.0), samples)[1].tolist() == [1]  # 0.5 * 1.07
    assert serve(BestRecent(smoothing=0.2), samples)[1].tolist() == [0]  # 0.5 * (0.07 + 0.9)


def test_feedback_after_the_round_uses_no_target_of_the_round():
    """The last label is right about the first sample; then it would be wrong twice."""
    outputs = np.array([[[0.6, 0.4]] * 3, [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]])
    samples = ArrivedSamples(("latest", "last_label"), outputs, np.array([1, 0, 1]))
    serving = BestRecent(loss="error", feedback="round", switch_every=1e9)
    state, predicted = serve(serving, samples)
    assert predicted.tolist() == [1, 1, 1]  # (0.6 + 0.05) / 2 is below 1 / 2, with equal weights
    other, repeated = serve(serving, samples._replace(targets=np.array([0, 0, 0])))
    assert repeated.tolist() == predicted.tolist()
    # One error of the held last label, two of the model.
    assert serving.mix(state, TWO, ALL)[1] > 0.5 > serving.mix(other, TWO, ALL)[1]
    _, at_once = serve(BestRecent(loss="error", eta=5.0), samples)
    assert at_once.tolist() == [1, 1, 0]


def test_losses_of_a_round_are_added():
    serving = BestRecent(loss="error", feedback="round", eta=LN2, switch_every=20.0)
    state, _ = serve(serving, classes([0.1, 0.1], [0.9, 0.9], targets=[1, 1]))
    expected = 0.9 * np.array([1 / 5, 4 / 5]) + 0.1 / 2  # alpha = 2 / 20, once for the round
    assert serving.mix(state, TWO, ALL) == pytest.approx(expected)


def test_a_missing_predictor_keeps_its_share():
    serving = BestRecent(switch_every=1e9)
    names = ("latest", "averaged", "trained")
    samples = classes([0.2], [0.8], [np.nan], targets=[1], names=names)
    state, _ = serve(serving, samples)
    assert serving.mix(state, names, np.ones(3, bool))[2] == pytest.approx(1 / 3)
    others = serving.mix(state, names, np.array([True, True, False]))
    assert others == pytest.approx([0.203, 0.797, 0])


def test_a_new_predictor_has_the_weight_of_one_that_was_missing():
    serving = BestRecent()
    two = classes([0.3], [0.8], targets=[1])
    missing = classes([0.3], [0.8], [np.nan], targets=[1], names=THREE)
    later, _ = serve(serving, two)
    grown = serving.mix(later, THREE, np.ones(3, bool))
    before = serving.mix(serve(serving, missing)[0], THREE, np.ones(3, bool))
    assert grown[2] == before[2] == pytest.approx(1 / 3)


def test_the_log_loss_of_the_mixture_never_exceeds_the_bound():
    """Against each sequence with one switch, with the default rates."""
    rng = np.random.default_rng(3)
    number, serving = 60, BestRecent(switch_every=30.0)
    probs = rng.random((2, number))
    targets = np.where(rng.random(number) < np.r_[probs[0, :30], probs[1, 30:]], 1, 0)
    state, total = serving.init(), 0.0
    floored = 0.99 * probs + 0.005
    right = np.where(targets == 1, floored, 1 - floored)  # (2, n)
    for row in range(number):
        total -= math.log(serving.mix(state, TWO, ALL) @ right[:, row])
        one = classes(*probs[:, row : row + 1], targets=targets[row : row + 1])
        state, _ = serving.serve(state, one)
    bound = mix_regret_bound(number, 2, 1, 1.0, 2 / 30)
    losses = -np.log(right)
    for change in range(1, number):
        for first, second in ((0, 1), (1, 0)):
            best = losses[first, :change].sum() + losses[second, change:].sum()
            assert total - best <= bound + 1e-9


def test_numbers_are_mixed_and_weighted_by_clipped_squared_errors():
    serving = BestRecent(eta=1.0, switch_every=1e9)
    outputs = np.array([[[0.0], [0.0], [0.0]], [[2.0], [2.0], [4.0]]])
    samples = ArrivedSamples(("latest", "trained"), outputs, np.array([[0.0], [2.0], [0.0]]))
    state, predicted = serve(serving, samples)
    # Before the second sample the targets have no variance, so that errors are 0 or 1; before the
    # third one the variance is 1: the errors are 0 and 16 / 4, clipped to 1.
    assert predicted[:2, 0].tolist() == [1.0, pytest.approx(2 / (1 + math.e))]
    assert predicted[2, 0] == pytest.approx(2.0)  # the second sample has made both equal again
    assert serving.mix(state, TWO, ALL) == pytest.approx([math.e / (1 + math.e), 1 / (1 + math.e)])


def test_a_model_that_has_diverged_is_not_available():
    samples = classes([np.nan], [0.8], targets=[0])
    _, predicted = serve(BestRecent(), samples)
    assert predicted.tolist() == [1]
    _, predicted = serve(BestRecent(), classes([np.nan], [np.nan], targets=[0]))
    assert predicted.tolist() == [0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"switch_every": 1.0}, r"switch_every must lie in \(1, inf\)"),
        ({"eta": 0.0}, "eta must be positive and finite, or none"),
        ({"smoothing": 1.0}, r"smoothing must lie in \[0, 1\)"),
        ({"loss": "hinge"}, "hinge"),
        ({"combine": "all"}, "all"),
        ({"smoothing": 0.2, "last_label": False}, "has no effect without the last label"),
        ({"horizon": 0.5}, "horizon must be at least 1"),
        ({"horizon": 9.0, "adjusted": False}, "has no effect without the adjusted model"),
    ],
)
def test_invalid_settings_are_rejected(settings, message):
    with pytest.raises(ConfigError, match=message):
        BestRecent(**settings)


def test_after_a_restart_the_received_model_predicts_until_the_next_sample():
    serving = BestRecent(loss="error", eta=LN2, switch_every=1e9)
    state, _ = serve(serving, classes([0.1, 0.1], [0.9, 0.9], targets=[1, 1]))
    state = serving.restart(state)
    assert serving.mix(state, TWO, ALL).tolist() == [1, 0]
    state, _ = serve(serving, classes([0.1], [0.9], targets=[1]), state)
    assert serving.mix(state, TWO, ALL) == pytest.approx([1 / 3, 2 / 3])


def test_a_round_without_samples_moves_half_of_the_weights_to_the_received_model():
    serving = BestRecent(loss="error", eta=LN2, switch_every=1e9)
    state, _ = serve(serving, classes([0.1, 0.1], [0.9, 0.9], targets=[1, 1]))  # 1/5, 4/5
    assert serving.mix(serving.skip_round(state), TWO, ALL) == pytest.approx([3 / 5, 2 / 5])
    assert len(serving.skip_round(serving.init()).weights) == 0


def test_before_its_first_sample_a_client_predicts_with_the_averaged_model():
    serving, names = BestRecent(), ("latest", "averaged", "trained")
    assert serving.mix(serving.init(), names, np.ones(3, bool)).tolist() == [0, 1, 0]
    assert serving.mix(serving.init(), names, np.array([True, False, True])).tolist() == [1, 0, 0]
    assert serving.mix(serving.init(), TWO, ALL).tolist() == [1, 0]


def test_without_samples_weights_move_to_the_averaged_model():
    serving = BestRecent(loss="error", eta=LN2, switch_every=1e9)
    names = ("latest", "averaged", "trained")
    state, _ = serve(serving, classes([0.1], [0.1], [0.9], targets=[1], names=names))
    assert serving.mix(state, names, np.ones(3, bool)) == pytest.approx([1 / 4, 1 / 4, 1 / 2])
    idle = serving.mix(serving.skip_round(state), names, np.ones(3, bool))
    assert idle == pytest.approx([1 / 8, 5 / 8, 1 / 4])
    restarted = serving.restart(state)
    assert serving.mix(restarted, names, np.ones(3, bool)).tolist() == [1, 0, 0]
    idle = serving.skip_round(serving.skip_round(restarted))
    assert serving.mix(idle, names, np.ones(3, bool)).tolist() == [1 / 4, 3 / 4, 0]
    assert serving.mix(idle, names, np.array([True, False, True])).tolist() == [1, 0, 0]
    state, _ = serve(serving, classes([0.9], [0.9], [0.9], targets=[1], names=names), restarted)
    assert serving.mix(state, names, np.ones(3, bool)) == pytest.approx([1 / 3] * 3)


ADJUSTED = ("latest", "adjusted")


def unbalanced(number=600, seed=0):
    """Return samples of a model for balanced classes; 90 % of the client's labels are class 0.

    One of two inputs has probability 0.7 in class 0 and 0.3 in class 1, so that the model is right
    about 70 % of the samples, and class 0 always is about 90 %.
    """
    rng = np.random.default_rng(seed)
    labels = (rng.random(number) < 0.1).astype(int)
    is_typical = rng.random(number) < 0.7
    of_one = np.where(is_typical == (labels == 1), 0.7, 0.3)
    return classes(of_one, np.full(number, np.nan), targets=labels, names=ADJUSTED)


def take(samples, rows):
    return samples._replace(outputs=samples.outputs[:, rows], targets=samples.targets[rows])


def test_a_model_for_balanced_classes_is_adjusted_to_a_client_with_others():
    serving, samples = BestRecent(), unbalanced()
    state, predicted = serve(serving, samples)
    assert serving.mix(state, ADJUSTED, ALL)[1] > 0.9
    last = slice(300, None)
    received = samples.outputs[0].argmax(axis=1)
    assert (received == samples.targets)[last].mean() == pytest.approx(0.7, abs=0.05)
    assert (predicted == samples.targets)[last].mean() == pytest.approx(0.9, abs=0.05)
    # The odds of the classes of the client are 9 : 1, those of the model 1 : 1.
    first, second = serving.get_offsets(state)
    assert first - second == pytest.approx(math.log(9), abs=0.5)


def test_the_adjusted_model_needs_no_output_of_its_own_and_samples_do_not_change():
    samples = unbalanced(20)
    before = samples.outputs.copy()
    filled = samples._replace(outputs=np.nan_to_num(before, nan=0.5))
    assert serve(BestRecent(), samples)[1].tolist() == serve(BestRecent(), filled)[1].tolist()
    assert np.array_equal(samples.outputs, before, equal_nan=True)


def test_the_adjusted_model_of_single_samples_is_that_of_all_together():
    serving, samples = BestRecent(), unbalanced(100)
    together, predicted = serve(serving, samples)
    state, one_by_one = serving.init(), []
    for row in range(100):
        state, found = serving.serve(state, take(samples, slice(row, row + 1)))
        one_by_one += found.tolist()
    assert one_by_one == predicted.tolist()
    assert state.labels.offsets.tolist() == together.labels.offsets.tolist()
    assert state.weights == pytest.approx(together.weights)


def test_with_feedback_after_the_round_the_adjusted_model_knows_earlier_rounds_only():
    serving = BestRecent(feedback="round")
    state, _ = serve(serving, take(unbalanced(), slice(0, 400)))
    assert serving.mix(state, ADJUSTED, ALL).tolist() == [0.5, 0.5], "both were equal so far"
    state, _ = serve(serving, take(unbalanced(), slice(400, 500)), state)
    assert serving.mix(state, ADJUSTED, ALL)[1] > 0.9
    last = take(unbalanced(), slice(500, None))
    after, predicted = serve(serving, last, state)
    other, repeated = serve(serving, last._replace(targets=1 - last.targets), state)
    assert repeated.tolist() == predicted.tolist()
    assert after.labels.offsets[0] > other.labels.offsets[0]
    assert (predicted == 0).all(), "class 0 is right about 90 %, whatever the input"


def test_the_offsets_survive_a_checkpoint_and_an_alarm():
    serving, samples = BestRecent(), unbalanced(200)
    state, _ = serve(serving, take(samples, slice(0, 100)))
    loaded = round_trip(state, serving.init())
    rest = take(samples, slice(100, None))
    (after, predicted), (again, repeated) = (serve(serving, rest, s) for s in (state, loaded))
    assert predicted.tolist() == repeated.tolist()
    assert to_comparable(after) == to_comparable(again)
    assert serving.get_offsets(serving.restart(state)).tolist() == state.labels.offsets.tolist()


def test_a_model_that_has_diverged_leaves_the_offsets_as_they_are():
    serving, samples = BestRecent(), unbalanced(50)
    state, _ = serve(serving, samples)
    nothing = np.full((2, 1, 2), np.nan)
    after, predicted = serve(serving, ArrivedSamples(ADJUSTED, nothing, np.array([0])), state)
    assert predicted.tolist() == [0]
    assert after.labels.offsets.tolist() == state.labels.offsets.tolist()


def test_without_the_adjusted_model_there_are_no_offsets():
    serving = BestRecent(adjusted=False)
    assert "adjusted" not in serving.predictors
    state, _ = serve(serving, classes([0.3], [0.8], targets=[1]))
    assert serving.get_offsets(state).tolist() == []
