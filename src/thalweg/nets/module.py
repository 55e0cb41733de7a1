"""The net specification for a user's ``torch.nn.Module``.

torch is imported only when a net is built or an object is described.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from thalweg.core.config import check_literals, find_source, list_names, load_object
from thalweg.core.errors import ConfigError, require
from thalweg.core.registry import local_object, local_path, plain_options
from thalweg.nets.builders import NetSpec
from thalweg.nets.net import Net, Shape

if TYPE_CHECKING:
    from torch import nn

IN_PYTHON = "python:"  # prefix of the path of an object that cannot be imported


@dataclass(frozen=True)
class Module:
    """Any ``torch.nn.Module``, from a file or a package, or an object passed to `thalweg.run`.

    `path` is ``file.py:Net`` or ``package.module:Net``, where ``Net`` is a class or a function that
    returns a module. The module maps a batch of samples to outputs (B, C). Its parameters follow
    its own initialisation with the seed of the run.

    An object that cannot be imported (an instance, a lambda, a class of a notebook) has the path
    ``python:NAME``. The plan stores its name and the digest of its tensors, but not the object.
    The plan of a module in a file stores the digest of the file, which a resumed run checks.

    >>> net = Module("torch.nn:Linear", {"in_features": 4, "out_features": 3}).build((4,), 3)
    >>> [(piece.name, piece.stop - piece.start) for piece in net.param_slices]
    [('weight', 12), ('bias', 3)]
    """

    path: str = local_object(default="", is_lazy=True)
    """``file.py:Net`` or ``package.module:Net``."""
    options: dict[str, Any] = plain_options(default_factory=dict, hash=False)
    """Keyword arguments for the class or function."""
    buffers: Literal["average", "local", "reject"] = "average"
    """Floating-point buffers, such as the statistics of BatchNorm: average them like parameters;
    local: each client continues from its own buffers and normalisation layers, and the server has
    their average (FedBN, Li et al., 2021); or reject modules that have them."""
    digest: str = local_path(default="")
    """Digest of the file of `path`, or of the names and shapes of the tensors of an object that
    cannot be imported; empty for a package. Set when a plan is made."""
    source: Any = field(default=None, repr=False, compare=False, metadata={"in_plan": False})
    """The object itself, if it was passed from Python."""

    def __post_init__(self) -> None:
        check_literals(self)
        require(
            self.source is None or callable(self.source),
            f"source: expected a torch.nn.Module or a function for one, got {self.source!r}.",
        )
        for name, value in self.options.items():
            require(
                name.isidentifier() and _is_plain(value),
                f"net.options.{name}={value!r}: expected a number, a text, a truth value or a list "
                "of these, because the plan stores it. Pass a function without arguments as the "
                "model instead.",
            )

    @property
    def name(self) -> str:
        """The name in messages: the last part of the path."""
        return self.path.rpartition(":")[2] or "module"

    def build(self, input_shape: Shape, num_classes: int, num_codes: int = 0) -> Net:
        """Import the module, check it with a small batch, and return it as a net.

        `num_codes` is not 0 if samples are sequences of codes, which the module receives as
        integers (B, L).
        """
        from thalweg.nets.module_net import build_module_net

        return build_module_net(self, tuple(input_shape), num_classes, num_codes)

    def load(self) -> Any:
        """Return the module instance, or the class or function that makes one."""
        if self.source is not None:
            return self.source
        require(
            ":" in self.path,
            f"net.path={self.path!r}: expected file.py:NAME or package.module:NAME, such as "
            "--model net.py:Net.",
        )
        if self.path.startswith(IN_PYTHON):
            raise ConfigError(
                f"the model {self.name} was passed as an object from Python and cannot be imported "
                "here. Pass the same model again (thalweg.run(..., model=MODEL, out=FOLDER, "
                f"resume=True)), or put it into a file and use --model FILE.py:{self.name}."
            )
        self._check_file()
        found = load_object(self.path)
        if not callable(found):
            raise ConfigError(
                f"{self.path}: expected a torch.nn.Module or a function that returns one, found "
                f"{'nothing of that name' if found is None else repr(found)}."
                f"{list_names(self.path)}"
            )
        return found

    def _check_file(self) -> None:
        """Raise an error if the file has changed since the plan was made."""
        actual = compute_file_digest(self.path)
        if self.digest and actual and actual != self.digest:
            raise ConfigError(
                f"{self.path.rpartition(':')[0]} has changed since the plan was made: expected the "
                f"digest {self.digest}, got {actual}. Restore the file to continue the run, or "
                "start a new run with the present file in another folder."
            )

    def can_reload(self) -> bool:
        """Return whether another process can import the module from its path."""
        source, colon, _ = self.path.rpartition(":")
        if self.source is not None or not colon or self.path.startswith(IN_PYTHON):
            return False
        if not source.endswith(".py"):
            return importlib.util.find_spec(source) is not None
        script = getattr(sys.modules["__main__"], "__file__", None)
        return script is None or Path(script).resolve() != Path(source).resolve()


def build_net(spec: NetSpec, input_shape: Shape, num_classes: int, num_codes: int = 0) -> Net:
    """Build a net for a data set; `num_codes` is not 0 if its samples are sequences of codes."""
    if isinstance(spec, Module):
        return spec.build(input_shape, num_classes, num_codes)
    require(
        num_codes > 0 or len(input_shape) in (1, 3),
        f"the net {type(spec).__name__} needs features, images or sequences of codes, but samples "
        f"have shape {tuple(input_shape)}. Use a module for them (--model FILE.py:NAME).",
    )
    return spec.build(input_shape, num_classes)


def count_params(spec: Module) -> int:
    """Return the number of parameters of a module without allocating them.

    It is 0 if the module cannot be created without memory, such as one that computes its weights.
    """
    import torch

    found = spec.load()
    try:
        with torch.device("meta"):
            module = found if isinstance(found, torch.nn.Module) else found(**spec.options)
        return sum(each.numel() for each in module.parameters())
    except Exception:  # any error of the user's code; creating it with memory reports it
        return 0


def add_file_digest(spec: NetSpec) -> NetSpec:
    """Return the specification of a module in a file with the digest of the file.

    The running script has no digest: a run of it may be resumed after a change of the script.
    """
    if not isinstance(spec, Module) or spec.source is not None or spec.digest:
        return spec
    return dataclasses.replace(spec, digest=compute_file_digest(spec.path))


def compute_file_digest(path: str) -> str:
    """Return the digest of the file of a path such as ``net.py:Net``; empty if it has none."""
    file = Path(path.rpartition(":")[0])
    if file.suffix != ".py" or not file.is_file():
        return ""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def make_path_absolute(path: str) -> str:
    """Return the path of a module with an absolute file, for processes in other folders.

    >>> make_path_absolute("/nets/own.py:Net"), make_path_absolute("package.nets:Net")
    ('/nets/own.py:Net', 'package.nets:Net')
    """
    file, colon, name = path.rpartition(":")
    require(bool(colon), f"--model {path}: expected FILE.py:NAME, such as net.py:Net.")
    return f"{Path(file).absolute()}:{name}" if file.endswith(".py") else path


def make_model_spec(model: Any, known: dict[str, type[NetSpec]]) -> NetSpec:
    """Return the specification of a model: a module, a class, a function, a path or a name.

    A class or function that can be imported is recorded with its path.

    >>> from torch import nn
    >>> make_model_spec(nn.Flatten, {}).path
    'torch.nn.modules.flatten:Flatten'
    >>> make_model_spec(nn.Linear(4, 3), {}).path
    'python:Linear'
    """
    if isinstance(model, str):
        if model in known:
            return known[model]()
        require(
            ":" in model,
            f"model={model!r}: expected file.py:NAME, package.module:NAME or a built-in net "
            f"({', '.join(known)}).",
        )
        return Module(model)
    if dataclasses.is_dataclass(model) and hasattr(model, "build"):
        built_in: Any = model() if isinstance(model, type) else model
        return typing.cast("NetSpec", built_in)
    require(
        callable(model),
        f"model: expected a torch.nn.Module, a class or function that makes one, or a path such as "
        f"'net.py:Net', got {model!r}.",
    )
    if isinstance(model, type | types.FunctionType) and (path := _importable_path(model)):
        return Module(path, source=model if model.__module__ == "__main__" else None)
    from thalweg.nets.module_net import make_module

    name = getattr(model, "__name__", type(model).__name__)
    spec = Module(IN_PYTHON + name, source=model)
    return dataclasses.replace(spec, digest=describe_tensors(make_module(spec, seed=0)))


def describe_tensors(module: nn.Module) -> str:
    """Return a digest of the names, types and shapes of a module's tensors."""
    from torch.nn.parameter import is_lazy

    lines = [
        f"{name} {'lazy' if is_lazy(value) else (value.dtype, tuple(value.shape))}"
        for name, value in (*module.named_parameters(), *module.named_buffers())
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _importable_path(made: Callable[..., Any]) -> str | None:
    """Return the path from which a class or function can be imported again, if there is one."""
    source, name = find_source(made.__module__), made.__qualname__
    if source == "__main__" or not name.isidentifier():
        return None
    if made.__module__ == "__main__":  # the running script, which must not be imported again
        return f"{source}:{name}" if getattr(sys.modules["__main__"], name, None) is made else None
    try:
        found = load_object(f"{source}:{name}")
    except Exception:
        return None
    return f"{source}:{name}" if found is made else None


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(each) for each in value)
    return isinstance(value, bool | int | float | str)
