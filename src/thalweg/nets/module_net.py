"""A ``torch.nn.Module`` as a `Net`: a pure function of one flat vector of its tensors.

The vector contains the parameters and then the floating-point buffers, in the order of the module.
Every call sets all tensors of a copy of the module, as `torch.func.functional_call` does, so that
the module itself never changes. Each thread has its own copy.
"""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from thalweg.core.errors import ConfigError, ShapeMismatch
from thalweg.core.remedies import format_setting
from thalweg.core.types import Floats32, Ints
from thalweg.nets.module import Module
from thalweg.nets.net import Net, Shape

CHECK_SEED = 0
CHECK_BATCH = 3
STACK_PARAMS = 1 << 16  # modules with more parameters are trained one after the other
NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_RNG_LOCK = threading.RLock()  # torch has one generator for all threads


@contextmanager
def use_seed(seed: int, device_type: str = "cpu") -> Iterator[None]:
    """Use a seed for all numbers that torch draws; the CPU's generator is restored afterwards."""
    with _RNG_LOCK:
        before = torch.get_rng_state()
        if device_type == "cpu":
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)  # of all devices
        try:
            yield
        finally:
            torch.set_rng_state(before)


def make_module(spec: Module, seed: int) -> nn.Module:
    """Return a new module of a specification, initialised with a seed.

    An instance is copied with its present weights.
    """
    found = spec.load()
    if isinstance(found, nn.Module):
        if spec.options:
            raise ConfigError(
                "net.options are arguments for a class or function, but the model is an instance "
                f"of {type(found).__name__}. Leave them out."
            )
        _check_form(found, spec.name)
        return copy_module(found, spec.name)
    try:
        with use_seed(seed):
            module = found(**spec.options)
    except Exception as error:
        raise ConfigError(
            f"{spec.name}({', '.join(f'{k}={v!r}' for k, v in spec.options.items())}) failed with "
            f"{type(error).__name__}: {error}. Arguments are set with net.options "
            f"({format_setting('net.options.NAME')})."
        ) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"{spec.path or spec.name}: expected a torch.nn.Module or a function that returns one, "
            f"got {type(module).__name__}."
        )
    _check_form(module, spec.name)
    return module


def _check_form(module: nn.Module, name: str) -> None:
    """Reject compiled modules and gradient hooks."""
    for path, each in module.named_modules():
        is_compiled = "_orig_mod" in each._modules or each._compiled_call_impl is not None
        if is_compiled or isinstance(each, torch.jit.ScriptModule):
            how = "torch.compile" if is_compiled else "torch.jit"
            raise ConfigError(
                f"the model {name} must be a plain torch.nn.Module, but {path or 'it'} is compiled "
                f"with {how}, and clients train copies of the module with tensors of their own. "
                f"Pass the module without {how}."
            )
    for parameter, value in module.named_parameters():
        if value._backward_hooks:
            raise ConfigError(
                f"{parameter} of the model {name} has a gradient hook (register_hook), which would "
                "have no effect, because clients train copies of the parameters. Remove it; "
                "requires_grad=False keeps a parameter constant."
            )


def copy_module(module: nn.Module, name: str) -> nn.Module:
    """Return a copy of a module; `name` is that of the model, for messages."""
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise ConfigError(
            f"the model {name} cannot be copied (copy.deepcopy): {error}. Each thread trains a "
            "copy: keep locks, files and results of computations out of the attributes of the "
            "module (torch.nn.utils.parametrizations.weight_norm instead of "
            "torch.nn.utils.weight_norm)."
        ) from error


