"""The source ``replay:``: plays one client of a scenario as if its samples arrived now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from thalweg.core.config import parse, with_settings
from thalweg.core.errors import ConfigError, UnknownName, require
from thalweg.data import SOURCES, Dataset, DataSource
from thalweg.engine.builders import apply_views, make_world
from thalweg.network.sources import SampleFormat, Source, open_source
from thalweg.network.sources.replay import ReplaySource, parse_rate
from thalweg.network.sources.spec import SourceSpec, parse_spec
from thalweg.scenarios import SCENARIOS, Scenario, find_scenario, resolve_sizes
from thalweg.scenarios.registry import own_data
from thalweg.streams import Replay, World

ARRIVALS_PER_TICK = 32  # samples of a data set that are read at a time
OPTIONS = ("client", "clients", "seed", "rounds", "speed", "label_delay", "wait")


def open_live_source(
    spec: str, sample_format: SampleFormat, *, name: str = "", data_dir: Path | None = None
) -> Source:
    """Open the source that a text names, including ``replay:``.

    `name` identifies the reader to brokers.
    """
    return open_source(spec, sample_format, name=name, open_replay=partial(open_replay, data_dir))


def open_replay(
    data_dir: Path | None, spec: SourceSpec, sample_format: SampleFormat
) -> ReplaySource:
    """``replay:SCENARIO?client=3&clients=20&speed=100``: the arrivals of a client, round by round.

    Ends with the scenario's rounds. With the name of a data set, each sample arrives once, in time
    order.
    """
    spec.check_options(*OPTIONS)
    rate, seed = parse_rate(spec), spec.get_int("seed", 0)
    scenario = _resize(_find_scenario(spec.location.removeprefix("replay:")), spec)
    scenario = resolve_sizes(scenario, data_dir, seed)
    data = scenario.data.load(data_dir, seed)
    _check_format(data, sample_format, spec)
    world = make_world(scenario, data, seed)
    client = spec.get_int("client", 0)
    require(
        client < world.num_clients,
        f"{spec.text}: expected a client from 0 to {world.num_clients - 1}, got {client}.",
    )
    rounds = _count_rounds(scenario, data) if "rounds" not in spec.options else scenario.rounds
    begin = partial(iter_samples, apply_views(data, world), world, client, rounds)
    return ReplaySource(begin, sample_format, rate, name=f"{scenario.name}-{seed}-{client}")


def find_replay_data(text: str) -> DataSource:
    """The data set of ``replay:NAME``, for a run that replays samples.

    NAME is a scenario, a data set, a file, ``hf:NAME`` or ``river:NAME``. Options are fields of the
    data set: ``replay:sales.csv?label=price``.
    """
    spec = parse_spec(text)
    name = spec.location.removeprefix("replay:")
    data = SOURCES[name]() if name in SOURCES else find_scenario(name).data
    return with_settings(data, {name: parse(value) for name, value in spec.options.items()}, text)


def iter_samples(
    data: Dataset, world: World, client: int, rounds: int
) -> Iterator[tuple[Any, Any]]:
    """All samples that arrive at a client in some rounds, in order and unscaled."""
    state, first = world.begin(client)
    arrivals = [first]
    for stream_round in range(rounds + 1):
        for arrival in arrivals:
            inputs = data.unscale(data.samples("train", arrival.items))
            labels = data.labels("train", arrival.items)
            yield from zip(inputs, labels.tolist(), strict=True)
        if stream_round < rounds:
            state, arrivals = world.emit(state, client, stream_round)


def _find_scenario(name: str) -> Scenario:
    """A scenario, a user's file, or a data set whose samples arrive once."""
    if name in SCENARIOS or Path(name).suffix in (".npz", ".csv", ".parquet"):
        return find_scenario(name)
    if name not in SOURCES:
        raise UnknownName("scenario or data set", name, [*SCENARIOS, *SOURCES])
    try:
        data = SOURCES[name]()
    except TypeError as error:
        raise ConfigError(f"replay:{name} needs a file; expected replay:NAME.csv.") from error
    world = Replay(at_end="stop", arrivals=ARRIVALS_PER_TICK)
    return replace(own_data(data, name), world=world)


def _count_rounds(scenario: Scenario, data: Dataset) -> int:
    """Rounds of the scenario, or until all samples have arrived if they arrive once."""
    world = scenario.world
    if isinstance(world, Replay) and world.at_end == "stop" and world.every is None:
        return len(data.y) // (world.arrivals * scenario.ticks) + 1
    return scenario.rounds


def _resize(scenario: Scenario, spec: SourceSpec) -> Scenario:
    """The scenario with the numbers of clients and rounds given by a source."""
    rounds = spec.get_int("rounds", scenario.rounds, least=1)
    if "clients" in spec.options:
        clients: Any = {"num_clients": spec.get_int("clients", 1, least=1)}
        require(
            "num_clients" in {field.name for field in fields(scenario.world)},  # type: ignore[arg-type]
            f"{spec.text}: {scenario.name} has a fixed number of clients; remove clients=.",
        )
        scenario = replace(scenario, world=replace(scenario.world, **clients))  # type: ignore[type-var]
    return replace(scenario, rounds=rounds)


def _check_format(data: Dataset, sample_format: SampleFormat, spec: SourceSpec) -> None:
    """Require the data format of the federation."""
    has = _describe(data.x.shape[1:], str(data.x.dtype), data.num_classes, data.y.shape[1:])
    wanted = _describe(
        sample_format.shape,
        sample_format.dtype,
        sample_format.num_classes,
        sample_format.target_shape,
    )
    if has != wanted:
        raise ConfigError(f"{spec.text} has {has}, but the federation uses {wanted}.")


def _describe(
    shape: tuple[int, ...], dtype: str, num_classes: int, target_shape: tuple[int, ...]
) -> str:
    targets = f"in {num_classes} classes"
    if num_classes == 0:
        targets = f"with targets of shape {target_shape}"
    return f"samples of shape {shape}, {dtype}, {targets}"
