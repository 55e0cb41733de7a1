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
from thalweg.engine.building import viewed, world_of
from thalweg.scenarios import SCENARIOS, Scenario, scenario_named
from thalweg.scenarios.worlds import own_data
from thalweg.streams import Replay, World
from thalweg.streams.sources import Form, Source, open_source
from thalweg.streams.sources.replay import ReplaySource, pace_of
from thalweg.streams.sources.spec import Spec

ARRIVALS = 32  # samples of a data set that are looked up at a time
OPTIONS = ("client", "clients", "seed", "rounds", "speed", "label_delay", "wait")


def open_live(spec: str, form: Form, *, name: str = "", data_dir: Path | None = None) -> Source:
    """The source that a text names, ``replay:`` included; `name` is who reads, for brokers."""
    return open_source(spec, form, name=name, replaying=partial(replayed, data_dir))


def replayed(data_dir: Path | None, spec: Spec, form: Form) -> ReplaySource:
    """``replay:SCENARIO?client=3&clients=20&speed=100``: what this client would get, round after round.

    Ends with the scenario's rounds. Of a data set by its name, each sample comes once, in the order of time.
    """
    spec.only(*OPTIONS)
    pace, seed = pace_of(spec), spec.whole("seed", 0)
    scenario = _resized(_scenario(spec.place.removeprefix("replay:")), spec)
    data = scenario.data.load(data_dir, seed)
    _check(data, form, spec)
    world = world_of(scenario, data, seed)
    client = spec.whole("client", 0)
    require(
        client < world.num_clients,
        f"{spec.text}: expected a client from 0 to {world.num_clients - 1}, got {client}.",
    )
    rounds = _rounds(scenario, data) if "rounds" not in spec.options else scenario.rounds
    begin = partial(samples_of, viewed(data, world), world, client, rounds)
    return ReplaySource(begin, form, pace, name=f"{scenario.name}-{seed}-{client}")


def samples_of(data: Dataset, world: World, client: int, rounds: int) -> Iterator[tuple[Any, int]]:
    """Everything that arrives at a client in so many rounds of its life, sample by sample, as it was measured."""
    state, first = world.begin(client)
    arrivals = [first]
    for lived in range(rounds + 1):
        for arrival in arrivals:
            inputs = data.measured(data.samples("train", arrival.items))
            labels = data.labels("train", arrival.items)
            yield from zip(inputs, labels.tolist(), strict=True)
        if lived < rounds:
            state, arrivals = world.emit(state, client, lived)


def _scenario(name: str) -> Scenario:
    """A scenario, a file of one's own, or a data set, each sample of which then comes once."""
    if name in SCENARIOS or Path(name).suffix in (".npz", ".csv", ".parquet"):
        return scenario_named(name)
    if name not in SOURCES:
        raise UnknownName("scenario or data set", name, [*SCENARIOS, *SOURCES])
    try:
        data = SOURCES[name]()
    except TypeError as error:
        raise ConfigError(
            f"replay:{name} says nothing of a file; expected replay:NAME.csv."
        ) from error
    world = Replay(at_end="silence", arrivals=ARRIVALS)
    return replace(own_data("any.csv"), name=name, data=data, world=world)


def _rounds(scenario: Scenario, data: Dataset) -> int:
    """As many as the scenario has; until everything has come, if it comes once."""
    world = scenario.world
    if isinstance(world, Replay) and world.at_end == "silence" and world.every is None:
        return len(data.y) // (world.arrivals * scenario.ticks) + 1
    return scenario.rounds


def _resized(scenario: Scenario, spec: Spec) -> Scenario:
    """The scenario with the number of clients and rounds that a source says."""
    rounds = spec.whole("rounds", scenario.rounds, least=1)
    if "clients" in spec.options:
        clients: Any = {"num_clients": spec.whole("clients", 1, least=1)}
        require(
            "num_clients" in {field.name for field in fields(scenario.world)},  # type: ignore[arg-type]
            f"{spec.text}: the number of clients of {scenario.name} cannot be chosen; leave clients= out.",
        )
        scenario = replace(scenario, world=replace(scenario.world, **clients))  # type: ignore[type-var]
    return replace(scenario, rounds=rounds)


def _check(data: Dataset, form: Form, spec: Spec) -> None:
    """Is it the data that the federation learns?"""
    has = (data.x.shape[1:], str(data.x.dtype), data.num_classes)
    wanted = (form.shape, form.dtype, form.num_classes)
    if has != wanted:
        says = "samples of shape {}, {}, in {} classes"
        raise ConfigError(
            f"{spec.text} has {says.format(*has)}, but the federation learns from {says.format(*wanted)}."
        )