class ModuleLayer:
    """A module as a function of its tensors. Its traits are found by `examine_module`."""

    fan_in = 1

    def __init__(self, module: nn.Module, name: str, num_outputs: int) -> None:
        self.module, self.name, self.num_outputs = module, name, num_outputs
        saved = module.state_dict()
        buffers = {name: value for name, value in module.named_buffers() if name in saved}
        self.params = {name: tuple(value.shape) for name, value in module.named_parameters()}
        self.buffers = {  # without masks of attention, whose infinite values have no mean
            name: tuple(value.shape)
            for name, value in buffers.items()
            if value.is_floating_point() and bool(torch.isfinite(value).all())
        }
        self.is_frozen = [not value.requires_grad for value in module.parameters()]
        self.is_unused = [False] * len(self.is_frozen)  # no gradient in training
        self.cost = sum(map(prod, self.params.values()))
        self.draws = self.draws_in_eval = False  # random numbers, in training and in evaluation
        self.mixes_samples = False  # in training
        self.smallest_batch = 1  # in training
        self.can_stack = False
        self.head: str | None = None  # the nn.Linear whose result is the output
        self._local = threading.local()

    @property
    def shapes(self) -> Mapping[str, Shape]:
        return {**self.params, **self.buffers}

    def out_shape(self, shape: Shape) -> Shape:
        return (self.num_outputs,)

    def multiply_adds(self, shape: Shape) -> int:
        return self.cost

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return self.call(weights, x)[0]

    def call(
        self, weights: Sequence[Tensor], x: Tensor, seed: int | None = None
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """Return outputs (B, C), features (B, F) and new buffers.

        With a seed the module is in training mode. Features are None if the outputs are not the
        result of an ``nn.Linear``.
        """
        training = seed is not None
        module, inputs = self.thread_copy, x.contiguous()
        if module.training != training:
            module.train(training)
        tensors = self._tensors(weights, training)
        for holder, key, name in self._local.slots:
            holder[key] = tensors[name]
        self._local.features = None
        draws = self.draws if training else self.draws_in_eval
        seed = CHECK_SEED if seed is None else seed
        with use_seed(seed, x.device.type) if draws else nullcontext():
            found = module(inputs)
        features, self._local.features = self._local.features, None
        outputs = self._convert_outputs(found, len(inputs))
        return outputs, features, self._get_buffers() if self.buffers else []

    def call_stacked(
        self, weights: Sequence[Tensor], x: Tensor, training: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return outputs (K, B, C) and features of K models; x is (K, B, ...)."""
        module, inputs = self.thread_copy, x.contiguous()
        module.train(training)

        def run(weights: Sequence[Tensor], x: Tensor) -> tuple[Tensor, ...]:
            self._local.features = None
            outputs = functional_call(module, self._tensors(weights, training), (x,))
            features, self._local.features = self._local.features, None
            outputs = self._convert_outputs(outputs, len(x))
            return (outputs,) if features is None else (outputs, features)

        found = vmap(run)(tuple(weights), inputs)
        return found[0], found[1] if len(found) > 1 else None

    def flatten(self, module: nn.Module) -> Floats32:
        """Return the tensors of a module as one vector."""
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        pieces = [tensors[name].detach().reshape(-1) for name in self.shapes]
        found: Floats32 = torch.cat(pieces).numpy()
        return found

    def _tensors(self, weights: Sequence[Tensor], training: bool) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for name, value, is_frozen in zip(self.params, weights, self.is_frozen, strict=False):
            tensors[name] = value.detach() if is_frozen else value
        for name, value in zip(self.buffers, weights[len(self.params) :], strict=True):
            tensors[name] = value.detach().clone() if training else value.detach()
        for name, value in self._get_constants(weights[0].device).items():
            tensors[name] = value.clone()
        return tensors

    def _get_buffers(self) -> list[Tensor]:
        """Return the buffers after a call, which may have changed or replaced them."""
        slots = self._local.slots
        found = {name: holder[key] for holder, key, name in slots if name in self.buffers}
        return [found[name] for name in self.buffers]

    @cached_property
    def constants(self) -> dict[str, Tensor]:
        """Buffers that are not in the vector: integers, infinite ones, those that are not saved."""
        return {k: v for k, v in self.module.named_buffers() if k not in self.buffers}

    def _get_constants(self, device: torch.device) -> dict[str, Tensor]:
        """Return the constants on a device, to which they are copied once per thread."""
        if device.type == "cpu":
            return self.constants
        copies = vars(self._local).setdefault("constants", {})
        if device not in copies:
            copies[device] = {name: value.to(device) for name, value in self.constants.items()}
        found: dict[str, Tensor] = copies[device]
        return found

    def _convert_outputs(self, found: Any, batch: int) -> Tensor:
        """Return the outputs as a tensor (B, C)."""
        outputs = found if isinstance(found, Tensor) else getattr(found, "logits", None)
        if not isinstance(outputs, Tensor):
            raise ConfigError(
                f"the model {self.name} must return one tensor of shape "
                f"(B, {self.num_outputs}), or an object with such a tensor as .logits; got "
                f"{_describe(found)}. Return the outputs only."
            )
        if self.num_outputs == 1 and outputs.ndim <= 1 and outputs.numel() == batch:
            outputs = outputs.reshape(batch, 1)  # the result of squeeze
        if outputs.shape != (batch, self.num_outputs):
            remedy = (
                "Change the size of its last layer (an argument of it is set with "
                f"{format_setting('net.options.NAME')}), or use other data."
            )
            if batch == 1 and outputs.numel() == self.num_outputs:
                remedy = (
                    "Keep the first axis: squeeze() also removes the axis of a batch of one; name "
                    "the axis, such as squeeze(2)."
                )
            elif self.num_outputs == 2 and outputs.numel() == batch:
                remedy += " One output for two classes needs loss=binary_cross_entropy."
            raise ConfigError(
                f"the model {self.name} must return outputs of shape (B, {self.num_outputs}) for "
                f"these data, got {tuple(outputs.shape)} for a batch of {batch}. {remedy}"
            )
        if outputs.dtype != torch.float32:
            raise ConfigError(
                f"the model {self.name} must return float32, got {outputs.dtype}. Convert the "
                "outputs with .float()."
            )
        return outputs

    @property
    def thread_copy(self) -> nn.Module:
        """The copy of the module for this thread."""
        found: nn.Module | None = getattr(self._local, "module", None)
        if found is None:
            found = copy_module(self.module, self.name).train()
            if self.head is not None:
                found.get_submodule(self.head).register_forward_pre_hook(self._keep_features)
            self._local.module, self._local.slots = found, _list_slots(found)
        return found

    def _keep_features(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._local.features = inputs[0]

    def forget_copies(self) -> None:
        self._local = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._local = threading.local()


@dataclass(frozen=True, eq=False)
class ModuleNet(Net):
    """The net of a module. Training and evaluation follow the module's own modes."""

    spec: Module = field(default_factory=Module)
    num_codes: int = 0

    @property
    def layer(self) -> ModuleLayer:
        (layer,) = self.layers
        assert isinstance(layer, ModuleLayer)
        return layer

    @cached_property
    def can_stack(self) -> bool:
        return self.layer.can_stack

    @property
    def trains_features(self) -> bool:
        """True unless the last layer is an nn.Linear that has all parameters that steps change."""
        named = zip(self.layer.params, self.layer.is_frozen, strict=True)
        owners = {name.rpartition(".")[0] for name, is_frozen in named if not is_frozen}
        return owners != {self.layer.head}

    @cached_property
    def is_noisy(self) -> bool:
        return True  # training mode is requested with seeds

    @property
    def output_bias(self) -> slice | None:
        """The biases of the last layer if it is an nn.Linear whose outputs are those of the net."""
        first = 0
        for name, shape in self.layer.params.items():
            if name == f"{self.layer.head}.bias" and shape == self.shapes[-1]:
                return slice(first, first + prod(shape))
            first += prod(shape)
        return None

    @property
    def num_buffers(self) -> int:
        return sum(map(prod, self.layer.buffers.values()))

    @property
    def smallest_batch(self) -> int:
        return self.layer.smallest_batch

    @cached_property
    def untrained(self) -> Tensor | None:
        layer = self.layer
        constant = np.logical_or(layer.is_frozen, layer.is_unused)
        mask = np.repeat([*constant, *(True for _ in layer.buffers)], self.sizes)
        return torch.from_numpy(np.flatnonzero(mask)) if mask.any() else None

    @cached_property
    def own_positions(self) -> Ints | None:
        """Positions of buffers and of parameters of normalisation layers, if they are local."""
        if self.spec.buffers != "local":
            return None
        own = {*self.layer.buffers, *_list_norm_params(self.layer.module)}
        found = [np.arange(each.start, each.stop) for each in self.param_slices if each.name in own]
        return np.concatenate(found)

    def init(self, rng: np.random.Generator, number: int = 0) -> Floats32:
        """Return initial tensors (P,) by the module's own rules.

        Model 0 of an instance has its present weights; others are drawn with
        ``reset_parameters``.
        """
        seed = int(rng.integers(2**63 - 1))
        module = make_module(self.spec, seed)
        if number > 0 and isinstance(self.spec.source, nn.Module):
            _reset(module, self.spec.name, seed)
        _materialise(module, self.spec, self.input_shape, self.num_codes, seed)
        return self.layer.flatten(module)

    def apply(self, params: Tensor, x: Tensor, noise: Generator | None = None) -> Tensor:
        return self.layer.call(self.split(params), x, _get_seed(noise))[0]

    def apply_and_update(
        self, weights: Sequence[Tensor], x: Tensor, seed: int | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return outputs (B, C), the values (Q,) of all buffers after the call, and features.

        `weights` are the tensors of `split`. With a seed the module is in training mode.
        """
        outputs, features, buffers = self.layer.call(weights, x, seed)
        updated = [value.detach().reshape(-1) for value in buffers]
        return outputs, torch.cat(updated) if updated else outputs.new_empty(0), features

    def apply_stacked(
        self, params: Tensor, x: Tensor, noise: Sequence[Generator] | None = None
    ) -> Tensor:
        return self._call_stacked(params, x, noise)[0]

    def with_features(
        self, params: Tensor, x: Tensor, noise: Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        outputs, features, _ = self.layer.call(self.split(params), x, _get_seed(noise))
        return outputs, self.require_features(features)

    def with_features_stacked(
        self, params: Tensor, x: Tensor, noise: Sequence[Generator] | None = None
    ) -> tuple[Tensor, Tensor]:
        outputs, features = self._call_stacked(params, x, noise)
        return outputs, self.require_features(features)

    def saved_tensors(self, params: Floats32) -> dict[str, npt.NDArray[Any]]:
        named = self.named_parameters(params)
        return {
            name: named[same] if (same := self._canonical[name]) in named else value.numpy()
            for name, value in self.layer.module.state_dict().items()
            if isinstance(value, Tensor)
        }

    def require_features(self, features: Tensor | None) -> Tensor:
        if features is None:
            raise ConfigError(
                "features are the input of the last, fully connected layer; expected a model whose "
                f"output is the result of an nn.Linear, but that of {self.spec.name} is not. End "
                "the model with an nn.Linear, or choose another objective."
            )
        return features

    @cached_property
    def _canonical(self) -> dict[str, str]:
        """The name in the vector of each saved tensor: tensors with several names occur once."""
        module = self.layer.module
        first = {id(value): name for name, value in reversed(list(module.named_parameters()))}
        tied = module.named_parameters(remove_duplicate=False)
        names = {name: first[id(value)] for name, value in tied}
        return {name: names.get(name, name) for name in module.state_dict()}

    def split(self, params: Tensor) -> list[Tensor]:
        """Return the tensors of a vector (P,), as views."""
        pieces = params.split(self.sizes)  # type: ignore[no-untyped-call]
        return [
            piece.view(shape)
            for piece, shape in zip(pieces, self.layer.shapes.values(), strict=True)
        ]

    def _call_stacked(
        self, params: Tensor, x: Tensor, noise: Sequence[Generator] | None
    ) -> tuple[Tensor, Tensor | None]:
        if noise is not None and len(noise) != len(params):
            raise ShapeMismatch(
                f"expected one generator for each of {len(params)} models, got {len(noise)}."
            )
        pieces = params.split(self.sizes, dim=1)  # type: ignore[no-untyped-call]
        shapes = self.layer.shapes.values()
        weights = [
            piece.view(len(params), *shape) for piece, shape in zip(pieces, shapes, strict=True)
        ]
        return self.layer.call_stacked(weights, x, training=noise is not None)

    def __reduce__(self) -> Any:
        """Other processes import the module from its path; instances are copied."""
        spec = self.spec
        if spec.can_reload():
            return build_module_net, (spec, self.input_shape, self.num_classes, self.num_codes)
        if not spec.path.startswith("python:"):
            raise pickle.PicklingError(f"{spec.path} is part of the running script.")
        state = (self.layers, self.input_shape, self.gain, Module(spec.path), self.num_codes)
        return ModuleNet, state


def _list_slots(module: nn.Module) -> list[tuple[dict[str, Any], str, str]]:
    """Return where a module keeps its tensors: a dictionary, a key, and the first name.

    A tensor with several names has several places.
    """
    first: dict[int, str] = {}
    found = []
    for path, each in module.named_modules():
        for holder in (each._parameters, each._buffers):
            for key, value in holder.items():
                if value is not None:
                    name = first.setdefault(id(value), f"{path}.{key}" if path else key)
                    found.append((holder, key, name))
    return found


def _get_seed(noise: Generator | None) -> int | None:
    return None if noise is None else noise.initial_seed()


def build_module_net(spec: Module, input_shape: Shape, num_outputs: int, num_codes: int) -> Net:
    """Return the net of a module after a check with a small batch."""
    module = make_module(spec, CHECK_SEED)
    _materialise(module, spec, input_shape, num_codes, CHECK_SEED)
    _check_tensors(module, spec)
    layer = ModuleLayer(module, spec.name, num_outputs)
    net = ModuleNet((layer,), input_shape, spec=spec, num_codes=num_codes)
    _examine(net, _make_batch(input_shape, num_codes))
    return net


# --- checks before the run ---


def _make_batch(input_shape: Shape, num_codes: int) -> Tensor:
    noise = Generator().manual_seed(CHECK_SEED)
    if num_codes:
        return torch.randint(num_codes, (CHECK_BATCH, input_shape[0]), generator=noise)
    return torch.randn((CHECK_BATCH, *input_shape), generator=noise)


def _materialise(
    module: nn.Module, spec: Module, input_shape: Shape, num_codes: int, seed: int
) -> None:
    """Give lazy layers their shapes."""
    if not any(is_lazy(value) for value in (*module.parameters(), *module.buffers())):
        return
    module.eval()
    x = _make_batch(input_shape, num_codes)
    with use_seed(seed), torch.no_grad():
        try:
            module(x)
        except Exception as error:
            _check_device(spec.name, lambda: module(x))
            raise _make_forward_error(spec.name, x, num_codes, error) from error


def _reset(module: nn.Module, name: str, seed: int) -> None:
    """Initialise all layers of a module again."""
    with use_seed(seed):
        for each in module.modules():
            if callable(reset := getattr(each, "reset_parameters", None)):
                reset()
            elif any(True for _ in each.parameters(recurse=False)):
                raise ConfigError(
                    f"the recipe needs several random models, but {type(each).__name__} of the "
                    f"model {name} has parameters and no reset_parameters. Add the method, or "
                    "pass the class instead of an instance."
                )


def _check_tensors(module: nn.Module, spec: Module) -> None:
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    if not any(True for _ in module.parameters()):
        raise ConfigError(
            f"the model {spec.name} has no parameters, so there is nothing to train. Use a module "
            "with layers such as nn.Linear, created in __init__."
        )
    for name, value in tensors.items():
        if value.device.type != "cpu":
            remedy = (
                "A tensor on this device has no values: create the model without device='meta'."
                if value.is_meta
                else "Move it with .cpu()."
            )
            raise ConfigError(
                f"the model {spec.name} must be on the CPU, but {name} is on {value.device}. "
                f"{remedy}"
            )
        if value.is_complex() or (value.is_floating_point() and value.dtype != torch.float32):
            raise ConfigError(
                f"the model {spec.name} must have float32 tensors, but {name} is {value.dtype}. "
                "Convert it with .float()."
            )
    for name, value in module.named_parameters():
        if not bool(torch.isfinite(value).all()):
            raise ConfigError(
                f"the model {spec.name} must start with finite numbers, but {name} contains nan or "
                "infinite values. Correct its initialisation."
            )
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) and layer.track_running_stats and layer.momentum is None:
            raise ConfigError(
                f"the layer {name} of the model {spec.name} has momentum=None: its statistics "
                "depend on the number of batches of one process, which clients do not share. Set "
                "a momentum, such as 0.1."
            )
    saved = module.state_dict()
    floats = [
        name
        for name, value in module.named_buffers()
        if name in saved and value.is_floating_point()
    ]
    if spec.buffers == "local" and not floats and not _list_norm_params(module):
        raise ConfigError(
            f"net.buffers=local keeps buffers and normalisation layers at the clients, but the "
            f"model {spec.name} has neither. Leave the setting out."
        )
    if floats and spec.buffers == "reject":
        raise ConfigError(
            f"the model {spec.name} has the buffers {', '.join(floats[:4])}"
            f"{', ...' if len(floats) > 4 else ''}, and net.buffers is reject. Use layers without "
            "buffers, such as GroupNorm, or set net.buffers to average."
        )


def _list_norm_params(module: nn.Module) -> list[str]:
    """Return the names of the parameters of normalisation layers."""
    return [
        f"{path}.{name}" if path else name
        for path, layer in module.named_modules()
        if isinstance(layer, NORMS)
        for name, _ in layer.named_parameters(recurse=False)
    ]


def _examine(net: ModuleNet, x: Tensor) -> None:
    """Call a module with a small batch, reject what cannot be trained, and store its traits."""
    layer, name = net.layer, net.spec.name
    params = torch.from_numpy(layer.flatten(layer.module))
    weights = net.split(params)
    with torch.no_grad():
        with use_seed(CHECK_SEED):
            for seed in (None, CHECK_SEED):
                _check_device(name, partial(layer.call, weights, x.clone(), seed))
            before = torch.get_rng_state()
            _call_checked(net, weights, x, None)
            layer.draws_in_eval = not torch.equal(before, torch.get_rng_state())
            before = torch.get_rng_state()
            _call_checked(net, weights, x, CHECK_SEED)
            layer.draws = not torch.equal(before, torch.get_rng_state())
        for seed in (None, CHECK_SEED):
            first = _call_checked(net, weights, x, seed)
            attributes = _copy_attributes(layer.thread_copy)
            second = _call_checked(net, weights, x, seed)
            _check_attributes(name, attributes, _copy_attributes(layer.thread_copy))
            if first.isnan().any():
                raise ConfigError(
                    f"the model {name} must return numbers, got nan for a small batch with its "
                    "initial weights. Check its initialisation, logarithms and divisions by zero."
                )
            if not torch.equal(first, second):
                raise ConfigError(
                    f"the model {name} gives different outputs for the same batch and the same "
                    "seed of torch. Draw its random numbers with torch, and keep no state outside "
                    "of buffers."
                )
        if not layer.draws_in_eval and not _are_samples_independent(net, weights, x, None):
            raise ConfigError(
                f"in evaluation, the output of the model {name} for one sample depends on the "
                f"other samples of the batch. Its input has shape {('B', *x.shape[1:])}: keep the "
                "first axis separate (recurrent layers: batch_first=True; BatchNorm: "
                "track_running_stats=True)."
            )
        layer.smallest_batch = 1 if _can_train_on_one(net, weights, x) else 2
        layer.mixes_samples = layer.draws or not _are_samples_independent(
            net, weights, x, CHECK_SEED
        )
    is_unused = _check_gradient(net, params, x)
    if any(is_unused) and _has_fixed_operations(net, x):
        layer.is_unused = is_unused
    layer.head = _find_head(net, weights, x)
    layer.forget_copies()
    layer.cost = max(_count_multiply_adds(net, weights, x[:1]), layer.cost)
    is_pure = not (layer.mixes_samples or layer.draws or layer.draws_in_eval or layer.buffers)
    layer.can_stack = is_pure and gains_from_stacking(layer.module) and _check_stacked(net, x)


def _call_checked(net: ModuleNet, weights: Sequence[Tensor], x: Tensor, seed: int | None) -> Tensor:
    layer, name, inputs = net.layer, net.spec.name, x.clone()
    try:
        outputs, _, buffers = layer.call(weights, inputs, seed)
    except ConfigError:
        raise
    except Exception as error:
        raise _make_forward_error(name, x, net.num_codes, error) from error
    if not torch.equal(inputs, x):
        raise ConfigError(
            f"the model {name} changes its input in place, which is used again. Use an "
            "operation that returns a new tensor, such as x = x + 1 instead of x += 1, or "
            "relu(x) instead of relu_(x)."
        )
    for (buffer, shape), value in zip(layer.buffers.items(), buffers, strict=True):
        if value.shape != shape or value.dtype != torch.float32:
            raise ConfigError(
                f"forward of the model {name} must keep the shape and type of the buffer {buffer}, "
                f"float32 {shape}, got {value.dtype} {tuple(value.shape)}. Assign a tensor of the "
                "same shape and type."
            )
    return outputs


def _check_gradient(net: ModuleNet, params: Tensor, x: Tensor) -> list[bool]:
    """Reject a module whose outputs have no gradient; return which parameters have none."""
    name, at = net.spec.name, params.clone().requires_grad_()
    weights = net.split(at)
    outputs = _call_checked(net, weights, x, CHECK_SEED)
    if not outputs.requires_grad:
        raise ConfigError(
            f"the outputs of the model {name} do not depend on a trainable parameter, so there is "
            "nothing to train. Compute them in forward without torch.no_grad and detach, and leave "
            "requires_grad=True for some parameters."
        )
    try:
        _, *found = torch.autograd.grad(outputs.sum(), [at, *weights], allow_unused=True)
    except Exception as error:
        raise ConfigError(
            f"the gradient of the model {name} failed with {type(error).__name__}: {error}. Use "
            "dense gradients (sparse=False), and do not change parameters or intermediate results "
            "in place."
        ) from error
    return [gradient is None for gradient in found[: len(net.layer.params)]]


def _can_train_on_one(net: ModuleNet, weights: Sequence[Tensor], x: Tensor) -> bool:
    """Return whether a module in training accepts one sample; BatchNorm and variances do not."""
    try:
        outputs = _call_checked(net, weights, x[:1], CHECK_SEED)
    except ConfigError:
        return False
    return not bool(outputs.isnan().any())


def _are_samples_independent(
    net: ModuleNet, weights: Sequence[Tensor], x: Tensor, seed: int | None
) -> bool:
    """Return whether a batch gives the outputs of its samples alone.

    In training a module may reject a batch of one sample, as BatchNorm does.
    """
    together = net.layer.call(weights, x, seed)[0]
    try:
        alone = torch.cat([_call_checked(net, weights, each, seed) for each in x.split(1)])  # type: ignore[no-untyped-call]
    except ConfigError:
        if seed is None:
            raise
        return False
    return torch.allclose(together, alone, rtol=1e-3, atol=1e-5, equal_nan=True)


def _find_head(net: ModuleNet, weights: Sequence[Tensor], x: Tensor) -> str | None:
    """Return the name of the ``nn.Linear`` whose result is the output, if there is one."""
    module = copy.deepcopy(net.layer.module).eval()
    calls: list[tuple[str, Tensor, Tensor, int]] = []

    def record(name: str) -> Any:
        def hook(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            calls.append((name, inputs[0], output, output._version))

        return hook

    for name, each in module.named_modules():
        if isinstance(each, nn.Linear):
            each.register_forward_hook(record(name))
    with torch.no_grad(), use_seed(CHECK_SEED):
        found = functional_call(module, net.layer._tensors(weights, False), (x.clone(),))
    outputs = net.layer._convert_outputs(found, len(x))
    if not calls or calls[-1][1].ndim != 2:
        return None
    name, _, last, version = calls[-1]
    is_same = last.shape == outputs.shape and last.data_ptr() == outputs.data_ptr()
    is_output = is_same and last._version == version  # a later layer may change it in place
    return name if is_output and sum(call[0] == name for call in calls) == 1 else None


def _count_multiply_adds(net: ModuleNet, weights: Sequence[Tensor], x: Tensor) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        net.layer.call(weights, x)
    return int(counter.get_total_flops()) // 2


def gains_from_stacking(module: nn.Module) -> bool:
    """Return whether several models at once are faster than one after the other.

    They are if the matrices are so small that most of the time is spent between operations.
    Stacked convolutions and recurrent layers are slower.
    """
    slow = (nn.modules.conv._ConvNd, nn.RNNBase, nn.RNNCellBase)
    num_params = sum(value.numel() for value in module.parameters())
    is_slow = any(isinstance(each, slow) for each in module.modules())
    return num_params <= STACK_PARAMS and not is_slow


def _has_fixed_operations(net: ModuleNet, x: Tensor) -> bool:
    """Return whether forward calls the same operations for all values of its tensors.

    It is called with tensors without values. Python code that reads a value raises an error.
    """
    params = torch.from_numpy(net.layer.flatten(net.layer.module))
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    weights = [mode.from_tensor(each) for each in net.split(params)]
    try:
        with mode, torch.no_grad():
            net.layer.call(weights, mode.from_tensor(x), CHECK_SEED)
    except Exception:  # also operations that cannot be called without values
        return False
    return True


def _check_stacked(net: ModuleNet, x: Tensor) -> bool:
    """Return whether the stacked form works and gives the outputs of the single models.

    Operations that `vmap` computes one after the other give a warning, and are not faster.
    """
    rng = np.random.default_rng(CHECK_SEED)
    first = torch.from_numpy(net.layer.flatten(net.layer.module))
    change = torch.from_numpy(rng.normal(0, 0.01, len(first)).astype(np.float32))
    params = torch.stack([first, first + change]).requires_grad_()
    inputs = torch.stack([x, x.flip(0)])
    noise = [Generator().manual_seed(CHECK_SEED) for _ in range(2)]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "There is a performance drop", UserWarning)
            stacked = net.apply_stacked(params, inputs, noise)
            (gradient,) = torch.autograd.grad(stacked.square().sum(), params)
        alone = torch.stack([net.apply(*each) for each in zip(params, inputs, noise, strict=True)])
        (expected,) = torch.autograd.grad(alone.square().sum(), params)
    except (RuntimeError, ValueError, TypeError, UserWarning):  # operations without vmap
        return False
    is_same = torch.allclose(stacked, alone, rtol=1e-3, atol=1e-5)
    return is_same and torch.allclose(gradient, expected, rtol=1e-2, atol=1e-4)


class DeviceRecorder(TorchFunctionMode):
    """Records the first device other than the CPU that a call of torch names or returns."""

    device = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for value in (*args, *(kwargs or {}).values(), getattr(func, "__name__", "")):
            self._record(value)
        result = func(*args, **(kwargs or {}))
        self._record(result)
        return result

    def _record(self, value: Any) -> None:
        device = value.device if isinstance(value, Tensor) else value
        if isinstance(device, str):  # a device, or another argument or name
            try:
                device = torch.device(device)
            except RuntimeError:
                return
        if isinstance(device, torch.device) and device.type != "cpu":
            self.device = self.device or str(device)


def _check_device(name: str, call: Callable[[], object]) -> None:
    """Reject a module that uses another device than the CPU in a call."""
    recorder = DeviceRecorder()
    with recorder, suppress(Exception):  # other errors are reported later
        call()
    if recorder.device:
        raise ConfigError(
            f"the model {name} must compute on the CPU, where its parameters and inputs are, but "
            f"forward uses the device {recorder.device}. Create all tensors on the device of the "
            "input (device=x.device), and do not move them."
        )


def _make_forward_error(name: str, x: Tensor, num_codes: int, error: Exception) -> ConfigError:
    what = f"integers below {num_codes}" if num_codes else "float32"
    shape = ", ".join(map(str, ("B", *x.shape[1:])))
    return ConfigError(
        f"the model {name} failed with {type(error).__name__}: {error}. It receives {what} "
        f"({shape}), here with B = {len(x)}, and must return one row of outputs per sample. Change "
        "the model, or use other data."
    )


def _copy_attributes(module: nn.Module) -> dict[str, Any]:
    """Return copies of the attributes of a module and its layers that are not registered."""
    own = vars(nn.Module()).keys()
    return {
        f"{path}.{name}" if path else name: _copy_plain(value)
        for path, each in module.named_modules()
        for name, value in vars(each).items()
        if name not in own
    }


def _copy_plain(value: Any) -> Any:
    """Return a copy of numbers, texts, tensors and collections of them; None for other objects."""
    if isinstance(value, Tensor):
        return value.detach().clone() if value.is_cpu and value.layout == torch.strided else None
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _copy_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [_copy_plain(each) for each in value]
    return value if isinstance(value, bool | int | float | complex | str | bytes) else None


def _is_same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_is_same(first[k], second[k]) for k in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_is_same, first, second))
    return type(first) is type(second) and repr(first) == repr(second)  # nan equals nan


def _check_attributes(name: str, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Reject a module whose attributes differ after a second call with the same batch.

    A result that is kept for later calls has the same value after both calls.
    """
    for attribute, value in after.items():
        if not _is_same(before.get(attribute), value):
            raise ConfigError(
                f"forward of the model {name} changes its attribute {attribute} in every call, "
                "which clients do not share and checkpoints do not store. Expected no state "
                "outside of buffers: remove the change, or keep the value as a float32 tensor "
                f"with register_buffer({attribute.rpartition('.')[2]!r}, ...)."
            )


def _describe(found: Any) -> str:
    if isinstance(found, tuple | list):
        return f"a {type(found).__name__} of {len(found)}"
    if isinstance(found, dict):
        return f"a dict with {', '.join(map(str, found)) or 'nothing'}"
    return type(found).__name__
