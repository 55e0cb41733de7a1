"""Optimizers of clients: how a gradient changes the parameters of a model."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_ranges, parse
from thalweg.core.errors import ConfigError, UnknownName, require
from thalweg.core.registry import plain_options, registered_name
from thalweg.core.tensors import get_wide_dtype

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Shapes = Sequence[tuple[int, ...]]
ClientOptimizerState = dict[str, npt.NDArray[Any]]  # of one client, as a checkpoint stores it
StackState = dict[str, Any]  # name -> tensor (K, ...), or a list of K `TorchSteps`

# Options of torch.optim classes that other settings define, and where to set them.
_SETTINGS = {"lr": "local.lr", "momentum": "local.momentum", "weight_decay": "local.weight_decay"}
# Options that choose an implementation or change the meaning of a loss.
_FIXED_OPTIONS = {"params", "maximize", "foreach", "fused", "capturable", "differentiable"}
_UNSUITABLE = {
    "lbfgs": "it evaluates the loss several times per step",
    "sparseadam": "it needs sparse gradients, and those of nets are dense",
}


class StepSettings(NamedTuple):
    """The settings of `LocalTraining` that optimizers share."""

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0


class Optimizer(Protocol):
    """Changes parameters by gradients. Implement the members; no base class is needed.

    It is written for K clients at once, which may have taken different numbers of steps. What it
    computes for client k may depend only on row k of the tensors.
    """

    @property
    def accepts_momentum(self) -> bool:
        """Whether it uses `LocalTraining.momentum`."""
        ...

    @property
    def accepts_weight_decay(self) -> bool:
        """Whether it uses `LocalTraining.weight_decay`."""
        ...

    def init(self, params: Tensor, settings: StepSettings, shapes: Shapes) -> StackState:
        """Return the state before the first step: tensors (K, ...) by name.

        `params` are (K, P), and `shapes` those of the parameter tensors that make up P.
        """
        ...

    def step(
        self,
        params: Tensor,
        gradient: Tensor,
        state: StackState,
        settings: StepSettings,
        lr_scale: Tensor | None = None,
    ) -> None:
        """Take one step, without autograd: changes `params` (K, P) and `state` in place.

        `lr_scale` (K, 1) multiplies each client's learning rate; None: no scaling.
        """
        ...


@dataclass(frozen=True)
class Sgd:
    r"""Stochastic gradient descent, with momentum and weight decay.

    .. math::
        g = \nabla F(w) + \lambda w, \qquad v \leftarrow \mu v + g, \qquad w \leftarrow w - \eta v

    Symbols, as in ``torch.optim.SGD`` -> here
        :math:`\eta`      -> local.lr
        :math:`\mu`       -> local.momentum; the velocity v starts at zero
        :math:`\lambda`   -> local.weight_decay

    Two steps with gradient 2: v = 2 and w = 1 - 0.5 * 2 = 0, then v = 0.5 * 2 + 2 = 3 and w = -1.5.

    >>> import torch
    >>> settings, params = StepSettings(lr=0.5, momentum=0.5), torch.ones(1, 1)
    >>> state = Sgd().init(params, settings, shapes=[(1,)])
    >>> for _ in range(2):
    ...     Sgd().step(params, torch.tensor([[2.0]]), state, settings)
    >>> params.item()
    -1.5
    """

    @property
    def accepts_momentum(self) -> bool:
        return True

    @property
    def accepts_weight_decay(self) -> bool:
        return True

    def init(self, params: Tensor, settings: StepSettings, shapes: Shapes) -> StackState:
        import torch

        return {"velocity": torch.zeros_like(params)} if settings.momentum else {}

    def step(
        self,
        params: Tensor,
        gradient: Tensor,
        state: StackState,
        settings: StepSettings,
        lr_scale: Tensor | None = None,
    ) -> None:
        direction = self.direction(params, gradient, state, settings)
        if lr_scale is None:
            params.add_(direction, alpha=-settings.lr)
        else:
            params.sub_(direction * (settings.lr * lr_scale))

    def direction(
        self, params: Tensor, gradient: Tensor, state: StackState, settings: StepSettings
    ) -> Tensor:
        """Return the gradient with weight decay and momentum. Changes the velocity in place."""
        if settings.weight_decay:
            gradient = gradient.add(params, alpha=settings.weight_decay)
        if settings.momentum:
            velocity: Tensor = state["velocity"]
            gradient = velocity.mul_(settings.momentum).add_(gradient)
        return gradient


@dataclass(frozen=True)
class Adam:
    r"""Adam: steps scaled by running means of the gradient and of its square.

    .. math::
        g = \nabla F(w) + \lambda w, \qquad
        m \leftarrow \beta_1 m + (1 - \beta_1) g, \qquad
        v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \qquad
        w \leftarrow w - \eta \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}

    Symbols, Kingma and Ba (2015), as in ``torch.optim.Adam`` -> here
        :math:`\beta_1, \beta_2`  -> betas
        :math:`\epsilon`          -> eps
        :math:`\eta, \lambda`     -> local.lr, local.weight_decay
        t                         steps of this client, counted from 1

    The first step has length lr in every coordinate, whatever the gradient:

    >>> import torch
    >>> settings, params = StepSettings(lr=0.1), torch.tensor([[1.0, 1.0]])
    >>> adam = Adam()
    >>> state = adam.init(params, settings, shapes=[(2,)])
    >>> adam.step(params, torch.tensor([[5.0, -0.01]]), state, settings)
    >>> [round(value, 4) for value in params[0].tolist()]
    [0.9, 1.1]
    """

    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of the means of the gradient and of its square."""
    eps: float = 1e-8
    """Added to the denominator."""

    def __post_init__(self) -> None:
        check_ranges(self, eps="[0, inf)")
        require(
            len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas),
            f"betas must be two numbers in [0, 1), got {self.betas}.",
        )

    @property
    def accepts_momentum(self) -> bool:
        return False

    @property
    def accepts_weight_decay(self) -> bool:
        return True

    def init(self, params: Tensor, settings: StepSettings, shapes: Shapes) -> StackState:
        import torch

        wide = get_wide_dtype(params.device)
        return {
            "num_steps": torch.zeros(len(params), dtype=wide, device=params.device),
            "mean": torch.zeros_like(params),
            "square": torch.zeros_like(params),
        }

    def step(
        self,
        params: Tensor,
        gradient: Tensor,
        state: StackState,
        settings: StepSettings,
        lr_scale: Tensor | None = None,
    ) -> None:
        if settings.weight_decay:
            gradient = gradient.add(params, alpha=settings.weight_decay)
        num_steps: Tensor = state["num_steps"].add_(1)
        steps, (beta_mean, beta_square) = num_steps.view(-1, 1), self.betas
        mean: Tensor = state["mean"].mul_(beta_mean).add_(gradient * (1 - beta_mean))
        square: Tensor = state["square"].mul_(beta_square)
        square.add_(gradient.square().mul_(1 - beta_square))
        step_size = (_scale_lr(settings, lr_scale) / (1 - beta_mean**steps)).float()
        root = (1 - beta_square**steps).sqrt().float()
        params.sub_((mean * step_size).div_(square.sqrt().div_(root).add_(self.eps)))


