"""Configuration: convert frozen dataclasses to plain values and back, and change their fields.

A field that holds one of several components is declared with `choice(table)`. In a TOML file it
reads ``{kind = "dds", budget = 0.5}``. Besides the names in the table, a kind may be
``package.module:Class`` or ``path/to/file.py:Class``, so that user-defined components need no
registration. With a `Registry`, as for plans from another machine, nothing is imported by name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import math
import numbers
import os
import re
import sys
import tomllib
import types
import typing
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from thalweg.core.capabilities import find_partial_capability, get_members
from thalweg.core.errors import ConfigError, ThalwegError, UnknownName, require
from thalweg.core.registry import NotRegistered, Registry, holds_text
from thalweg.core.remedies import format_setting

T = TypeVar("T")
Table = Mapping[str, Any]  # kind -> dataclass
_MISSING = dataclasses.MISSING
_PLAIN = (str, Mapping, int, float, list, tuple)  # never a component
_LOADING: list[str] = []  # user files that are being imported
_CHECKED: set[tuple[type[Any], Any]] = set()  # component class, type of its field
_TYPE_HINTS: weakref.WeakKeyDictionary[type[Any], dict[str, Any]] = weakref.WeakKeyDictionary()


def choice(
    table: Table,
    *,
    capabilities: Mapping[type, tuple[type, ...]] | None = None,
    expand: Callable[[Any], Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Declare a dataclass field that holds a component of a table, or a user-defined one.

    `capabilities` are the optional protocols of such a component, each with the protocols that it
    requires. A component that implements one of them only in part is rejected. `expand` converts
    other values, such as short names, before the component is built.
    """
    metadata = {"table": table, "capabilities": capabilities or {}, "expand": expand}
    return dataclasses.field(metadata=metadata, **kwargs)


def to_dict(part: Any, table: Table | None = None) -> dict[str, Any]:
    """Convert a dataclass to plain values; `from_dict` is the inverse.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Window:
    ...     length: int = 3
    >>> to_dict(Window(5), {"window": Window})
    {'kind': 'window', 'length': 5}
    """
    plain: dict[str, Any] = {} if table is None else {"kind": kind_of(part, table)}
    for field in plan_fields(part):
        value = getattr(part, field.name)
        inner = field.metadata.get("table")
        if dataclasses.is_dataclass(value):
            plain[field.name] = to_dict(value, inner)
        elif isinstance(value, tuple):
            plain[field.name] = [
                to_dict(each, inner) if dataclasses.is_dataclass(each) else each for each in value
            ]
        else:
            plain[field.name] = "none" if value is None else value  # TOML has no null
    return plain


