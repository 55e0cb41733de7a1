"""The dataclass is the configuration: dict (and so TOML) <-> frozen dataclasses, and overrides.

A field that may hold one of several policies is declared with `choice(table)`; in a file it reads
``{kind = "dds", budget = 0.5}``. Besides the names in the table, a kind may be ``package.module:Class``
or ``path/to/file.py:Class``: that is how a policy of your own gets in without registering anything.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import numbers
import re
import sys
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from thalweg.core.errors import ConfigError, UnknownName, require

T = TypeVar("T")
Table = Mapping[str, Any]  # kind -> dataclass


def choice(table: Table, **kwargs: Any) -> Any:
    """A dataclass field that holds one of the policies of a table, or one of the user's own."""
    return dataclasses.field(metadata={"table": table}, **kwargs)


def to_dict(part: Any, table: Table | None = None) -> dict[str, Any]:
    """A dataclass as plain values; `from_dict` is its inverse.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Window:
    ...     length: int = 3
    >>> to_dict(Window(5), {"window": Window})
    {'kind': 'window', 'length': 5}
    """
    plain: dict[str, Any] = {} if table is None else {"kind": kind_of(part, table)}
    for field in dataclasses.fields(part):
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


def from_dict(cls: type[T], plain: Mapping[str, Any], where: str = "") -> T:
    """Build a dataclass from plain values, checking every name and type on the way."""
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for name in plain:
        if name not in fields:
            raise UnknownName(f"field of {where or cls.__name__}", name, fields)
    values = {
        name: _build_value(fields[name], hints[name], value, f"{where}.{name}" if where else name)
        for name, value in plain.items()
    }
    missing = [
        name
        for name, field in fields.items()
        if name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"{where or cls.__name__} needs {', '.join(missing)}.")
    return cls(**values)


