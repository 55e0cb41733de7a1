"""Modules of users as nets: initialisation, modes, buffers, checks and saved tensors."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from nets.user_modules import DigitMlp, DropoutMlp, batch_norm_resnet, group_norm_resnet
from thalweg.core.errors import ConfigError
from thalweg.nets import NETS, Mlp, Module, build_net, load_parameters, make_model_spec
from thalweg.nets.module_net import ModuleNet

DIGIT = (1, 8, 8)
HERE = "nets.user_modules"


def build(
    model: Any, shape: tuple[int, ...] = DIGIT, outputs: int = 10, **changes: Any
) -> ModuleNet:
    spec = model if isinstance(model, Module) else make_model_spec(model, NETS)
    net = build_net(spec, shape, outputs, **changes)
    assert isinstance(net, ModuleNet)
    return net


def batch(size: int = 5, shape: tuple[int, ...] = DIGIT) -> Tensor:
    return torch.randn((size, *shape), generator=torch.Generator().manual_seed(1))


def seed(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


# --- which model a plan records ---


def test_a_class_and_a_function_are_recorded_by_their_path() -> None:
    assert make_model_spec(DigitMlp, NETS) == Module(f"{HERE}:DigitMlp")
    assert make_model_spec(batch_norm_resnet, NETS) == Module(f"{HERE}:batch_norm_resnet")


def test_an_object_that_cannot_be_imported_is_recorded_by_name_and_digest() -> None:
    same, other = (make_model_spec(nn.Linear(4, size), NETS) for size in (2, 3))
    assert isinstance(same, Module)
    assert isinstance(other, Module)
    assert same.path == other.path == "python:Linear"
    assert len(same.digest) == 16
    assert same == make_model_spec(nn.Linear(4, 2), NETS) != other
    assert make_model_spec(lambda: nn.Linear(4, 2), NETS).digest == same.digest  # type: ignore[attr-defined]


def test_names_of_nets_and_specifications_are_accepted() -> None:
    assert make_model_spec("mlp", NETS) == make_model_spec(Mlp, NETS) == Mlp()
    assert make_model_spec(Mlp((7,)), NETS) == Mlp((7,))


def test_a_file_is_imported_by_its_path(tmp_path) -> None:
    file = tmp_path / "own.py"
    file.write_text("from torch import nn\n\ndef make(n):\n    return nn.Linear(4, n)\n")
    net = build(Module(f"{file}:make", {"n": 3}), (4,), 3)
    assert net.num_params == 15


@pytest.mark.parametrize(
    "model, message",
    [
        ("net.py", "expected file.py:NAME, package.module:NAME or a built-in net"),
        (3, "expected a torch.nn.Module, a class or function that makes one"),
    ],
)
def test_other_values_are_rejected(model: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_model_spec(model, NETS)


@pytest.mark.parametrize(
    "spec, message",
    [
        (Module(), "expected file.py:NAME or package.module:NAME"),
        (Module("python:Net"), "was passed as an object from Python.*resume=True"),
        (Module("missing.py:Net"), "there is no file missing.py"),
        (Module("no.such.package:Net"), "cannot import 'no.such.package'"),
        (Module("torch.nn:Nothing"), "found nothing of that name"),
        (Module("torch.nn:Linear"), r"Linear\(\) failed with TypeError: .*net.options"),
        (Module("builtins:dict"), "expected a torch.nn.Module .*got dict"),
    ],
)
def test_modules_that_cannot_be_made_are_rejected(spec: Module, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        spec.build((4,), 2)


def test_a_file_that_raises_is_reported(tmp_path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(ConfigError, match="importing it failed with ZeroDivisionError"):
        Module(f"{tmp_path}/broken.py:Net").build((4,), 2)


# --- checks before the run ---


class Returns(nn.Module):
    """A module with one layer and any other forward."""

    def __init__(self, forward: Any) -> None:
        super().__init__()
        self.fc, self.do = nn.Linear(4, 2), forward

    def forward(self, x: Tensor) -> Any:
        return self.do(self, x)


class Logits:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


def with_nan() -> nn.Module:
    linear = nn.Linear(4, 2)
    nn.init.constant_(linear.bias, float("nan"))
    return linear


def with_gradient_hook() -> nn.Module:
    linear = nn.Linear(4, 2)
    linear.weight.register_hook(lambda gradient: gradient * 0)
    return linear


def with_lock() -> nn.Module:
    linear = nn.Linear(4, 2)
    linear.lock = threading.Lock()
    return linear


class Embedded(nn.Module):
    """An embedding with an option that prevents training with a flat vector of parameters."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(3, 2, **options)

    def forward(self, x: Tensor) -> Tensor:
        return self.embed((x[:, 0] > 0).long())