@dataclass(frozen=True)
class AdamW(Adam):
    r"""AdamW: Adam with weight decay that is not scaled by the running means.

    .. math::
        w \leftarrow (1 - \eta \lambda) w - \eta \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 -
        \beta_2^t)} + \epsilon}

    with m and v as in `Adam`, but of the gradient without weight decay.

    Symbols, Loshchilov and Hutter (2019), as in ``torch.optim.AdamW`` -> here
        :math:`\beta_1, \beta_2`  -> betas
        :math:`\epsilon`          -> eps
        :math:`\eta, \lambda`     -> local.lr, local.weight_decay

    The weight decay is that of the scenario (often 0), not 0.01 as in PyTorch. Without weight
    decay AdamW is Adam.

    Weight decay first: 1 * (1 - 0.1 * 0.5) = 0.95; then a step of length 0.1.

    >>> import torch
    >>> settings, params = StepSettings(lr=0.1, weight_decay=0.5), torch.tensor([[1.0]])
    >>> adamw = AdamW()
    >>> state = adamw.init(params, settings, shapes=[(1,)])
    >>> adamw.step(params, torch.tensor([[3.0]]), state, settings)
    >>> round(params.item(), 4)
    0.85
    """

    def step(
        self,
        params: Tensor,
        gradient: Tensor,
        state: StackState,
        settings: StepSettings,
        lr_scale: Tensor | None = None,
    ) -> None:
        if settings.weight_decay:
            keep = 1 - _scale_lr(settings, lr_scale) * settings.weight_decay
            params.mul_(keep if isinstance(keep, float) else keep.float())
        super().step(params, gradient, state, settings._replace(weight_decay=0.0), lr_scale)