def plan_fields(part: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields of a dataclass that a plan contains: all that hold plain values.

    A field with the metadata ``in_plan=False`` holds an object of this process.
    """
    return [each for each in dataclasses.fields(part) if each.metadata.get("in_plan", True)]


def from_dict(
    cls: type[T], plain: Mapping[str, Any], where: str = "", registry: Registry | None = None
) -> T:
    """Build a dataclass from plain values and check every name and type.

    With a `registry` the values are those of another machine: they can name only what is
    registered.
    """
    return _construct(cls, plain, where, lambda _: _MISSING, registry)


def with_settings(part: T, settings: Mapping[str, Any], where: str = "") -> T:
    """Return a copy of a dataclass with some fields changed; the original is not modified.

    The value of a field that holds a component is an instance, a class, a name, or a mapping. A
    mapping changes fields of the current component; with a ``kind`` it describes a new one. All
    changes to one object are made at once, so fields that are only valid together can be changed
    together. A method ``adapt_settings(settings, where)`` of the object may complete the changes.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Window:
    ...     length: int = 3
    >>> @dataclasses.dataclass(frozen=True)
    ... class Method:
    ...     memory: Any = choice({"window": Window}, default=Window())
    >>> with_settings(Method(), {"memory": {"length": 5}})
    Method(memory=Window(length=5))
    >>> with_settings(Method(Window(5)), {"memory": Window})
    Method(memory=Window(length=3))
    """
    adapt = getattr(part, "adapt_settings", None)
    settings = settings if adapt is None else adapt(settings, where)
    values = _convert_fields(type(part), settings, where, lambda name: getattr(part, name))
    return dataclasses.replace(part, **values)  # type: ignore[type-var]


def with_overrides(part: T, assignments: Iterable[str], option: str = "--set") -> T:
    """Apply ``part.field=value`` texts, as in ``with_overrides(recipe, ["memory.budget=0.3"])``.

    `option` is the option of the command line that they come from.
    """
    return with_settings(part, parse_overrides(assignments, option))


def parse_overrides(assignments: Iterable[str], option: str = "--set") -> dict[str, Any]:
    """Convert ``part.field=value`` texts to nested settings for `with_settings`; later ones win.

    >>> parse_overrides(["rounds=50", "memory=window", "memory.length=9"])
    {'rounds': 50, 'memory': {'kind': 'window', 'length': 9}}
    """
    settings: dict[str, Any] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        *outer, last = [name.strip() for name in path.split(".")]
        if not equals or not all((*outer, last)):
            form = "part.field=value, such as rounds=50" if option == "--set" else "NAME=VALUE"
            raise ConfigError(f"{option} {assignment!r}: expected {form}.")
        here = settings
        for name in outer:
            inner = here.get(name, {})
            here[name] = inner if isinstance(inner, dict) else {"kind": inner}
            here = here[name]
        here[last] = parse(text)
    return settings


def convert_parts(whole: Any) -> None:
    """Convert and check the components in the fields of a frozen dataclass; for ``__post_init__``.

    A class, a name or a mapping is replaced by the instance that it describes. Anything that is not
    a component of the expected type is rejected, and so is a partially implemented capability.
    """
    hints = _type_hints(type(whole))
    for field in dataclasses.fields(whole):
        value, hint = getattr(whole, field.name), hints[field.name]
        if field.metadata.get("table") is None and _nested_class(hint) is None:
            continue
        part = _convert_value(field, hint, value, field.name)
        if part is not value:
            object.__setattr__(whole, field.name, part)


def parse(text: str) -> Any:
    """Parse a value typed on the command line: a TOML value, or else a bare word.

    >>> parse("0.5"), parse("[1, 2]"), parse("true"), parse("kl")
    (0.5, [1, 2], True, 'kl')
    """
    text = text.strip()
    try:
        return tomllib.loads(f"value = {text.lower() if text in ('True', 'False') else text}")[
            "value"
        ]
    except (ValueError, RecursionError):  # not TOML, too many digits, or nested too deeply
        return text


def parse_pairs(text: str, field: str, example: str) -> dict[str, Any]:
    """Parse ``name=value`` pairs, separated by commas or semicolons.

    >>> parse_pairs("clock=1; delta=0.01", "alarm.settings", "clock=1")
    {'clock': 1, 'delta': 0.01}
    """
    pairs = [part.partition("=") for part in re.split("[,;]", text) if part.strip()]
    for name, equals, value in pairs:
        require(
            bool(equals and name.strip().isidentifier() and value.strip()),
            f"{field}={text!r}: expected name=value, name=value, such as {example}.",
        )
    return {name.strip(): parse(value) for name, _, value in pairs}


def check_literals(part: Any) -> None:
    """Reject values that a `Literal` field does not allow; for ``__post_init__``.

    Values from files are checked when they are read, but Python does not check annotations.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Decay:
    ...     shape: Literal["linear", "exponential"] = "linear"
    ...     def __post_init__(self) -> None:
    ...         check_literals(self)
    >>> Decay("linaer")
    Traceback (most recent call last):
    thalweg.core.errors.UnknownName: unknown shape 'linaer'; known: ... Did you mean 'linear'?
    """
    for name, hint in _type_hints(type(part)).items():
        value, words = getattr(part, name), typing.get_args(hint)
        if typing.get_origin(hint) is Literal and value not in words:
            raise UnknownName(name, str(value), words)


UPPER_BOUNDS: Final = {
    "COUNT": 10_000_000,  # anything that is counted, such as samples or rounds
    "CLIENTS": 1_000_000,
    "ARRIVALS": 1_000_000,  # samples per tick and client
    "TICKS": 10_000,  # per round
    "STEPS": 1_000_000,  # gradient steps per tick
    "PASSES": 10_000,  # passes over the memory per tick
    "MODELS": 1_000,
    "UNITS": 100_000,  # of a layer
    "NUMBER": 1e30,  # finite in float32, in which models are computed
}


def check_ranges(part: Any, **ranges: str) -> None:
    """Reject numbers outside their interval; for ``__post_init__``.

    An interval is written as in mathematics, followed by "or none" if the value may be None. Values
    that are not numbers are rejected. The upper end may be a name of `UPPER_BOUNDS`; for integer
    fields, inf means COUNT, for others NUMBER. These bounds are far above useful values. They
    exclude values with which a run would not end, need all memory, or overflow.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Step:
    ...     lr: float
    ...     decay: float | None = None
    ...     def __post_init__(self) -> None:
    ...         check_ranges(self, lr="(0, inf)", decay="[0, 1) or none")
    >>> Step(0.1, decay=1.0)
    Traceback (most recent call last):
    thalweg.core.errors.ConfigError: decay must lie in [0, 1), or none, got 1.0.
    >>> Step(-0.1)
    Traceback (most recent call last):
    thalweg.core.errors.ConfigError: lr must be positive and finite, got -0.1.
    """
    for name, text in ranges.items():
        value, interval = getattr(part, name), text.removesuffix(" or none")
        if value is None and interval != text:
            continue
        low, high = (end.strip() for end in interval[1:-1].split(","))
        bound = UPPER_BOUNDS.get(high)
        if bound is not None:
            text = text.replace(f"{high}{interval[-1]}", "inf)")
            interval = text.removesuffix(" or none")
        elif high == "inf" and interval.endswith(")"):
            bound = UPPER_BOUNDS["COUNT" if _is_int_field(part, name) else "NUMBER"]
        most = math.inf if bound is not None else float(high)
        is_number = isinstance(value, numbers.Real)
        above = is_number and (value >= float(low) if interval[0] == "[" else value > float(low))
        below = is_number and (value <= most if interval[-1] == "]" else value < most)
        if not (above and below):
            raise ConfigError(f"{name} must {_describe_interval(text)}, got {value}.")
        if bound is not None and value > bound:
            most_text = f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
            raise ConfigError(f"{name} must be at most {most_text}, got {value}.")


def _is_int_field(part: Any, name: str) -> bool:
    """Return whether a field is declared as int or as an optional int."""
    return any(
        field.name == name and str(getattr(field.type, "__name__", field.type)).startswith("int")
        for field in dataclasses.fields(part)
    )


def _describe_interval(text: str) -> str:
    interval, also = text.removesuffix(" or none"), ", or none" if "none" in text else ""
    if text == "[0, inf)":
        return "not be negative or infinite"
    if interval == "(0, inf)":
        return f"be positive and finite{also}"
    if interval.startswith("[") and interval.endswith(", inf)") and interval != "[0, inf)":
        return f"be at least {interval[1:].removesuffix(', inf)')}{also}"
    return f"lie in {interval}{also}"


def kind_of(part: Any, table: Table) -> str:
    """Return the name of a component in its table, or the source of a user-defined one."""
    for kind, cls in table.items():
        if type(part) is cls:
            return kind
    cls = type(part)
    return f"{find_source(cls.__module__)}:{cls.__qualname__}"


def class_of(kind: str, table: Table, what: str, registry: Registry | None = None) -> type[Any]:
    """Return the class of a kind; `what` names the field in error messages."""
    if kind in table:
        return typing.cast("type[Any]", table[kind])
    if registry is not None and ":" in kind:
        kind = registry.find_path(kind, what)
    source, colon, name = kind.rpartition(":")
    if kind.endswith(".py"):
        raise ConfigError(f"{what}={kind}: expected a class of that file, such as {kind}:CLASS.")
    if not colon:
        raise UnknownName(what, kind, table)
    found = load_object(kind)
    if not isinstance(found, type) or not dataclasses.is_dataclass(found):
        module = f" A torch.nn.Module is given with --model {kind}." if what == "net" else ""
        raise ConfigError(f"{kind}: {source} has no dataclass named {name!r}.{module}")
    return found


def load_object(name: str) -> Any:
    """Return the object ``package.module:NAME`` or ``path/to/file.py:NAME``.

    None if it does not exist.
    """
    source, _, attribute = name.rpartition(":")
    return getattr(_load_module(source, name), attribute, None)


def list_names(path: str) -> str:
    """Return a sentence with the classes and functions of the file of ``file.py:NAME``.

    Empty for a package.
    """
    source = path.rpartition(":")[0]
    if not source.endswith(".py"):
        return ""
    module = _load_module(source, path)
    names = [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
    ]
    return f" It defines {', '.join(names) or 'no class or function'}."


def load_function(path: str, what: str) -> Callable[..., Any]:
    """Return the function ``file.py:function`` or ``package.module:function``.

    `what` names the setting in messages.
    """
    source, colon, name = path.rpartition(":")
    require(
        bool(colon),
        f"{what}={path}: expected file.py:function or package.module:function.",
    )
    require(
        "<" not in name,
        f"{what}={path}: a lambda, an instance or an inner function cannot be loaded again. "
        f"Define it at the top of a file and pass it as file.py:function, or resume in Python with "
        "the same function.",
    )
    found = load_object(path)
    require(callable(found), f"{what}={path}: {source} has no function {name!r}.{list_names(path)}")
    return typing.cast("Callable[..., Any]", found)


def get_function_path(function: Callable[..., Any]) -> str:
    """Return the path of a function for a plan: file.py:function or package.module:function.

    An instance has the path ``module:<Class digest>``. The digest covers its settings and tensors,
    so that a run is not resumed with other ones; the path cannot be loaded.

    >>> import math
    >>> get_function_path(math.sqrt)
    'math:sqrt'
    """
    if hasattr(function, "__qualname__"):
        return f"{find_source(function.__module__)}:{function.__qualname__}"
    kind = type(function)
    tensors = {
        name: value.tolist() for name, value in getattr(function, "state_dict", dict)().items()
    }
    settings = f"{function!r} {getattr(function, '__dict__', {})} {tensors}"
    content = re.sub(r" at 0x[0-9a-f]+", "", settings)  # addresses differ between processes
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return f"{find_source(kind.__module__)}:<{kind.__qualname__} {digest}>"


def find_source(module: str) -> str:
    """Return the name of a module in a plan: its file if it is a user's file, else its name."""
    found = sys.modules.get(module)
    if module == "__main__" and (spec := getattr(found, "__spec__", None)) is not None:
        return str(spec.name)  # python -m package.module
    if module == "__main__" and (script := getattr(found, "__file__", None)) is not None:
        file, here = Path(script).resolve(), Path.cwd()
        return str(file.relative_to(here) if file.is_relative_to(here) else file)
    return str(getattr(found, "__thalweg_file__", module))


def _load_module(source: str, kind: str) -> types.ModuleType:
    attribute = kind.rpartition(":")[2]
    require(
        source != "" and attribute != "" and ".py:" not in source,
        f"{kind}: expected FILE.py:NAME or package.module:NAME, such as net.py:Net.",
    )
    if not source.endswith(".py"):
        try:
            return importlib.import_module(source)
        except ThalwegError:
            raise
        except ImportError as error:
            raise ConfigError(f"{kind}: cannot import {source!r} ({error}).") from error
        except (Exception, SystemExit) as error:
            raise _import_error(kind, error) from error
    path = Path(source).resolve()
    if not path.is_file():
        where = "" if Path(source).is_absolute() else f" in {Path.cwd()}"
        raise ConfigError(f"{kind}: there is no file {source}{where}. Correct the path.")
    main = sys.modules["__main__"]
    if (script := getattr(main, "__file__", None)) is not None and Path(script).resolve() == path:
        return main  # the running script; importing it would run it again
    name = f"thalweg_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None  # a .py file always has one
        module = importlib.util.module_from_spec(spec)
        module.__thalweg_file__ = source  # type: ignore[attr-defined]
        sys.modules[name] = module
        _LOADING.append(source)
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, ThalwegError) or not isinstance(error, Exception | SystemExit):
                raise
            raise _import_error(kind, error) from error
        finally:
            _LOADING.pop()
    return sys.modules[name]


