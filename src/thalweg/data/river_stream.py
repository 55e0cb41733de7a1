"""Data sets and generators of River in simulation."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from thalweg.core.config import check_ranges, parse_pairs
from thalweg.core.errors import ConfigError, DataError, UnknownName
from thalweg.core.registry import plain_options, plain_text, registered_name
from thalweg.core.rng import Draw, rng_for
from thalweg.data.base import Dataset
from thalweg.data.own import Rules, read_once
from thalweg.data.samples import dataset_from_samples
from thalweg.data.search import is_offline

DEFAULT_SAMPLES = 10_000  # of a generator, which does not end


@dataclass(frozen=True)
class RiverStream(Rules):
    """A generator or a data set of River (``thalweg[river]``), divided among clients.

    The samples arrive at the clients in turn: sample i belongs to client i mod `clients`, and its
    time is i, so that all clients see a drift at the same time. Generators are drawn anew for each
    seed of a run; data sets are the same for every seed.

    >>> data = RiverStream("SEA", samples=1000, clients=4).load(None, seed=0)
    >>> data.x.shape, len(data.client_names), data.class_names
    ((800, 3), 4, ('False', 'True'))
    """

    depends_on_seed: ClassVar[bool] = True  # generators do

    name: str = registered_name(lambda: _list_classes())
    """A class of river.datasets.synth (SEA, RandomRBFDrift) or of river.datasets (Phishing)."""
    samples: int | None = None
    """Number of samples; None: all of a data set, 10000 of a generator."""
    clients: int = 10
    options: str = plain_options(default="")
    """Arguments of the class, such as variant=2,noise=0.1."""
    drop: tuple[str, ...] = plain_text(default=())
    """Features that are not used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, samples="[1, inf) or none", clients="[1, CLIENTS]")
        self.parse_options()  # report syntax errors immediately

    def parse_options(self) -> dict[str, Any]:
        """Return the arguments of the class."""
        return parse_pairs(self.options, "data.options", "variant=2,noise=0.1")

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Draw or read the samples."""
        return read_once(_read, self, seed)


def _read(source: RiverStream, seed: int) -> Dataset:
    where = f"river:{source.name}"
    make, is_generator = _find_class(source.name)
    options = source.parse_options()
    rng = rng_for(seed, Draw.DATA)
    for parameter in inspect.signature(make).parameters:
        if parameter.startswith("seed") and parameter not in options:
            options[parameter] = int(rng.integers(2**31))
    try:
        stream = make(**options)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{where}: River's {make.__name__} rejects data.options={source.options!r} ({error}); "
            f"its arguments are {', '.join(inspect.signature(make).parameters) or 'none'}."
        ) from error
    if is_offline() and not getattr(stream, "is_downloaded", True):
        raise DataError(
            f"{where} is not on this machine, and THALWEG_OFFLINE=1 forbids downloads. River "
            f"expects it at {stream.path}; download it with river.datasets.{source.name}()"
            ".download() on a machine with a connection, and copy it."
        )
    limit = source.samples or (DEFAULT_SAMPLES if is_generator else None)
    try:
        return dataset_from_samples(
            _deal(stream, source.clients, limit),
            name=source.name,
            total=limit,
            drop=source.drop,
            rules=source,
            where=where,
        )
    except OSError as error:  # a download
        raise DataError(
            f"{where} cannot be read ({error}). River downloads this data set; the data sets "
            "inside the package, such as Phishing and Bananas, need no connection."
        ) from error


def _deal(stream: Any, clients: int, limit: int | None) -> Iterator[tuple[Any, Any, int, float]]:
    """Assign samples to clients in turn."""
    for number, (x, y) in enumerate(islice(stream, limit)):
        yield x, y, number % clients, float(number)


def _find_class(name: str) -> tuple[Any, bool]:
    """Return a class of River by name, and whether it is a generator."""
    known, short = _list_classes(name), name.removeprefix("synth.")
    if short not in known:
        raise UnknownName("stream of River", name, known)
    from river.datasets import base

    return known[short], issubclass(known[short], base.SyntheticDataset)


def _list_classes(name: str = "NAME") -> dict[str, Any]:
    """Return the streams of River by name."""
    try:
        from river import datasets
        from river.datasets import base, synth
    except ImportError as error:
        raise ConfigError(f"river:{name} needs River: pip install 'thalweg[river]'.") from error
    return {
        each: getattr(package, each)
        for package in (datasets, synth)
        for each in package.__all__
        if inspect.isclass(getattr(package, each))
        and issubclass(getattr(package, each), base.Dataset)
    }
