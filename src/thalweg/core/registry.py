"""What a plan from another machine may name, and how fields declare what their text means.

A device reads the plan of a server with a `Registry`. Then a component is one of the registered
tables or one that the owner of the device named, and nothing is imported or opened because of a
text in the plan. Text is rejected unless its field is declared:

- `local_path`: a file or a folder; only the field's default is accepted.
- `local_object`: a class or function; its name is looked up among the owner's objects.
- `registered_name`: a name of a table.
- `plain_text`: text that matches a pattern and names nothing.
- `plain_options`: names with numbers and truth values.

Fields with a `typing.Literal` need no declaration.
"""

from __future__ import annotations

import dataclasses
import numbers
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from thalweg.core.errors import ConfigError

NAME = r"(?![.\s])[^/\\\"\x00-\x1f\x7f-\x9f]{1,100}"  # of recipes and scenarios, for folders too
LABEL = r"[^\x00-\x1f\x7f-\x9f]{0,200}"  # one line that can be printed
MAX_NUMBER = 1_000_000  # largest whole number in a plan from another machine

# Metadata of a name without a default; mypy takes the functions below for fields with one.
NAME_METADATA = {"meaning": "text", "list_names": None, "pattern": NAME}

Meaning = Literal["path", "object", "name", "text", "options"]


class NotRegistered(ConfigError):
    """A plan from another machine names something that this machine has not registered."""


class TooLarge(ConfigError):
    """A plan from another machine asks for more than this machine allows."""


def local_path(**kwargs: Any) -> Any:
    """Declare a field with the path of a file or folder of this machine."""
    return _declare("path", **kwargs)


def local_object(*, is_lazy: bool = False, **kwargs: Any) -> Any:
    """Declare a field with the path of a class or function, such as ``file.py:Net``.

    `is_lazy`: it is imported when it is used, not when the component is created.
    """
    metadata = {**kwargs.pop("metadata", {}), "is_lazy": is_lazy}
    return _declare("object", metadata=metadata, **kwargs)


def registered_name(list_names: Callable[[], Iterable[str]], **kwargs: Any) -> Any:
    """Declare a field with a name of a table, or the path of a class of the user."""
    return _declare("name", list_names=list_names, **kwargs)


def plain_text(pattern: str = LABEL, **kwargs: Any) -> Any:
    """Declare a field with text that names nothing and matches a regular expression."""
    return _declare("text", pattern=pattern, **kwargs)


def check_name(name: str) -> None:
    """Reject a name of a recipe, a baseline or a scenario that is not safe in names of folders.

    >>> check_name("fedavg+prox (mine)")
    >>> check_name("../mine")
    Traceback (most recent call last):
    thalweg.core.errors.ConfigError: name: expected 1 to 100 characters, ... got '../mine'.
    """
    if not isinstance(name, str) or not re.fullmatch(NAME, name):
        raise ConfigError(
            "name: expected 1 to 100 characters, without slashes, double quotes and control "
            f"characters, and not starting with a dot or a space, got {str(name)[:120]!r}."
        )


def make_name(text: str) -> str:
    """Return a name that `check_name` accepts: other characters become hyphens.

    >>> make_name("sales.2024"), make_name("../a/b"), make_name("")
    ('sales.2024', 'a-b', 'data')
    """
    safe = re.sub(r"[/\\\"\x00-\x1f\x7f-\x9f]", "-", text)
    return re.sub(r"^[-.\s]+", "", safe)[:100] or "data"


def plain_options(**kwargs: Any) -> Any:
    """Declare a field with names and values: a dictionary, or text such as ``a=1,b=0.5``."""
    return _declare("options", **kwargs)


def _declare(meaning: Meaning, list_names: Any = None, pattern: str = "", **kwargs: Any) -> Any:
    metadata = {**kwargs.pop("metadata", {}), "meaning": meaning}
    metadata |= {"list_names": list_names, "pattern": pattern}
    return dataclasses.field(metadata=metadata, **kwargs)


def holds_text(hint: Any) -> bool:
    """Return whether a value of a type can contain text that is not one of several words.

    >>> holds_text(tuple[str, ...]), holds_text(Literal["a", "b"]), holds_text(int | None)
    (True, False, False)
    """
    if typing.get_origin(hint) is Literal:
        return False
    parts = [each for each in typing.get_args(hint) if each is not Ellipsis]
    if parts:
        return any(map(holds_text, parts))
    return hint not in (bool, int, float, type(None))