def _import_error(kind: str, error: BaseException) -> ConfigError:
    """Return the error for a file or package that raised while it was imported."""
    return ConfigError(
        f"{kind}: importing it failed with {type(error).__name__}: {error}. Correct the file, and "
        "check that it can be imported with Python."
    )


def check_not_loading() -> None:
    """Reject a run that a user file starts while it is imported; it would import the file again."""
    require(
        not _LOADING,
        f"{''.join(_LOADING[-1:])} starts a run when it is imported; expected definitions only, "
        "because other processes import the file. Put the call under "
        'if __name__ == "__main__": or into another file.',
    )


def build(table: Table, value: Any, where: str, registry: Registry | None = None) -> Any:
    """Build a component from ``{"kind": "dds", "budget": 0.5}`` or from its kind alone."""
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise ConfigError(f"{where}: expected a kind, one of {sorted(table)}, got {value!r}.")
    cls = class_of(value["kind"], table, where, registry)
    fields = {name: item for name, item in value.items() if name != "kind"}
    return _construct(cls, fields, where, lambda name: get_default(_fields(cls)[name]), registry)


def _construct(
    cls: type[T],
    settings: Mapping[str, Any],
    where: str,
    current: Callable[[str], Any],
    registry: Registry | None,
) -> T:
    values = _convert_fields(cls, settings, where, current, registry)
    missing = [
        name
        for name, field in _fields(cls).items()
        if name not in values and get_default(field) is _MISSING
    ]
    if missing:
        settings_text = ", ".join(f"{where}.{name}" for name in missing)
        remedy = f" Set {settings_text} after {where}, which replaces all of it." if where else ""
        raise ConfigError(f"{where or cls.__name__} needs {', '.join(missing)}.{remedy}")
    return cls(**values)