@dataclass(frozen=True)
class TorchOptimizer:
    """Any other optimizer of ``torch.optim``, by its name, such as rmsprop, adagrad or nadam.

    ``--set local.optimizer=rmsprop --set local.optimizer.alpha=0.9``; in Python
    ``optimizer="rmsprop"`` or ``optimizer=TorchOptimizer("rmsprop", {"alpha": 0.9})``.

    Upper and lower case do not matter. The learning rate, momentum and weight decay are those of
    `LocalTraining`; all other arguments of the class are options. Clients of a stack take their
    steps one after the other, on tensors with the shapes that the net has, so that it is slower
    than ``adam`` and ``adamw``. Optimizers that evaluate the loss several times per step (LBFGS) or
    need sparse gradients (SparseAdam) are rejected.

    The first step of Adagrad has length lr:

    >>> import torch
    >>> settings, params = StepSettings(lr=0.5), torch.tensor([[1.0]])
    >>> adagrad = TorchOptimizer("adagrad")
    >>> state = adagrad.init(params, settings, shapes=[(1,)])
    >>> adagrad.step(params, torch.tensor([[3.0]]), state, settings)
    >>> round(params.item(), 4)
    0.5
    """

    name: str = registered_name(lambda: list_torch_optimizers())
    """A class of torch.optim."""
    options: dict[str, Any] = plain_options(default_factory=dict)
    """Other arguments of the class than lr, momentum and weight_decay."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", str(self.name).lower())
        options = {name: _plain_option(value) for name, value in self.options.items()}
        object.__setattr__(self, "options", options)
        cls = self._find_class()
        accepted = _arguments(cls) - _FIXED_OPTIONS - _SETTINGS.keys()
        for name in options:
            if name in _SETTINGS:
                raise ConfigError(
                    f"local.optimizer: {name} is not an option of {self.name}; set "
                    f"{_SETTINGS[name]} instead."
                )
            if name not in accepted:
                raise UnknownName(f"option of local.optimizer={self.name}", name, accepted)
        self._try_options()

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(map(str, self.options.items())))))

    @property
    def accepts_momentum(self) -> bool:
        return "momentum" in _arguments(self._find_class())

    @property
    def accepts_weight_decay(self) -> bool:
        return "weight_decay" in _arguments(self._find_class())

    def adapt_settings(self, settings: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Accept options as settings: names that are not fields are added to the options."""
        options = {**self.options, **settings.get("options", {})}
        options |= {name: settings[name] for name in settings if name not in ("name", "options")}
        fields = {name: settings[name] for name in settings if name == "name"}
        return {**fields, "options": options}

    def init(self, params: Tensor, settings: StepSettings, shapes: Shapes) -> StackState:
        steps = [self.make_steps(settings, shapes, params.device) for _ in range(len(params))]
        return {"clients": steps}

    def step(
        self,
        params: Tensor,
        gradient: Tensor,
        state: StackState,
        settings: StepSettings,
        lr_scale: Tensor | None = None,
    ) -> None:
        clients = state["clients"]
        scales = [1.0] * len(clients) if lr_scale is None else lr_scale.flatten().tolist()
        for k, (client, scale) in enumerate(zip(clients, scales, strict=True)):
            client.step(params[k], gradient[k], settings.lr * scale)

    def make_steps(
        self, settings: StepSettings, shapes: Shapes, device: torch.device | None = None
    ) -> TorchSteps:
        """Return the optimizer of one client; its tensors are on a device (None: the CPU)."""
        options: dict[str, Any] = {"lr": settings.lr, **self._used_options()}
        if self.accepts_momentum:
            options["momentum"] = settings.momentum
        if self.accepts_weight_decay:
            options["weight_decay"] = settings.weight_decay
        return TorchSteps(self._find_class(), shapes, options, device)

    def _find_class(self) -> type[torch.optim.Optimizer]:
        known = list_torch_optimizers()
        if self.name in _UNSUITABLE:
            raise ConfigError(
                f"local.optimizer={self.name} cannot train clients: {_UNSUITABLE[self.name]}. "
                "Choose another optimizer, such as adam."
            )
        if self.name not in known:
            raise UnknownName("local.optimizer", self.name, [*known, *OPTIMIZERS])
        return known[self.name]

    def _used_options(self) -> dict[str, Any]:
        return {name: None if value == "none" else value for name, value in self.options.items()}

    def _try_options(self) -> None:
        """Reject invalid values of options, and classes that cannot take a step."""
        momentum = 0.9 if self.accepts_momentum else 0.0  # some options need momentum
        try:
            _try_step(self.make_steps(StepSettings(0.1, momentum), [(2, 2)]), [(2, 2)])
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"local.optimizer={self.name} rejects its options {self.options}: "
                f"{_as_clause(error)}. Change the options, or use another optimizer, such as adam."
            ) from error


