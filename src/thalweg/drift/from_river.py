"""Alarms from detectors of the River library, one detector per client."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges, load_object, parse_pairs
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.core.registry import plain_options, registered_name
from thalweg.core.types import Floats, Ints, Supplies
from thalweg.drift.actions import AlarmOptions
from thalweg.drift.base import Bools, Detector

RIVER_MODULES = ("river.drift", "river.drift.binary")


class RiverState(NamedTuple):
    """The values that each client's detector has processed since it was created."""

    num: Ints  # (N,) number of values
    values: Floats  # (N, width); the width grows with the values


class RunningDetector(NamedTuple):
    """A detector and the values that it has processed."""

    seen_values: list[float]
    detector: Detector


@dataclass(frozen=True)
class RiverAlarm(AlarmOptions):
    """Uses a detector of the River library, such as ADWIN or KSWIN, or your own class.

    River is an optional dependency (``thalweg[river]``). A detector is a class with ``update(x)``
    and ``drift_detected`` (`Detector`). Your own class is given with a colon:
    ``package.module:Class`` or ``path/to/file.py:Class``.

    Checkpoints store the values that a detector has processed, and a resumed run replays them. The
    detector must therefore depend on its values and settings only; a parameter ``seed`` is set to 0
    unless `settings` has one. After an alarm the client gets a new detector, whereas some of
    River's detectors keep a part of their window. River's defaults suit thousands of values, and a
    client has one per round: ADWIN tests every 32nd value only, unless ``clock=1``.

    The sum of the excesses over the mean is 0.8 - 0.4, then 0.4 + 0.8 - 0.5, above 0.5:

    >>> alarm = RiverAlarm("PageHinkley", "min_instances=1,delta=0,threshold=0.5,alpha=1")
    >>> state = alarm.init(num_clients=1)
    >>> for rnd, error in enumerate((0.2, 0.2, 0.8, 0.8)):
    ...     state, alarmed = alarm.update(state, np.array([0]), np.array([error]))
    ...     if alarmed[0]:
    ...         print("alarm in round", rnd)
    alarm in round 3
    """

    name: str = registered_name(lambda: _list_river_detectors(), default="ADWIN")
    """Name of a River detector, or a class of your own."""
    settings: str = plain_options(default="")
    """Arguments of the detector, such as clock=1,delta=0.01; empty: its defaults. Write
    clock=1;delta=0.01 where commas separate the changes of a recipe."""
    max_values: int = 1000
    """After this number of values without an alarm, the client gets a new detector that processes
    the newer half of them."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, max_values="[2, inf)")
        self.parse_settings()  # raises an error for invalid settings

    @property
    def needs_class_labels(self) -> bool:
        """Whether the detector models a share of wrong predictions, as those of River's binary."""
        return self._detector_class.__module__.startswith(RIVER_MODULES[1])

    def parse_settings(self) -> dict[str, Any]:
        """Return `settings` as a dictionary.

        >>> RiverAlarm(settings="clock=1, delta=0.01").parse_settings()
        {'clock': 1, 'delta': 0.01}
        """
        return parse_pairs(self.settings, "alarm.settings", "clock=1")

    def check_world(self, supplies: Supplies, num_classes: int) -> None:
        """Raise `ConfigError` if the detector does not exist or rejects its settings."""
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
        """Create a detector without values."""
        settings = self.parse_settings()
        if "seed" in inspect.signature(self._detector_class).parameters:
            settings.setdefault("seed", 0)
        try:
            detector: Detector = self._detector_class(**settings)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"alarm.name={self.name} cannot be created with alarm.settings={self.settings!r}: "
                f"{error}."
            ) from error
        return detector

    def _resume_detector(self, client: int, seen_values: list[float]) -> RunningDetector:
        """Return the client's detector after these values: from the cache, or created again."""
        running = self._cache.pop(client, None)
        if running is not None and running.seen_values == seen_values:
            return running
        detector = self.new_detector()
        for value in seen_values:
            detector.update(value)
        return RunningDetector(seen_values, detector)

    def _store_values(self, client: int, running: RunningDetector, is_alarmed: bool) -> list[float]:
        """Return the values to store, and cache the detector if it has processed exactly these."""
        if is_alarmed:
            return []
        if len(running.seen_values) >= self.max_values:
            return running.seen_values[-(self.max_values // 2) :]
        self._cache[client] = running
        return running.seen_values

    @cached_property
    def _cache(self) -> dict[int, RunningDetector]:
        """Detectors by client, to save time; each can be created again from its values."""
        return {}

    @cached_property
    def _detector_class(self) -> type[Any]:
        found = load_object(self.name) if ":" in self.name else _find_river_detector(self.name)
        if not (isinstance(found, type) and hasattr(found, "update")):
            raise ConfigError(
                f"alarm.name={self.name}: expected a class with update(x) and drift_detected, like "
                f"River's detectors, got {found!r}."
            )
        return found


def _find_river_detector(name: str) -> Any:
    known = _list_river_detectors()
    if name not in known:
        raise UnknownName("detector of River", name, known)
    return known[name]


def _list_river_detectors() -> dict[str, type[Any]]:
    try:
        modules = [importlib.import_module(module) for module in RIVER_MODULES]
    except ImportError as error:
        raise ConfigError(
            "alarm=river needs the package river, which is not installed. Install it with "
            "pip install 'thalweg[river]', or use page-hinkley, ddm or window-test."
        ) from error
    return {
        key: member
        for module in modules
        for key, member in vars(module).items()
        if isinstance(member, type) and hasattr(member, "drift_detected")
    }


def _widen(table: Floats, width: int) -> Floats:
    """Return a copy with at least `width` columns; the width doubles, so that copies are rare."""
    if table.shape[1] >= width:
        return table.copy()
    wider = np.zeros((len(table), max(width, 2 * table.shape[1])))
    wider[:, : table.shape[1]] = table
    return wider