def _convert_fields(
    cls: type[Any],
    settings: Mapping[str, Any],
    where: str,
    current: Callable[[str], Any],
    registry: Registry | None = None,
) -> dict[str, Any]:
    """Convert settings to field values; ``current(name)`` is the value that a mapping changes."""
    fields, hints = _fields(cls), _type_hints(cls)
    for name in settings:
        if name not in fields:
            raise UnknownName(f"field of {where or cls.__name__}", name, fields)
    if registry is not None:
        return {
            name: _convert_received(
                fields[name], hints[name], value, f"{where}.{name}" if where else name, registry
            )
            for name, value in settings.items()
        }
    return {
        name: _convert_value(
            fields[name], hints[name], value, f"{where}.{name}" if where else name, current(name)
        )
        for name, value in settings.items()
    }


def _convert_value(
    field: dataclasses.Field[Any], hint: Any, value: Any, where: str, current: Any = _MISSING
) -> Any:
    table, nested = field.metadata.get("table"), _nested_class(hint)
    is_optional = type(None) in typing.get_args(hint)
    if is_optional and (value is None or (isinstance(value, str) and value == "none")):
        return None
    if field.metadata.get("expand") is not None:
        value = field.metadata["expand"](value)
    if table is None and nested is None:
        return _convert_plain(value, hint, where, current)
    if isinstance(value, type):
        value = _instantiate(value, where)
    elif isinstance(value, Mapping):
        if is_optional and value.get("kind") == "none":
            current, value = None, {name: value[name] for name in value if name != "kind"}
        if table is not None and "kind" in value:
            value = build(table, value, where)
        elif dataclasses.is_dataclass(current):
            value = with_settings(current, value, where)
        elif table is None and nested is not None:
            value = from_dict(nested, value, where)
        elif current is not _MISSING:
            raise _no_such_field(where, current, value, table)
    if table is not None:
        return _check_component(
            build(table, value, where) if isinstance(value, _PLAIN) else value,
            field,
            hint,
            where,
        )
    assert nested is not None
    if isinstance(value, list | tuple) and typing.get_origin(hint) is tuple:
        return tuple(_convert_item(nested, each, f"{where}[{i}]") for i, each in enumerate(value))
    return value if isinstance(value, nested) else _convert_plain(value, hint, where, current)