def has_local_path(part: Any) -> bool:
    """Return whether a component names a file or folder of this machine."""
    return any(
        each.metadata.get("meaning") == "path" and getattr(part, each.name) != each.default
        for each in dataclasses.fields(part)
    )


@dataclass(frozen=True)
class Registry:
    """The objects of the owner that a plan from another machine may use, by name.

    `objects` has the path (``file.py:NAME``) of each object, as the owner wrote it. The part of a
    name in the plan before the colon is ignored.

    >>> registry = Registry.from_paths(["/home/me/mine.py:Recent"])
    >>> registry.find_path("/etc/evil.py:Recent", "recipe.memory")
    '/home/me/mine.py:Recent'
    """

    objects: Mapping[str, str] = dataclasses.field(default_factory=dict)
    max_number: int = MAX_NUMBER

    @classmethod
    def from_paths(cls, paths: Iterable[str], max_number: int = MAX_NUMBER) -> Registry:
        """Return the registry of objects with these paths."""
        objects: dict[str, str] = {}
        for path in paths:
            name = path.rpartition(":")[2]
            if ":" not in path or not name.isidentifier():
                raise ConfigError(f"{path}: expected file.py:NAME or package.module:NAME.")
            if objects.setdefault(name, path) != path:
                raise ConfigError(
                    f"two objects have the name {name}: {objects[name]} and {path}. Rename one."
                )
        return cls(objects, max_number)

    def find_path(self, text: str, where: str) -> str:
        """Return the owner's path of the object that a text names."""
        name = text.rpartition(":")[2]
        if name not in self.objects:
            raise NotRegistered(
                f"{where}={text!r}: this machine has no object {name!r} for plans from other "
                "machines, and imports nothing that they name. If you have it in a file of your "
                f"own, join with --component FILE.py:{name}."
            )
        return self.objects[name]

    def convert_text(self, field: dataclasses.Field[Any], value: Any, where: str) -> Any:
        """Return the value that a field gets in place of a value with text; or reject it."""
        meaning = field.metadata.get("meaning")
        if meaning == "text":
            texts = value if isinstance(value, list) else [value]
            pattern = field.metadata["pattern"]
            if all(isinstance(each, str) and re.fullmatch(pattern, each) for each in texts):
                return value
        elif meaning == "name" and isinstance(value, str):
            if value in field.metadata["list_names"]():
                return value
            if ":" in value:
                return self.find_path(value, where)
        elif meaning == "object" and isinstance(value, str) and ":" in value:
            return self.find_path(value, where)
        elif meaning == "options" and _is_plain_option(value):
            return value
        raise NotRegistered(
            f"{where}={str(value)[:80]!r}: a plan from another machine cannot set this field to a "
            "text that names a file, a module or an unknown object."
        )

    def check_numbers(self, value: Any, where: str) -> None:
        """Reject whole numbers that could make this machine allocate or compute too much."""
        values = value.values() if isinstance(value, Mapping) else value
        if isinstance(value, list | tuple | Mapping):
            for each in values:
                self.check_numbers(each, where)
        elif isinstance(value, int) and abs(value) > self.max_number:
            raise TooLarge(
                f"{where}={value}: whole numbers in a plan from another machine are at most "
                f"{self.max_number}."
            )


class NoImports(Registry):
    """For views of a plan: all values are accepted that can be read without an import."""

    def find_path(self, text: str, where: str) -> str:
        raise NotRegistered(f"{where}={text!r} is code, which is not imported for a view.")

    def convert_text(self, field: dataclasses.Field[Any], value: Any, where: str) -> Any:
        can_name_code = field.metadata.get("meaning") in ("object", "name")
        if can_name_code and ":" in str(value) and not field.metadata.get("is_lazy"):
            self.find_path(str(value), where)
        return value

    def check_numbers(self, value: Any, where: str) -> None:
        pass


def _is_plain_option(value: Any) -> bool:
    """Return whether options have numbers and truth values only."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in re.split("[,;]", value) if part.strip()]
        return all(_is_number(text) for _, _, text in pairs)
    if isinstance(value, Mapping):
        return all(_is_plain_option_value(each) for each in value.values())
    return False


def _is_plain_option_value(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain_option_value, value))
    return isinstance(value, numbers.Real) or value in (None, "none")


def _is_number(text: str) -> bool:
    text = text.strip()
    if text.lower() in ("true", "false", "none"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