class TorchSteps:
    """An optimizer of torch.optim for the flat parameters (P,) of one client."""

    def __init__(
        self,
        cls: type[torch.optim.Optimizer],
        shapes: Shapes,
        options: Mapping[str, Any],
        device: torch.device | None = None,
    ) -> None:
        import torch

        self._tensors = [torch.empty(shape, device=device) for shape in shapes]
        plain: dict[str, Any] = {"foreach": False} if "foreach" in _arguments(cls) else {}
        self._optimizer: Any = cls(self._tensors, **plain, **options)

    def step(self, params: Tensor, gradient: Tensor, lr: float) -> None:
        """Take one step: changes the flat parameters (P,) in place."""
        first = 0
        for tensor in self._tensors:
            mine = slice(first, first + tensor.numel())
            tensor.data = params[mine].view(tensor.shape)  # shares memory with the parameters
            tensor.grad = gradient[mine].view(tensor.shape)
            first = mine.stop
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()

    def export(self) -> ClientOptimizerState:
        """Return the state of the optimizer as arrays by "tensor.name"."""
        import torch

        return {
            f"{index}.{name}": np.array(
                value.cpu().numpy() if isinstance(value, torch.Tensor) else value
            )
            for index, tensor in enumerate(self._tensors)
            for name, value in self._optimizer.state[tensor].items()
            if value is not None
        }

    def restore(self, exported: Mapping[str, npt.NDArray[Any]]) -> None:
        """Continue from an exported state."""
        import torch

        for key, value in exported.items():
            index, name = key.split(".", maxsplit=1)
            tensor = self._tensors[int(index)]
            device = "cpu" if name == "step" else tensor.device  # as torch.optim does
            self._optimizer.state[tensor][name] = torch.tensor(value, device=device)


def make_reference_steps(
    optimizer: Optimizer, settings: StepSettings, shapes: Shapes
) -> TorchSteps | None:
    """Return PyTorch's own implementation of an optimizer for one client.

    None if PyTorch does not have this optimizer.
    """
    import torch

    if isinstance(optimizer, TorchOptimizer):
        return optimizer.make_steps(settings, shapes)
    classes: dict[type, type[torch.optim.Optimizer]] = {
        Adam: torch.optim.Adam,
        AdamW: torch.optim.AdamW,
    }
    if not isinstance(optimizer, Adam) or type(optimizer) not in classes:
        return None
    options = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    return TorchSteps(
        classes[type(optimizer)],
        shapes,
        {**options, "betas": optimizer.betas, "eps": optimizer.eps},
    )


def try_optimizer(optimizer: Optimizer, settings: StepSettings, shapes: Shapes) -> None:
    """Raise a `ConfigError` if an optimizer of torch.optim does not accept the tensors of a net."""
    if not isinstance(optimizer, TorchOptimizer):
        return
    try:
        _try_step(optimizer.make_steps(settings, shapes), shapes)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"local.optimizer={optimizer.name} does not accept the parameters of the net, or the "
            f"settings {settings}: {_as_clause(error)}. Use another optimizer, such as adam, or a "
            "net that it accepts."
        ) from error