def _convert_item(cls: type[Any], value: Any, where: str, registry: Registry | None = None) -> Any:
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected fields of {cls.__name__}, got {value!r}.")
    return from_dict(cls, value, where, registry)


def _convert_received(
    field: dataclasses.Field[Any], hint: Any, value: Any, where: str, registry: Registry
) -> Any:
    """Convert a value from another machine.

    Such values are complete, as `to_dict` writes them. Short forms are not accepted, because
    expanding them may import something.
    """
    table, nested = field.metadata.get("table"), _nested_class(hint)
    if not field.metadata.get("in_plan", True):
        raise NotRegistered(f"{where}: a plan cannot set this field.")
    if type(None) in typing.get_args(hint) and (value is None or value == "none"):
        return None
    if table is not None:
        is_component = dataclasses.is_dataclass(value)  # of this machine
        part = value if is_component else build(table, value, where, registry)
        return _check_component(part, field, hint, where)
    if nested is not None and typing.get_origin(hint) is tuple and isinstance(value, list):
        parts = enumerate(value)
        return tuple(_convert_item(nested, each, f"{where}[{i}]", registry) for i, each in parts)
    if nested is not None:
        return _convert_item(nested, value, where, registry)
    if holds_text(hint) and value != _to_plain(get_default(field)):
        value = registry.convert_text(field, value, where)
    if not field.metadata.get("any_number", False):
        registry.check_numbers(value, where)
    return _convert_plain(value, hint, where, get_default(field))