def half(module: nn.Module, x: Tensor) -> Tensor:
    return module.fc(x).half()


@pytest.mark.parametrize(
    "model, message",
    [
        (nn.Linear(4, 3), r"outputs of shape \(B, 2\).*got \(3, 3\) for a batch of 3"),
        (nn.Linear(5, 2), r"failed with RuntimeError.*It receives float32 \(B, 4\)"),
        (nn.Flatten(), "has no parameters"),
        (nn.Linear(4, 2).double(), "must have float32 tensors, but weight is torch.float64"),
        (
            nn.Linear(4, 2, device="meta"),
            "must be on the CPU, but weight is on meta. A tensor .*without device='meta'",
        ),
        (
            Returns(lambda m, x: m.fc(x) + torch.eye(3, device="cuda")[:, :2]),
            "must compute on the CPU, .*, but forward uses the device cuda.*device=x.device",
        ),
        (Returns(lambda m, x: m.fc(x.to("cuda"))), "but forward uses the device cuda"),
        (
            nn.Sequential(nn.LazyLinear(4), Returns(lambda m, x: m.fc(x.cuda()))),
            "but forward uses the device cuda",
        ),
        (Returns(lambda m, x: m.fc(x.cuda())), "but forward uses the device cuda"),
        (
            Returns(lambda m, x: m.fc(x) @ torch.eye(2, device="meta")),
            "but forward uses the device meta",
        ),
        (Returns(lambda m, x: m.fc(x).to("meta")), "but forward uses the device meta"),
        (Returns(lambda m, x: m.fc(x).squeeze()), r"got \(2,\) for a batch of 1.*squeeze\(2\)"),
        (
            Returns(lambda m, x: m.fc(x.squeeze()[:, :4])),
            r"failed with IndexError.*float32 \(B, 4\), here with B = 1",
        ),
        (torch.jit.ScriptModule(), "it is compiled with torch.jit"),
        (nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2)), "changes its input in place"),
        (Returns(lambda m, x: (m.fc(x), x)), "must return one tensor.* got a tuple of 2"),
        (Returns(lambda m, x: {"y": m.fc(x)}), "got a dict with y"),
        (Returns(half), "must return float32, got torch.float16"),
        (Returns(lambda m, x: m.fc(x) * float("nan")), "must return numbers, got nan"),
        (Returns(lambda m, x: m.fc(x) + np.random.rand()), "different outputs for the same batch"),  # noqa: NPY002
        (Returns(lambda m, x: m.fc(x) - x.mean()), "depends on the other samples of the batch"),
        (
            nn.Sequential(nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 2)),
            "the layer 0 .* has momentum=None",
        ),
        (nn.Linear(4, 2).requires_grad_(False), "do not depend on a trainable parameter"),
        (Returns(lambda m, x: m.fc(x).detach()), "do not depend on a trainable parameter"),
        (Embedded(sparse=True), r"gradient of the model .* dense gradients \(sparse=False\)"),
        (Embedded(max_norm=0.1), "the model Embedded failed with RuntimeError.*inplace"),
        (nn.Linear(4, 1), "needs loss=binary_cross_entropy"),
        (with_nan(), "must start with finite numbers, but bias contains nan"),
        (with_gradient_hook(), r"weight of the model Linear has a gradient hook"),
        (with_lock(), r"cannot be copied \(copy.deepcopy\): cannot pickle"),
    ],
)
def test_modules_that_cannot_be_trained_are_rejected(model: nn.Module, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(model, (4,), 2)


@pytest.mark.parametrize("how", ["function", "method", "layer"])
def test_compiled_modules_are_rejected(how: str) -> None:
    module: Any = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    if how == "function":
        module = torch.compile(module, backend="eager")
    elif how == "method":
        module.compile(backend="eager")
    else:
        module[1].compile(backend="eager")
    what = "1" if how == "layer" else "it"
    message = rf"but {what} is compiled with torch.compile. .* without torch.compile\."
    with pytest.raises(ConfigError, match=message):
        build(module, (4,), 2)


@pytest.mark.parametrize("size", [1, 3])
def test_one_output_may_be_squeezed(size: int) -> None:
    net = build(Returns(lambda m, x: m.fc(x)[:, :1].squeeze()), (4,), 1)
    params, x = torch.from_numpy(net.init(np.random.default_rng(0))), batch(size, (4,))
    weight, bias = net.split(params)
    assert torch.allclose(net.apply(params, x, seed(0)), (x @ weight.T + bias)[:, :1], atol=1e-6)


# --- state of modules ---


class Stateful(nn.Module):
    """A module that changes an attribute in forward."""

    def __init__(self, change: Any, start: Any) -> None:
        super().__init__()
        self.fc, self.change, self.state = nn.Linear(4, 2), change, start

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        self.state = self.change(self.state, y.detach())
        return y


@pytest.mark.parametrize(
    "change, start",
    [
        (lambda state, y: state + 1, 0),
        (lambda state, y: [*state, y.mean().item()], []),
        (lambda state, y: {"calls": state["calls"] + 1}, {"calls": 0}),
        (lambda state, y: 0.9 * state + 0.1 * y.mean(0), torch.zeros(2)),
        (lambda state, y: state + 1, np.zeros(2)),
    ],
    ids=["number", "list", "dict", "tensor", "array"],
)
def test_attributes_that_change_in_every_call_are_rejected(change: Any, start: Any) -> None:
    message = r"changes its attribute 0.state in every call.*register_buffer\('state', ...\)"
    with pytest.raises(ConfigError, match=message):
        build(nn.Sequential(Stateful(change, start)), (4,), 2)


@pytest.mark.parametrize(
    "change, start",
    [
        (lambda state, y: y, None),
        (lambda state, y: [y.mean().item()], None),
        (lambda state, y: state, float("nan")),
        (lambda state, y: state, torch.eye(2).to_sparse()),
        (lambda state, y: object(), None),
    ],
    ids=["last-output", "last-mean", "nan", "sparse", "object"],
)
def test_results_of_the_last_call_may_be_kept(change: Any, start: Any) -> None:
    assert build(Stateful(change, start), (4,), 2).num_params == 10


class RunningMean(nn.Module):
    """A buffer that forward replaces by another tensor, instead of changing it in place."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return self.fc(x - self.mean)


def test_buffers_may_be_replaced_in_forward() -> None:
    net = build(RunningMean(), (4,), 2)
    params, x = torch.from_numpy(net.init(np.random.default_rng(0))), batch(5, (4,))
    _, buffers, _ = net.apply_and_update(net.split(params), x, 0)
    assert torch.allclose(buffers, 0.1 * x.mean(0))
    assert not net.layer.module.mean.any()


def test_buffers_must_keep_their_shape() -> None:
    class Growing(RunningMean):
        def forward(self, x: Tensor) -> Tensor:
            self.mean = torch.zeros(5)
            return self.fc(x)

    with pytest.raises(ConfigError, match=r"the buffer mean, float32 \(4,\), got .*\(5,\)"):
        build(Growing(), (4,), 2)


class Experts(nn.Module):
    """Two layers, of which a call uses one."""

    def __init__(self, choose: Any) -> None:
        super().__init__()
        self.choose, self.used, self.other = choose, nn.GRU(1, 2, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x[:, :, None])[0][:, -1] if self.choose(x) else self.other(x)


def test_parameters_without_a_gradient_are_not_trained() -> None:
    net = build(Experts(lambda x: True), (4,), 2)
    assert net.num_params == 6 + 12 + 6 + 6 + 10  # matrices, biases, other
    assert net.untrained is not None
    assert net.untrained.tolist() == list(range(30, 40))


@pytest.mark.parametrize(
    "choose",
    [
        lambda x: (x < 100).all(),
        lambda x: x.tolist()[0][0] < 100,
        lambda x: x.numpy()[0, 0] < 100,
        lambda x: len((x < 100).nonzero()),
        lambda x: not torch.equal(x, x + 1),
        lambda x: torch.rand(1) < 2,
    ],
    ids=["bool", "list", "array", "nonzero", "equal", "random"],
)
def test_a_layer_that_other_samples_may_use_is_trained(choose: Any) -> None:
    assert build(Experts(choose), (4,), 2).untrained is None


def test_operations_without_a_fast_stacked_form_are_not_stacked() -> None:
    """`vmap` would warn about a performance drop; warnings are errors here."""
    net = build(Returns(lambda m, x: torch.renorm(m.fc(x), 2, 0, 0.5)), (4,), 2)
    assert not net.can_stack
    assert build(Returns(lambda m, x: m.fc(x)), (4,), 2).can_stack


def test_infinite_buffers_stay_constant() -> None:
    model = nn.Linear(4, 2)
    model.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    net = build(model, (4,), 2)
    assert net.num_params == 4 * 2 + 2
    assert net.saved_tensors(net.init(np.random.default_rng(0)))["mask"].tolist() == [0, -np.inf]


def test_buffers_can_be_rejected() -> None:
    spec = Module(f"{HERE}:batch_norm_resnet", buffers="reject")
    with pytest.raises(ConfigError, match=r"buffers 1.norm.running_mean.*GroupNorm, or set"):
        spec.build(DIGIT, 10)
    assert Module(f"{HERE}:group_norm_resnet", buffers="reject").build(DIGIT, 10).num_buffers == 0


def test_local_buffers_need_a_normalisation_layer() -> None:
    with pytest.raises(ConfigError, match=r"net.buffers=local .*has neither"):
        Module(f"{HERE}:DigitMlp", buffers="local").build(DIGIT, 10)


def test_an_object_with_logits_is_accepted() -> None:
    net = build(Returns(lambda m, x: Logits(m.fc(x))), (4,), 2)
    params = torch.from_numpy(net.init(np.random.default_rng(0)))
    assert net.apply(params, batch(5, (4,))).shape == (5, 2)


def test_windows_need_a_module() -> None:
    with pytest.raises(ConfigError, match=r"Mlp needs features.*\(12, 3\).*--model"):
        build_net(Mlp(), (12, 3), 4)


def test_options_must_be_plain_values() -> None:
    with pytest.raises(ConfigError, match=r"net.options.act=.*because the plan stores it"):
        Module("torch.nn:Linear", {"act": torch.relu})


# --- values ---


def test_initial_values_are_those_of_the_module_under_a_seed() -> None:
    before = torch.get_rng_state()
    net = build(DigitMlp)
    one, same, other = (net.init(np.random.default_rng(n)) for n in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    weight = net.named_parameters(one)["1.weight"]
    assert np.abs(weight).max() <= 1 / 8  # U(-1/sqrt(64), 1/sqrt(64)), as nn.Linear
    assert net.num_params == 64 * 16 + 16 + 16 * 10 + 10


def test_model_0_of_an_instance_has_its_weights_and_others_are_reset() -> None:
    module = DigitMlp()
    expected = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    net = build(module)
    assert np.array_equal(net.init(np.random.default_rng(0)), expected)
    reset = net.init(np.random.default_rng(0), number=1)
    assert not np.array_equal(reset, expected)
    assert np.array_equal(reset, net.init(np.random.default_rng(0), number=1))


def test_an_instance_that_cannot_be_reset_is_rejected_as_a_further_model() -> None:
    module = nn.Linear(4, 2)
    module.reset_parameters = None  # type: ignore[assignment, method-assign]
    net = build(module, (4,), 2)
    with pytest.raises(ConfigError, match="has parameters and no reset_parameters"):
        net.init(np.random.default_rng(0), number=1)


def test_lazy_layers_get_their_shapes() -> None:
    net = build(lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(10)))
    assert net.num_params == 650
    assert np.isfinite(net.init(np.random.default_rng(0))).all()


def test_outputs_equal_those_of_the_plain_module() -> None:
    module, x = batch_norm_resnet(), batch()
    net = build(module)
    params = torch.from_numpy(net.init(np.random.default_rng(0)))
    plain = copy.deepcopy(module)
    assert torch.equal(net.apply(params, x), plain.eval()(x))
    outputs, buffers, _ = net.apply_and_update(net.split(params), x, 0)
    assert torch.equal(outputs, plain.train()(x))
    expected = torch.cat([plain[1].norm.running_mean, plain[1].norm.running_var])
    assert torch.equal(buffers, expected)
    assert not plain[1].norm.running_mean.equal(module[1].norm.running_mean)


def test_buffers_follow_the_parameters_and_are_not_trained() -> None:
    net = build(batch_norm_resnet)
    names = [piece.name for piece in net.param_slices]
    assert names[-2:] == ["1.norm.running_mean", "1.norm.running_var"]
    assert net.untrained is not None
    assert net.untrained.tolist() == list(range(net.num_params - 16, net.num_params))


def test_frozen_parameters_get_no_gradient_and_are_not_trained() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    module[0].requires_grad_(False)
    net = build(module, (4,), 2)
    assert net.untrained is not None
    assert net.untrained.tolist() == list(range(15))
    params = torch.from_numpy(net.init(np.random.default_rng(0))).requires_grad_()
    (gradient,) = torch.autograd.grad(net.apply(params, batch(5, (4,))).sum(), params)
    assert not gradient[:15].any()
    assert gradient[15:].any()


def test_dropout_follows_the_seed_and_leaves_the_global_generator() -> None:
    net = build(DropoutMlp)
    params, x = torch.from_numpy(net.init(np.random.default_rng(0))), batch()
    before = torch.get_rng_state()
    one, same, other = (net.apply(params, x, seed(n)) for n in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert not torch.equal(one, net.apply(params, x))
    assert not net.can_stack


@pytest.mark.parametrize(
    "model", [DigitMlp, lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10))]
)
def test_stacked_outputs_equal_single_ones(model: Any) -> None:
    net = build(model)
    assert net.can_stack
    params = torch.stack([torch.from_numpy(net.init(np.random.default_rng(n))) for n in range(3)])
    x, noise = torch.stack([batch() + n for n in range(3)]), [seed(n) for n in range(3)]
    outputs, features = net.with_features_stacked(params, x, noise)
    for k in range(3):
        expected, inner = net.with_features(params[k], x[k], noise[k])
        assert torch.allclose(outputs[k], expected, atol=1e-6)
        assert torch.allclose(features[k], inner, atol=1e-6)
        assert torch.allclose(net.apply_stacked(params, x)[k], expected, atol=1e-6)


class Standardized(nn.Module):
    """Divides by the standard deviation of the batch in training, which is nan for one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x / x.std(0) if self.training else x)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)], 2),
        ([nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 2)], 2),
        ([Standardized()], 2),
        ([nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.Dropout(), nn.Linear(4, 2)], 1),
    ],
)
def test_the_smallest_batch_of_a_module_is_found(layers: list[nn.Module], expected: int) -> None:
    assert build(nn.Sequential(*layers), (4,), 2).smallest_batch == expected