def _try_step(steps: TorchSteps, shapes: Shapes) -> None:
    import torch

    params = torch.zeros(sum(math.prod(shape) for shape in shapes))
    steps.step(params, torch.ones_like(params), lr=0.1)


def _as_clause(error: Exception) -> str:
    return str(error).rstrip(".")


def select_rows(
    state: StackState, rows: npt.NDArray[np.int64], index: Tensor | None = None
) -> StackState:
    """Return the state of some clients of a stack; tensors are copied.

    `index` are the rows on the device of the state, if it is not the CPU.
    """
    import torch

    index = torch.from_numpy(rows) if index is None else index
    return {
        name: [value[k] for k in rows] if isinstance(value, list) else value[index]
        for name, value in state.items()
    }


def write_rows(
    state: StackState,
    rows: npt.NDArray[np.int64],
    chosen: StackState,
    index: Tensor | None = None,
) -> None:
    """Write the result of `select_rows` back after a step."""
    import torch

    index = torch.from_numpy(rows) if index is None else index
    for name, value in state.items():
        if not isinstance(value, list):  # the objects of a list have changed in place
            value[index] = chosen[name]


def export_row(state: StackState, k: int) -> ClientOptimizerState:
    """Return the state of client k of a stack as arrays, for a checkpoint."""
    exported: ClientOptimizerState = {}
    for name, value in state.items():
        if isinstance(value, list):
            exported |= value[k].export()
        else:
            exported[name] = value[k].cpu().numpy().copy()
    return exported


def restore_row(state: StackState, k: int, exported: Mapping[str, npt.NDArray[Any]]) -> None:
    """Set the state of client k of a stack to an exported one."""
    import torch

    for name, value in state.items():
        if isinstance(value, list):
            value[k].restore(exported)
        else:
            value[k] = torch.tensor(exported[name])


def list_torch_optimizers() -> dict[str, type[torch.optim.Optimizer]]:
    """Return the suitable classes of torch.optim by their names in lower case."""
    import torch

    base = torch.optim.Optimizer
    return {
        name.lower(): cls
        for name, cls in vars(torch.optim).items()
        if isinstance(cls, type)
        and issubclass(cls, base)
        and cls is not base
        and name.lower() not in _UNSUITABLE
    }


def expand_optimizer(value: Any) -> Any:
    """Convert the name or class of a torch.optim optimizer to the settings of `TorchOptimizer`.

    >>> expand_optimizer("RMSprop")
    {'kind': 'torch', 'name': 'RMSprop', 'options': {}}
    >>> expand_optimizer({"kind": "Adam", "eps": 0.1})
    {'kind': 'adam', 'eps': 0.1}
    """
    if isinstance(value, type) and value.__module__.startswith("torch.optim"):
        value = value.__name__
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        return value
    kind, rest = value["kind"], {name: value[name] for name in value if name != "kind"}
    if kind.lower() in OPTIMIZERS:
        return {"kind": kind.lower(), **rest}
    if ":" in kind or kind.endswith(".py"):  # a user-defined optimizer
        return value
    options = {**rest.pop("options", {}), **rest}
    return {"kind": "torch", "name": kind, "options": options}


def _arguments(cls: type[torch.optim.Optimizer]) -> set[str]:
    return set(inspect.signature(cls).parameters)


def _plain_option(value: Any) -> Any:
    """Return an option as a plan stores it: tuples instead of lists, "none" instead of None.

    >>> _plain_option("0.9,0.99"), _plain_option([1, 2]), _plain_option(None)
    ((0.9, 0.99), (1, 2), 'none')
    """
    if isinstance(value, str) and "," in value:
        value = parse(f"[{value}]")
    if value is None:
        return "none"
    return tuple(value) if isinstance(value, list) else value


def _scale_lr(settings: StepSettings, lr_scale: Tensor | None) -> float | Tensor:
    """Return the learning rate, or those of the clients (K, 1) in float64."""
    if lr_scale is None:
        return settings.lr
    return settings.lr * lr_scale.to(get_wide_dtype(lr_scale.device))


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": Sgd,
    "adam": Adam,
    "adamw": AdamW,
    "torch": TorchOptimizer,
}
