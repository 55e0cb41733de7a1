"""Sources that need a data set: ``replay:`` plays one client of a scenario as if its samples came now.

Streams know no data sets (imports point down), so this is where the two meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from thalweg.core.errors import ConfigError, UnknownName, require
from thalweg.data import SOURCES, Dataset
from thalweg.engine.builders import apply_views, make_world
from thalweg.network.sources import SampleFormat, Source, open_source
from thalweg.network.sources.replay import ReplaySource, parse_rate
from thalweg.network.sources.spec import SourceSpec
from thalweg.scenarios import SCENARIOS, Scenario, find_scenario
from thalweg.scenarios.registry import own_data
from thalweg.streams import Replay, World

ARRIVALS_PER_TICK = 32  # samples of a data set that are looked up at a time
OPTIONS = ("client", "clients", "seed", "rounds", "speed", "label_delay", "wait")


def open_live_source(
    spec: str, sample_format: SampleFormat, *, name: str = "", data_dir: Path | None = None
) -> Source:
    """The source that a text names, ``replay:`` included; `name` is who reads, for brokers."""
    return open_source(spec, sample_format, name=name, open_replay=partial(open_replay, data_dir))


def open_replay(
    data_dir: Path | None, spec: SourceSpec, sample_format: SampleFormat
) -> ReplaySource:
    """``replay:SCENARIO?client=3&clients=20&speed=100``: what this client would get, round after round.

    Ends with the scenario's rounds. Of a data set by its name, each sample comes once, in the order of time.
    """
    spec.check_options(*OPTIONS)
    rate, seed = parse_rate(spec), spec.get_int("seed", 0)
    scenario = _resize(_find_scenario(spec.location.removeprefix("replay:")), spec)
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


def iter_samples(
    data: Dataset, world: World, client: int, rounds: int
) -> Iterator[tuple[Any, int]]:
    """Everything that arrives at a client in so many rounds of its life, sample by sample, as it was measured."""
    state, first = world.begin(client)
    arrivals = [first]
    for lived in range(rounds + 1):
        for arrival in arrivals:
            inputs = data.unscale(data.samples("train", arrival.items))
            labels = data.labels("train", arrival.items)
            yield from zip(inputs, labels.tolist(), strict=True)
        if lived < rounds:
            state, arrivals = world.emit(state, client, lived)


def _find_scenario(name: str) -> Scenario:
    """A scenario, a file of one's own, or a data set, each sample of which then comes once."""
    if name in SCENARIOS or Path(name).suffix in (".npz", ".csv", ".parquet"):
        return find_scenario(name)
    if name not in SOURCES:
        raise UnknownName("scenario or data set", name, [*SCENARIOS, *SOURCES])
    try:
        data = SOURCES[name]()
    except TypeError as error:
        raise ConfigError(
            f"replay:{name} says nothing of a file; expected replay:NAME.csv."
        ) from error
    world = Replay(at_end="stop", arrivals=ARRIVALS_PER_TICK)
    return replace(own_data("any.csv"), name=name, data=data, world=world)


def _count_rounds(scenario: Scenario, data: Dataset) -> int:
    """As many as the scenario has; until everything has come, if it comes once."""
    world = scenario.world
    if isinstance(world, Replay) and world.at_end == "stop" and world.every is None:
        return len(data.y) // (world.arrivals * scenario.ticks) + 1
    return scenario.rounds


def _resize(scenario: Scenario, spec: SourceSpec) -> Scenario:
    """The scenario with the number of clients and rounds that a source says."""
    rounds = spec.get_int("rounds", scenario.rounds, least=1)
    if "clients" in spec.options:
        clients: Any = {"num_clients": spec.get_int("clients", 1, least=1)}
        require(
            "num_clients" in {field.name for field in fields(scenario.world)},  # type: ignore[arg-type]
            f"{spec.text}: the number of clients of {scenario.name} cannot be chosen; leave clients= out.",
        )
        scenario = replace(scenario, world=replace(scenario.world, **clients))  # type: ignore[type-var]
    return replace(scenario, rounds=rounds)


def _check_format(data: Dataset, sample_format: SampleFormat, spec: SourceSpec) -> None:
    """Is it the data that the federation learns?"""
    has = (data.x.shape[1:], str(data.x.dtype), data.num_classes)
    wanted = (sample_format.shape, sample_format.dtype, sample_format.num_classes)
    if has != wanted:
        says = "samples of shape {}, {}, in {} classes"
        raise ConfigError(
            f"{spec.text} has {says.format(*has)}, but the federation learns from {says.format(*wanted)}."
        )
