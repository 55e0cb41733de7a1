from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from contracts.source import check_source, inputs_of, labels_of
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.engine.builders import apply_views, make_world
from thalweg.network.edge.sources import open_live_source
from thalweg.network.sources import SampleFormat
from thalweg.network.sources.tail import TailSource
from thalweg.scenarios import find_scenario

DIGITS = SampleFormat((8, 8, 1), "uint8", 10)


def test_scenario_replay_matches_the_arrivals_of_a_simulation() -> None:
    spec = "replay:drift-digits?client=3&seed=5&rounds=2"
    events = list(open_live_source(spec, DIGITS).events(""))
    scenario = find_scenario("drift-digits")
    data = scenario.data.load(None, 5)
    world = make_world(scenario, data, 5)
    state, first = world.begin(3)
    items = [first.items]
    for stream_round in range(2):
        state, arrivals = world.emit(state, 3, stream_round)
        items += [arrival.items for arrival in arrivals]
    rows, seen_so = np.concatenate(items), apply_views(data, world)
    assert labels_of(events) == seen_so.labels("train", rows).tolist()
    assert inputs_of(events) == seen_so.samples("train", rows).tolist()


def test_data_set_replay_divides_samples_among_clients_once() -> None:
    data = find_scenario("digits-partial").data.load(None, 0)
    labels = []
    for client in range(3):
        source = open_live_source(f"replay:digits?client={client}&clients=3", DIGITS)
        labels += labels_of(list(source.events("")))
    assert labels == data.y.tolist()


def test_replay_can_resume_at_any_event() -> None:
    spec = "replay:digits-partial?client=1&clients=20&rounds=1&speed=100000&label_delay=0.0001"
    found = check_source(lambda: open_live_source(spec, DIGITS))
    assert sum(len(entry) == 2 for entry in found) == len(found) // 2


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("replay:digits-partial?client=20&clients=20", "a client from 0 to 19, got 20"),
        ("replay:digits-partial?clients=0", "at least 1 for clients"),
        ("replay:table", "needs a file"),
    ],
)
def test_invalid_replay_options_are_rejected(spec: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        open_live_source(spec, DIGITS)


def test_unknown_replay_names_and_options_are_rejected() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'digits'"):
        open_live_source("replay:digts", DIGITS)
    with pytest.raises(UnknownName, match="option of the source"):
        open_live_source("replay:digits?qos=1", DIGITS)


def test_replay_data_with_another_format_are_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"shape \(8, 8, 1\), uint8, in 10 classes, but .* \(2,\)"
    ):
        open_live_source("replay:digits", SampleFormat((2,), "float32", 3))


def test_file_sources_are_opened_by_their_path(tmp_path: Path) -> None:
    assert isinstance(open_live_source(str(tmp_path / "r.csv"), DIGITS), TailSource)