def test_batch_norm_over_pixels_trains_on_one_sample() -> None:
    layers = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2)
    assert build(nn.Sequential(*layers), (1, 4, 4), 2).smallest_batch == 1


def test_a_model_of_the_library_transformers_is_accepted() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    config = transformers.BertConfig(
        vocab_size=17, num_attention_heads=2, max_position_embeddings=16, num_labels=3, **sizes
    )
    net = build(
        lambda: transformers.BertForSequenceClassification(config), (12, 17), 3, num_codes=17
    )
    params = torch.from_numpy(net.init(np.random.default_rng(0)))
    assert net.apply(params, torch.zeros(2, 12, dtype=torch.long), seed(0)).shape == (2, 3)


def test_features_are_the_input_of_the_last_linear_layer() -> None:
    module, x = DigitMlp(), batch()
    net = build(module)
    params = torch.from_numpy(net.init(np.random.default_rng(0)))
    logits, features = net.with_features(params, x)
    assert torch.equal(features, torch.relu(module[1](x.flatten(1))))
    assert torch.equal(logits, module(x))


def test_a_model_trains_its_features_unless_only_its_last_layer_is_trained() -> None:
    frozen = DigitMlp()
    for parameter in frozen[1].parameters():
        parameter.requires_grad_(False)
    assert build(DigitMlp()).trains_features
    assert not build(frozen).trains_features
    assert not build(nn.Linear(4, 2), (4,), 2).trains_features
    assert not build(nn.Sequential(nn.ReLU(), nn.Linear(4, 2)), (4,), 2).trains_features