def with_overrides(part: T, assignments: Iterable[str], where: str = "") -> T:
    """``with_overrides(recipe, ["memory.budget=0.3"])``: a new value; the old one is untouched.

    A whole policy is replaced by its kind (``memory=reservoir``); the new one has its defaults. All
    changes to one object are made at once, so fields that only fit together may be changed together.
    """
    fields = {field.name: field for field in dataclasses.fields(part)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    inside: dict[str, list[str]] = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        name, _, rest = path.strip().partition(".")
        here = f"{where}.{name}" if where else name
        if not equals or not name:
            raise ConfigError(
                f"--set {assignment!r}: expected part.field=value, such as rounds=50."
            )
        if name not in fields:
            raise UnknownName(f"field {here} in --set:", name, fields)
        if rest:
            inside.setdefault(name, []).append(f"{rest}={text}")
        else:
            hint = typing.get_type_hints(type(part))[name]
            values[name] = _build_value(fields[name], hint, parse(text), here)
            inside.pop(name, None)
    for name, rest_of_them in inside.items():
        here = f"{where}.{name}" if where else name
        inner = values.get(name, getattr(part, name))
        if not dataclasses.is_dataclass(inner):
            field = rest_of_them[0].partition("=")[0]
            table = fields[name].metadata.get("table")
            hint = f" First choose one, such as --set {here}={next(iter(table))}." if table else ""
            raise ConfigError(f"--set: {here} is {inner!r} and has no field {field!r}.{hint}")
        values[name] = with_overrides(inner, rest_of_them, here)
    return dataclasses.replace(part, **values)  # type: ignore[type-var]


def parse(text: str) -> Any:
    """A value as one types it: a TOML value, or else a bare word.

    >>> parse("0.5"), parse("[1, 2]"), parse("true"), parse("kl")
    (0.5, [1, 2], True, 'kl')
    """
    text = text.strip()
    try:
        return tomllib.loads(f"value = {text.lower() if text in ('True', 'False') else text}")[
            "value"
        ]
    except tomllib.TOMLDecodeError:
        return text


def parse_pairs(text: str, field: str, example: str) -> dict[str, Any]:
    """Names and values with commas between them, or semicolons where commas part something else.

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
    """Refuse a word that a `Literal` field does not know; for ``__post_init__``.

    A file is checked while it is read. Python itself does not look at annotations, so that without
    this a slip of the pen would quietly mean "the other one".

    >>> @dataclasses.dataclass(frozen=True)
    ... class LoopbackOnly:
    ...     is_now: Literal["open", "shut"] = "open"
    ...     def __post_init__(self) -> None:
    ...         check_literals(self)
    >>> LoopbackOnly("opne")
    Traceback (most recent call last):
    thalweg.core.errors.UnknownName: unknown is_now 'opne'; known: open, shut. Did you mean 'open'?
    """
    for name, hint in typing.get_type_hints(type(part)).items():
        value, words = getattr(part, name), typing.get_args(hint)
        if typing.get_origin(hint) is Literal and value not in words:
            raise UnknownName(name, str(value), words)


def check_ranges(part: Any, **ranges: str) -> None:
    """Refuse numbers outside of their interval; for ``__post_init__``.

    An interval is written as in mathematics, with "or none" behind it if the number may be left out.
    Nothing that is not a number lies in any of them.

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
        low, high = (float(end) for end in interval[1:-1].split(","))
        is_number = isinstance(value, numbers.Real)
        above = is_number and (value >= low if interval[0] == "[" else value > low)
        below = is_number and (value <= high if interval[-1] == "]" else value < high)
        if not (above and below):
            raise ConfigError(f"{name} must {_describe_interval(text)}, got {value}.")


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
    """The name a policy has in its table, or where a policy of the user's own comes from."""
    for kind, cls in table.items():
        if type(part) is cls:
            return kind
    cls = type(part)
    return f"{_source_of(cls.__module__)}:{cls.__qualname__}"


def class_of(kind: str, table: Table, what: str) -> type[Any]:
    """The class a kind stands for."""
    if kind in table:
        return typing.cast("type[Any]", table[kind])
    source, colon, name = kind.rpartition(":")
    if kind.endswith(".py"):
        raise ConfigError(f"{what}={kind}: which class of that file? Say {kind}:CLASS.")
    if not colon:
        raise UnknownName(what, kind, table)
    found = load_object(kind)
    if not isinstance(found, type) or not dataclasses.is_dataclass(found):
        raise ConfigError(f"{kind}: {source} has no dataclass named {name!r}.")
    return found


def load_object(name: str) -> Any:
    """What ``package.module:NAME`` or ``path/to/file.py:NAME`` holds; None: it has no such name."""
    source, _, attribute = name.rpartition(":")
    return getattr(_load_module(source, name), attribute, None)


def _source_of(module: str) -> str:
    """How a module is named in a plan: the file it was loaded from, if it was one of the user's own.

    A script is a file, too, so that its runs can be resumed by others than itself.
    """
    found = sys.modules.get(module)
    if module == "__main__" and (spec := getattr(found, "__spec__", None)) is not None:
        return str(spec.name)  # python -m package.module
    if module == "__main__" and (script := getattr(found, "__file__", None)) is not None:
        file, here = Path(script).resolve(), Path.cwd()
        return str(file.relative_to(here) if file.is_relative_to(here) else file)
    return str(getattr(found, "__thalweg_file__", module))


def _load_module(source: str, kind: str) -> types.ModuleType:
    if not source.endswith(".py"):
        try:
            return importlib.import_module(source)
        except ImportError as error:
            raise ConfigError(f"{kind}: cannot import {source!r} ({error}).") from error
    path = Path(source).resolve()
    if not path.is_file():
        raise ConfigError(f"{kind}: there is no file {source}.")
    main = sys.modules["__main__"]
    if (script := getattr(main, "__file__", None)) is not None and Path(script).resolve() == path:
        return main  # the script that is running; loading it again would run it again
    name = f"thalweg_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None  # a .py file always has one
        module = importlib.util.module_from_spec(spec)
        module.__thalweg_file__ = source  # type: ignore[attr-defined]
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _build_value(field: dataclasses.Field[Any], hint: Any, value: Any, where: str) -> Any:
    table = field.metadata.get("table")
    if isinstance(value, str) and value == "none" and type(None) in typing.get_args(hint):
        return None
    if table is not None:
        part = build(table, value, where)
        _check_shape(part, hint, where)
        return part
    nested = [t for t in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(t)]
    if nested and isinstance(value, Mapping):
        return from_dict(typing.cast("type[Any]", nested[0]), value, where)
    if nested and isinstance(value, list) and typing.get_origin(hint) is tuple:
        cls = typing.cast("type[Any]", nested[0])
        return tuple(_build_nested(cls, each, f"{where}[{i}]") for i, each in enumerate(value))
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}={value!r}: {error}.") from error


def _build_nested(cls: type[Any], value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected fields of {cls.__name__}, got {value!r}.")
    return from_dict(cls, value, where)


def _check_shape(part: Any, hint: Any, where: str) -> None:
    """A policy of the user's own may lack a method; that is better said before the run than in it."""
    for protocol in (hint, *typing.get_args(hint)):
        if getattr(protocol, "_is_protocol", False):
            promised = [name for name in vars(protocol) if not name.startswith("_")]
            missing = [name for name in promised if not hasattr(part, name)]
            if missing:
                raise ConfigError(
                    f"{where}={type(part).__name__}: it has no {' and no '.join(missing)}, as every "
                    f"{protocol.__name__} does; see {protocol.__module__}."
                )


def build(table: Table, value: Any, where: str) -> Any:
    """``{"kind": "dds", "budget": 0.5}``, or just ``"dds"``, becomes the policy."""
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise ConfigError(f"{where}: expected a kind, one of {sorted(table)}, got {value!r}.")
    fields = {name: item for name, item in value.items() if name != "kind"}
    return from_dict(class_of(value["kind"], table, where), fields, where)
