"""The simulated pumps publish readings that a source can read, and their readings drift."""

from __future__ import annotations

import csv
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.source import flatten_events, read_until
from network.sources.conftest import MOSQUITTO, Mosquitto
from thalweg.core.config import load_object
from thalweg.network.sources import LateLabels, SampleFormat, open_source

ROOT = Path(__file__).parents[2]
PUMPS = SampleFormat((4,), "float32", 3, classes=("blocked", "fine", "worn"))


def named(name: str) -> Any:
    return load_object(f"{ROOT}/examples/sensors.py:{name}")


def centre(state: str, first: int, last: int) -> Any:
    drawn = list(islice(named("readings")(0, 0, 500), first, last))
    return np.mean([x for x, of in drawn if of == state], axis=0)


def test_drift_swaps_the_readings_of_worn_and_blocked_pumps() -> None:
    for before, after in (("worn", "blocked"), ("blocked", "worn"), ("fine", "fine")):
        assert np.abs(centre(before, 0, 500) - centre(after, 500, 1000)).max() < 0.4
    assert np.abs(centre("worn", 0, 500) - centre("worn", 500, 1000)).max() > 2


def test_table_contains_readings_of_other_pumps(tmp_path: Path) -> None:
    path = tmp_path / "pumps.csv"
    named("main")(named("arguments")(["--table", str(path), "--rows", "50"]))
    header, *rows = csv.reader(path.read_text().splitlines())
    assert header == ["temperature", "vibration", "pressure", "current", "state"]
    assert len(rows) == 50
    assert {row[-1] for row in rows} == {"blocked", "fine", "worn"}
    found = flatten_events(list(open_source(f"{path}?follow=no&y=state", PUMPS).events("")))
    assert len(found) == 50


def test_each_reading_is_followed_by_its_label() -> None:
    sent: list[tuple[str, Any]] = []
    words = ["--devices", "2", "--count", "3", "--rate", "1000", "--label-delay", "0.001"]
    named("publish")(
        named("arguments")(words), lambda topic, message: sent.append((topic, message))
    )
    topics = [topic for topic, _ in sent]
    assert sorted(topics) == sorted(
        f"pumps/{device}/{kind}"
        for device in range(2)
        for kind in ("reading", "state")
        for _ in range(3)
    )
    ids = [message["id"] for _, message in sent]
    assert all(ids.count(each) == 2 for each in ids)
    assert all("x" in message for _, message in sent if "y" not in message)


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
def test_source_reads_published_readings(tmp_path: Path) -> None:
    pytest.importorskip("paho.mqtt.client")
    broker = Mosquitto(tmp_path)
    broker.start()
    source = open_source(f"{broker.address}/pumps/1/#", PUMPS, name="abc")
    events = source.events("")
    next(events)
    while source.trouble:
        next(events)
    words = ["--port", str(broker.port), "--broker", "127.0.0.1", "--count", "5", "--rate", "200"]
    args = named("arguments")([*words, "--label-delay", "0.05"])
    pumps = threading.Thread(target=named("main"), args=(args,))
    pumps.start()
    found = read_until(events, 10)
    pumps.join()
    source.close()
    broker.stop()
    samples = [one for one in flatten_events(found) if len(one) == 3]
    assert [key for _, _, key in samples] == [f"1-{number}" for number in range(5)]
    assert any(isinstance(event, LateLabels) for event in found)
    assert source.rejected == 0