def test_models_that_do_not_end_with_a_linear_layer_have_no_features() -> None:
    net = build(nn.Sequential(nn.Linear(4, 2), nn.Tanh()), (4,), 2)
    params = torch.from_numpy(net.init(np.random.default_rng(0)))
    with pytest.raises(
        ConfigError, match=r"expected a model whose output is the result of an nn.Lin"
    ):
        net.with_features(params, batch(5, (4,)))


def test_codes_are_passed_as_integers() -> None:
    model = nn.Sequential(nn.Embedding(17, 4), nn.Flatten(), nn.Linear(48, 3))
    net = build(model, (12, 17), 3, num_codes=17)
    params = torch.from_numpy(net.init(np.random.default_rng(0)))
    assert net.apply(params, torch.zeros(2, 12, dtype=torch.long)).shape == (2, 3)


# --- files and processes ---


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x))


@pytest.mark.parametrize("model, shape", [(batch_norm_resnet, DIGIT), (Tied, (4,))])
def test_saved_tensors_load_into_the_plain_module(model: Any, shape: Any) -> None:
    plain = model()
    net = build(model, shape, 10 if shape == DIGIT else 4)
    params = net.init(np.random.default_rng(5))
    saved = {name: torch.from_numpy(np.array(v)) for name, v in net.saved_tensors(params).items()}
    plain.load_state_dict(saved)  # strict
    x = batch(5, shape)
    assert torch.equal(plain.eval()(x), net.apply(torch.from_numpy(params), x))


