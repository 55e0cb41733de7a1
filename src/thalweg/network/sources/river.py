"""Data sets and generators of River as sources."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.network.sources.base import SampleFormat
from thalweg.network.sources.iterators import IteratorSource
from thalweg.network.sources.spec import SourceSpec

OWN_OPTIONS = ("take", "columns")


def river_source(spec: SourceSpec, sample_format: SampleFormat) -> IteratorSource:
    """``river:Phishing`` or ``river:synth.SEA?seed=1&take=1000``.

    Other options are passed to River.

    Features are in River's order, or as given by ``columns=``.
    """
    make, columns = _find_class(spec.location.removeprefix("river:")), spec.get_names("columns")
    settings = {
        name: _parse_value(text) for name, text in spec.options.items() if name not in OWN_OPTIONS
    }
    most = spec.get_int("take", 0) or None
    try:
        make(**settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{spec.text}: River's {make.__name__} rejects these options ({error})."
        ) from error

    def begin(start: int) -> Iterable[Any]:
        for x, y in islice(make(**settings), start, most):
            yield ([x.get(name) for name in columns] if columns else list(x.values())), y

    return IteratorSource(begin, sample_format)


def _find_class(name: str) -> Any:
    """A data set of River by name; synth.NAME is a generator."""
    try:
        from river import datasets
        from river.datasets import base
    except ImportError as error:
        raise ConfigError("a source river: needs River: pip install 'thalweg[river]'.") from error
    package, short = (datasets.synth, name[6:]) if name.startswith("synth.") else (datasets, name)
    known = {
        each: getattr(package, each)
        for each in package.__all__
        if isinstance(getattr(package, each), type)
        and issubclass(getattr(package, each), base.Dataset)
    }
    if short not in known:
        raise UnknownName("stream of River", name, known)
    return known[short]


def _parse_value(text: str) -> int | float | bool | str:
    """Parse a number or a boolean; other texts are returned unchanged."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
