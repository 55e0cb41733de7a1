"""Serving best-recent, with numbers that can be checked by hand."""

import math

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.serving import ArrivedSamples, BestRecent
from thalweg.theory import mix_regret_bound

LN2 = math.log(2)
ALL = np.array([True, True])


def classes(*probs, targets, names=("latest", "trained")):
    """Return samples of two classes, given the probability of class 1 of each predictor."""
    of_one = np.array(probs, dtype=float)
    return ArrivedSamples(names, np.stack([1 - of_one, of_one], axis=2), np.array(targets))


def serve(serving, samples, state=None):
    return serving.serve(serving.init() if state is None else state, samples)


def test_a_wrong_prediction_halves_the_weight_if_eta_is_ln_2():
    serving = BestRecent(loss="error", eta=LN2, switch_every=1e9)
    state, _ = serve(serving, classes([0.1, 0.1], [0.9, 0.9], targets=[1, 1]))
    assert serving.mix(state, ALL) == pytest.approx([1 / 5, 4 / 5])


def test_log_losses_give_posterior_probabilities():
    serving = BestRecent(switch_every=1e9)
    state, _ = serve(serving, classes([0.2], [0.8], targets=[1]))
    a, b = 0.99 * 0.2 + 0.005, 0.99 * 0.8 + 0.005  # one per cent of the uniform distribution
    assert serving.mix(state, ALL) == pytest.approx([a / (a + b), b / (a + b)])


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
    assert serving.mix(state, ALL).tolist() == [0, 1]


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
    samples = classes(*rng.random((3, 20)), targets=rng.integers(0, 2, 20), names=("a", "b", "c"))
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
    assert serving.mix(state, ALL)[1] > 0.5 > serving.mix(other, ALL)[1]
    _, at_once = serve(BestRecent(loss="error", eta=5.0), samples)
    assert at_once.tolist() == [1, 1, 0]


def test_losses_of_a_round_are_added():
    serving = BestRecent(loss="error", feedback="round", eta=LN2, switch_every=20.0)
    state, _ = serve(serving, classes([0.1, 0.1], [0.9, 0.9], targets=[1, 1]))
    expected = 0.9 * np.array([1 / 5, 4 / 5]) + 0.1 / 2  # alpha = 2 / 20, once for the round
    assert serving.mix(state, ALL) == pytest.approx(expected)


def test_a_missing_predictor_keeps_its_share():
    serving = BestRecent(switch_every=1e9)
    names = ("latest", "averaged", "trained")
    samples = classes([0.2], [0.8], [np.nan], targets=[1], names=names)
    state, _ = serve(serving, samples)
    assert serving.mix(state, np.ones(3, bool))[2] == pytest.approx(1 / 3)
    others = serving.mix(state, np.array([True, True, False]))
    assert others == pytest.approx([0.203, 0.797, 0])


def test_a_new_predictor_has_the_weight_of_one_that_was_missing():
    serving = BestRecent()
    two = classes([0.3], [0.8], targets=[1])
    missing = classes([0.3], [0.8], [np.nan], targets=[1], names=("a", "b", "c"))
    later, _ = serve(serving, two)
    grown = serving.mix(later, np.ones(3, bool))
    before = serving.mix(serve(serving, missing)[0], np.ones(3, bool))
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
        total -= math.log(serving.mix(state, ALL) @ right[:, row])
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
    assert serving.mix(state, ALL) == pytest.approx([math.e / (1 + math.e), 1 / (1 + math.e)])


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
    ],
)
def test_invalid_settings_are_rejected(settings, message):
    with pytest.raises(ConfigError, match=message):
        BestRecent(**settings)


def test_after_a_restart_the_received_model_predicts_until_the_next_sample():
    serving = BestRecent(loss="error", eta=LN2, switch_every=1e9)
    state, _ = serve(serving, classes([0.1, 0.1], [0.9, 0.9], targets=[1, 1]))
    state = serving.restart(state)
    assert serving.mix(state, ALL).tolist() == [1, 0]
    state, _ = serve(serving, classes([0.1], [0.9], targets=[1]), state)
    assert serving.mix(state, ALL) == pytest.approx([1 / 3, 2 / 3])


def test_a_round_without_samples_moves_a_share_to_the_received_model():
    serving = BestRecent(loss="error", eta=LN2, switch_every=1e9, idle_share=0.5)
    state, _ = serve(serving, classes([0.1, 0.1], [0.9, 0.9], targets=[1, 1]))  # 1/5, 4/5
    assert serving.mix(serving.skip_round(state), ALL) == pytest.approx([3 / 5, 2 / 5])
    assert len(serving.skip_round(serving.init()).weights) == 0