def test_a_plain_state_dict_can_be_loaded(tmp_path) -> None:
    plain = batch_norm_resnet()
    plain(batch())  # changes the statistics
    save_file(plain.state_dict(), tmp_path / "plain.safetensors")
    net = build(batch_norm_resnet)
    params = torch.from_numpy(load_parameters(tmp_path / "plain.safetensors", net))
    assert torch.equal(net.apply(params, batch()), plain.eval()(batch()))


@pytest.mark.parametrize(
    "model", [DigitMlp, group_norm_resnet, nn.Sequential(nn.Flatten(), nn.Linear(64, 10))]
)
def test_nets_can_be_sent_to_other_processes(model: Any) -> None:
    net = build(model)
    again = pickle.loads(pickle.dumps(net))
    params = torch.from_numpy(net.init(np.random.default_rng(0)))
    assert torch.equal(net.apply(params, batch()), again.apply(params, batch()))


class BiasFirst(nn.Module):
    """The last layer is registered first, so that its bias is not at the end of the vector."""

    def __init__(self, *, bias: bool = True) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(3, 2, bias=bias), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.body(x)))


@pytest.mark.parametrize("model", [BiasFirst(), nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))])
def test_the_output_bias_is_that_of_the_last_linear_layer(model: nn.Module) -> None:
    net = build(model, (4,), 2)
    params, x = torch.from_numpy(net.init(np.random.default_rng(0))), batch(5, (4,))
    added, changed = torch.tensor([0.5, -1.0]), params.clone()
    assert net.output_bias is not None
    changed[net.output_bias] += added
    torch.testing.assert_close(net.apply(changed, x), net.apply(params, x) + added)


@pytest.mark.parametrize(
    "model",
    [
        BiasFirst(bias=False),
        nn.Sequential(nn.Linear(4, 2), nn.Tanh()),
        nn.Sequential(nn.Linear(4, 2), nn.ReLU(inplace=True)),
        nn.Sequential(nn.Linear(4, 2), nn.LayerNorm(2)),
    ],
    ids=["no bias", "tanh", "relu in place", "norm"],
)
def test_models_without_a_final_linear_layer_with_a_bias_have_no_output_bias(
    model: nn.Module,
) -> None:
    assert build(model, (4,), 2).output_bias is None
