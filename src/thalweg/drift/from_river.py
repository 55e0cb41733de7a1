"""Any detector of River, one for each client."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges, load_object, parse_pairs
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.core.types import Floats, Ints, Supplies
from thalweg.drift.base import Bools, Detector
from thalweg.drift.options import AlarmOptions

RIVER_MODULES = ("river.drift", "river.drift.binary")


class RiverState(NamedTuple):
    """What every client's detector has been shown since it began."""

    num: Ints  # (N,)
    values: Floats  # (N, width) width grows as it must


class RunningDetector(NamedTuple):
    """A detector in mid-stream."""

    seen_values: list[float]
    detector: Detector


@dataclass(frozen=True)
class RiverAlarm(AlarmOptions):
    """A detector of River (the extra ``thalweg[river]``), such as ADWIN or KSWIN, or any of your own like that.

    That is a class with ``update(x)`` and ``drift_detected``; nothing else is asked of it. A name with a colon is
    your own, ``package.module:Class`` or ``path/to/file.py:Class``.

    What is remembered, and written to checkpoints, are the values that a detector was shown. A run that goes on
    shows them again, so a detector must depend on nothing else; one with a seed gets seed 0, unless `settings` say
    otherwise. After an alarm the client gets a new detector, other than in a loop of River's own, in which some
    keep a part of their window. River's defaults are for thousands of values and a client has one per round: ADWIN
    looks at every 32nd value only, unless told ``clock=1``.
    """

    name: str = "ADWIN"
    settings: str = ""
    """What it is made with, such as clock=1,delta=0.01 (or clock=1;delta=0.01, where commas part recipes' changes);
    empty: River's defaults."""
    max_values: int = 1000
    """After so many values without an alarm the client gets a new detector that is shown the newer half of them."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, max_values="[2, inf)")
        self.parse_settings()  # what cannot be read is said at once

    def parse_settings(self) -> dict[str, Any]:
        """What is written in `settings`, by name.

        >>> RiverAlarm(settings="clock=1, delta=0.01").parse_settings()
        {'clock': 1, 'delta': 0.01}
        """
        return parse_pairs(self.settings, "alarm.settings", "clock=1")

    def check_world(self, supplies: Supplies, num_classes: int) -> None:
        """Before anything runs: is there such a detector?"""
        self.new_detector()

    def init(self, num_clients: int) -> RiverState:
        self.new_detector()
        return RiverState(np.zeros(num_clients, dtype=np.int64), np.zeros((num_clients, 1)))

    def update(self, state: RiverState, clients: Ints, values: Floats) -> tuple[RiverState, Bools]:
        counts = state.num.copy()
        width = max(int(counts[clients].max(initial=0)) + 1, 1)
        table = _widen(state.values, min(self.max_values, width))
        alarmed = np.zeros(len(clients), dtype=bool)
        for k, (client, value) in enumerate(zip(clients.tolist(), values.tolist(), strict=True)):
            running = self._resume_detector(client, table[client, : counts[client]].tolist())
            running.detector.update(value)
            running.seen_values.append(value)
            alarmed[k] = bool(running.detector.drift_detected)
            seen_values = self._store_values(client, running, alarmed[k])
            counts[client] = len(seen_values)
            table[client] = 0.0
            table[client, : len(seen_values)] = seen_values
        return RiverState(counts, table), alarmed

    def new_detector(self) -> Detector:
        """One that has seen nothing."""
        settings = self.parse_settings()
        if "seed" in inspect.signature(self._detector_class).parameters:
            settings.setdefault("seed", 0)
        try:
            detector: Detector = self._detector_class(**settings)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"alarm.name={self.name} cannot be made with alarm.settings={self.settings!r}: {error}."
            ) from error
        return detector

    def _resume_detector(self, client: int, seen_values: list[float]) -> RunningDetector:
        """The client's detector after these values: the one at hand, if it has seen just them, else a new one."""
        running = self._cache.pop(client, None)
        if running is not None and running.seen_values == seen_values:
            return running
        detector = self.new_detector()
        for value in seen_values:
            detector.update(value)
        return RunningDetector(seen_values, detector)

    def _store_values(self, client: int, running: RunningDetector, is_alarmed: bool) -> list[float]:
        """What is remembered of the values; the detector stays at hand as long as it has seen nothing else."""
        if is_alarmed:
            return []
        if len(running.seen_values) >= self.max_values:
            return running.seen_values[-(self.max_values // 2) :]
        self._cache[client] = running
        return running.seen_values

    @cached_property
    def _cache(self) -> dict[int, RunningDetector]:
        """Only to save time: any of them can be made again from the values that it was shown."""
        return {}

    @cached_property
    def _detector_class(self) -> type[Any]:
        kind = load_object(self.name) if ":" in self.name else _find_river_detector(self.name)
        if not (isinstance(kind, type) and hasattr(kind, "update")):
            raise ConfigError(
                f"alarm.name={self.name}: expected a class with update(x) and drift_detected, as River's "
                f"detectors have them, got {kind!r}."
            )
        return kind


def _find_river_detector(name: str) -> Any:
    try:
        homes = [importlib.import_module(home) for home in RIVER_MODULES]
    except ImportError as error:
        raise ConfigError(
            "alarm=river needs the package river, which is not installed: pip install 'thalweg[river]'. "
            "Alarms without it: page-hinkley, ddm, window-test."
        ) from error
    known = {
        each: kind
        for home in homes
        for each, kind in vars(home).items()
        if isinstance(kind, type) and hasattr(kind, "drift_detected")
    }
    if name not in known:
        raise UnknownName("detector of River", name, known)
    return known[name]


def _widen(table: Floats, width: int) -> Floats:
    """A copy with room for so many values of each client; doubled, so that this is rare."""
    if table.shape[1] >= width:
        return table.copy()
    wider = np.zeros((len(table), max(width, 2 * table.shape[1])))
    wider[:, : table.shape[1]] = table
    return wider