def _to_plain(value: Any) -> Any:
    """Return the default of a field as `to_dict` writes it."""
    return "none" if value is None else list(value) if isinstance(value, tuple) else value


def _convert_plain(value: Any, hint: Any, where: str, current: Any) -> Any:
    """Convert a number, a text, or a list of them; a list may be written as ``0.9,0.99``."""
    if isinstance(value, Mapping) and typing.get_origin(hint) is not dict:
        raise _no_such_field(where, value.get("kind", current), value, None)
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    readings = [value]
    if isinstance(value, str):
        readings += [parse(f"[{value}]")] if "," in value else []
        readings += [[item.strip() for item in value.split(",")]]
    elif not isinstance(value, list | tuple | Mapping):
        readings += [[value]]
    for reading in readings:
        with suppress(msgspec.ValidationError):
            return msgspec.convert(reading, hint)
    try:
        example = msgspec.convert(current, hint)
    except msgspec.ValidationError:
        example = None
    if example in (None, (), ""):
        example = _get_example(hint)
    raise ConfigError(
        f"{where}={_to_text(value)}: expected {describe_type(hint)}, got {_describe_kind(value)}. "
        f"Example: {where}={_to_text(example)}."
    )


_TYPE_NAMES: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    type(None): "none",
}


def describe_type(hint: Any) -> str:
    """Return a type hint in words.

    >>> describe_type(float | None), describe_type(tuple[str, ...])
    ('a number or none', 'text or a list of it')
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(map(describe_type, args))
    if origin is Literal:
        return "one of " + ", ".join(map(str, args))
    if origin is tuple and args[-1] is Ellipsis:
        return {float: "numbers", int: "whole numbers", str: "text or a list of it"}.get(
            args[0], f"a list of {getattr(args[0], '__name__', args[0])}"
        )
    if origin is tuple:
        return f"{len(args)} values: {', '.join(map(describe_type, args))}"
    return _TYPE_NAMES.get(hint) or f"fields of {getattr(hint, '__name__', hint)}"


def _describe_kind(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "a list"
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def _get_example(hint: Any) -> Any:
    """Return a value of a type, for a message."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return args[0]
    if origin in (types.UnionType, typing.Union):
        return _get_example(next(each for each in args if each is not type(None)))
    if origin is tuple:
        return tuple(_get_example(each) for each in args if each is not Ellipsis)
    return {bool: True, int: 3, float: 0.5, str: "name"}.get(hint, "...")


