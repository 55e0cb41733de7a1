import numpy as np
import pytest
import torch

from thalweg.core.errors import ConfigError
from thalweg.core.types import Job
from thalweg.engine.models import NetModel, noise_seeds, step_seeds
from thalweg.local import with_features, without_dropout
from thalweg.nets import Mlp, Net
from thalweg.nets.dropout import Dropout
from thalweg.nets.layers import Dense, Relu

NET = Net((Dropout(0.5), Dense("fc", 20, 2)), (20,))


def logits(seeds, steps, is_stacked):
    model = NetModel(NET, is_stacked, step_seeds(np.array(seeds), np.array(steps)))
    params = torch.tensor(NET.init(np.random.default_rng(0))).expand(len(seeds), -1)
    return model, model(params, torch.ones(len(seeds), 3, 20)), params


def test_dropout_of_a_client_is_the_same_alone_and_in_a_stack():
    _, together, _ = logits([5, 9], [0, 3], True)
    for k, (seed, step) in enumerate([(5, 0), (9, 3)]):
        _, alone, _ = logits([seed], [step], False)
        torch.testing.assert_close(together[k], alone[0])


def test_dropout_differs_between_steps_and_clients():
    _, first, _ = logits([5, 6], [0, 0], True)
    _, next_step, _ = logits([5, 6], [10, 10], True)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], next_step[0])


@pytest.mark.parametrize("is_stacked", [True, False])
def test_a_teacher_has_no_dropout(is_stacked):
    model, _, params = logits([5], [0], is_stacked)
    x = torch.ones(1, 3, 20)
    torch.testing.assert_close(without_dropout(model)(params, x)[0], NET.apply(params[0], x[0]))


@pytest.mark.parametrize("is_stacked", [True, False])
def test_features_are_what_the_last_layer_reads_of_the_same_model(is_stacked):
    net = Mlp(hidden=(5,)).build((4,), 3)
    rng = np.random.default_rng(0)
    params = torch.tensor(np.stack([net.init(rng) for _ in range(2)]))
    x = torch.tensor(rng.normal(size=(2, 6, 4)).astype(np.float32))
    model = NetModel(net, is_stacked)
    said, features = with_features(model)(params, x)
    assert features.shape == (2, 6, 5)
    torch.testing.assert_close(said, model(params, x))
    last = net.named_parameters(params[1].numpy())
    by_hand = features[1].numpy() @ last["fc2.weight"].T + last["fc2.bias"]
    np.testing.assert_allclose(said[1].numpy(), by_hand, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_stacked", [True, False])
def test_features_of_a_model_in_training_have_its_dropout(is_stacked):
    model, said, params = logits([5, 9], [0, 3], is_stacked)
    again, features = model.with_features(params, torch.ones(2, 3, 20))
    torch.testing.assert_close(again, said)
    assert set(features.unique().tolist()) == {0.0, 2.0}, "half of the inputs are gone"
    _, whole = without_dropout(model).with_features(params, torch.ones(2, 3, 20))
    assert set(whole.unique().tolist()) == {1.0}


def test_a_net_without_a_dense_end_has_no_features():
    net = Net((Dense("fc", 4, 2), Relu()), (4,))
    params = torch.tensor(net.init(np.random.default_rng(0)))[None]
    with pytest.raises(ConfigError, match="expected a Dense layer at the end, got Relu"):
        NetModel(net, False).with_features(params, torch.zeros(1, 1, 4))


def test_a_plain_function_has_no_features_and_the_error_says_what_to_do():
    with pytest.raises(ConfigError, match=r"no method with_features\. Add one"):
        with_features(lambda params, x: params)


def test_seeds_depend_on_the_client_and_the_round_only():
    both = noise_seeds(1, [Job(3), Job(7)], 2)
    assert both[1] == noise_seeds(1, [Job(7, model=1, lr_scale=0.5)], 2)[0]
    assert both[0] != both[1]
    assert both[0] != noise_seeds(1, [Job(3)], 3)[0]