def _to_text(value: Any) -> str:
    """Return a value as it is written on the command line."""
    if isinstance(value, list | tuple):
        return ",".join(map(_to_text, value))
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _no_such_field(
    where: str, current: Any, value: Mapping[str, Any], table: Table | None
) -> ConfigError:
    name = next((name for name in value if name != "kind"), "kind")
    remedy = (
        f" First choose one, such as {format_setting(where, next(iter(table)))}." if table else ""
    )
    return ConfigError(f"{where} is {current!r} and has no field {name!r}.{remedy}")


def _instantiate(cls: type[Any], where: str) -> Any:
    """Create an instance of a class that was given in place of an instance."""
    try:
        return cls()
    except TypeError as error:
        raise ConfigError(
            f"{where}: expected an instance, got the class {cls.__name__}, which cannot be created "
            f"without arguments ({error}). Pass {where}={cls.__name__}(...)."
        ) from error


def _check_component(part: Any, field: dataclasses.Field[Any], hint: Any, where: str) -> Any:
    """Reject a component that lacks a method of its protocol or of an optional capability."""
    if (type(part), hint) in _CHECKED:
        return part
    expected = {each for each in (hint, *typing.get_args(hint)) if isinstance(each, type)}
    expected -= {Any, type(None)}  # Any is a class
    protocols = [each for each in expected if getattr(each, "_is_protocol", False)]
    classes = [each for each in expected if each not in protocols]
    if classes and isinstance(part, tuple(classes)):
        return part
    if classes and not protocols:
        raise ConfigError(
            f"{where}: expected {' or '.join(each.__name__ for each in classes)}, got {part!r}. "
            f"Choose one of {sorted(field.metadata['table'])}."
        )
    for protocol in protocols:
        missing = [name for name in get_members(protocol) if not hasattr(part, name)]
        if missing:
            raise ConfigError(
                f"{where}={type(part).__name__}: expected a {protocol.__name__}, but it has no "
                f"{' and no '.join(missing)}. Add what is missing (see {protocol.__module__}), or "
                f"choose one of {sorted(field.metadata['table'])}."
            )
    partial = find_partial_capability(part, field.metadata.get("capabilities", {}))
    if partial is not None:
        raise ConfigError(
            f"{where}={type(part).__name__} implements {partial.protocol.__name__} only in part: "
            f"it has {' and '.join(partial.present)}, but no {' and no '.join(partial.missing)}. "
            f"Add what is missing (see {partial.protocol.__module__}), or rename what it has."
        )
    if dataclasses.is_dataclass(part):  # of others, single objects may have more or fewer methods
        _CHECKED.add((type(part), hint))
    return part


def _fields(cls: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls)}


def get_default(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a field; ``dataclasses.MISSING`` if it has none."""
    factory = field.default_factory
    return field.default if factory is _MISSING else factory()


def _type_hints(cls: type[Any]) -> dict[str, Any]:
    if cls not in _TYPE_HINTS:
        _TYPE_HINTS[cls] = typing.get_type_hints(cls)
    return _TYPE_HINTS[cls]


def _nested_class(hint: Any) -> type[Any] | None:
    """Return the dataclass in a type hint, such as ``LocalTraining`` in ``LocalTraining | None``.

    None if it has none.
    """
    found = [each for each in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(each)]
    return typing.cast("type[Any]", found[0]) if found else None
