"""Limits that the owner of a device sets on what a server can make it do."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from types import FrameType
from typing import Any

from thalweg.bank import find_max_jobs
from thalweg.core.config import check_ranges, with_overrides
from thalweg.core.errors import require
from thalweg.core.registry import TooLarge
from thalweg.core.types import Supply
from thalweg.engine.plan import Plan
from thalweg.nets import Module, NetSpec
from thalweg.nets.module import count_params
from thalweg.network.edge.store import Store, write_facts
from thalweg.network.rejections import Rejected, RejectionCode
from thalweg.recipes import Recipe, get_recipe
from thalweg.recipes.disclosure import compute_least_noise, find_weaker_part, list_exact_parts
from thalweg.scenarios import Scenario
from thalweg.streams.arrivals import StreamRate

MODEL_COPIES = 8  # of all parameters during a round: model, update, gradient, optimizer, messages
MIN_MEMORY = 300_000_000  # of a process with PyTorch
MAX_STEPS = 1_000_000  # of local training in a round
MAX_CLIENTS = 10_000  # of the population from which a device replays one client
MAX_STATES = 1_000_000  # of all clients of that population together
MAX_JOIN_S = 120.0  # of CPU time to read a plan and create its client
DATA_COPIES = 6  # of generated data in float32, while they are drawn
MAX_REQUESTS = 16  # of one round, such as a survey, a probe round, keys of masks, and the training
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "": 1}
PROTECTIONS = ("privacy", "secure_aggregation")  # parts that a server may add to a recipe
LAST_ROUND = "last_round_at"  # name of the fact in the store


@dataclass(frozen=True)
class DeviceLimits:
    """Limits of a device; checked before anything is computed."""

    max_params: int = 100_000_000  # parameters of the model
    max_memory: int | None = None  # bytes; None: the memory of this machine
    min_interval_s: float = 0.0  # seconds between the starts of two rounds
    recipes: tuple[str, ...] = ()  # allowed recipes: NAME or NAME?field=value; empty: all
    min_noise: float = 0.0  # of everything that is sent, in units of half the largest change
    max_epsilon: float | None = None  # of all that is ever sent; None: no account
    delta: float = 1e-5  # of the account
    max_samples: int = 10_000_000  # of a round, counted as often as they are used

    def __post_init__(self) -> None:
        check_ranges(
            self,
            max_params="[1, 1e15]",
            max_memory="[1, 1e18] or none",
            min_interval_s="[0, inf)",
            min_noise="[0, inf)",
            max_epsilon="(0, inf) or none",
            delta="(0, 1)",
            max_samples="[1, 1e15]",
        )
        for text in self.recipes:
            parse_allowed_recipe(text)  # an unknown name is an error

    def check_plan(self, plan: Plan) -> None:
        """Reject a recipe that the owner does not allow, and rounds that need too much work."""
        self._check_recipe(plan.recipe)
        self._check_privacy(plan.recipe)
        self.check_data(plan.scenario)
        self.check_work(plan, plan.scenario.capacity)

    def _check_recipe(self, recipe: Recipe) -> None:
        """Reject other components than those of an allowed recipe, and less privacy."""
        if not self.recipes:
            return
        weaker = None
        for allowed in map(parse_allowed_recipe, self.recipes):
            if _has_same_components(recipe, allowed):
                weaker = find_weaker_part(recipe, allowed)
                if weaker is None:
                    return
        if weaker is not None:
            raise Rejected(
                RejectionCode.PRIVACY,
                f"this client allows {', '.join(self.recipes)} (--recipes), but the server's plan "
                f"discloses more: {weaker}. Serve it with at least the noise of that recipe.",
            )
        raise Rejected(
            RejectionCode.RECIPE,
            f"the server runs the recipe {recipe.name}, but this client allows "
            f"{', '.join(self.recipes)} with their own components only (--recipes).",
        )

    def check_work(self, plan: Plan, capacity: int, supply: Supply | None = None) -> None:
        """Reject a plan whose rounds have too many steps or samples for this device.

        `supply` is the client's, if its world exists.
        """
        scenario, local = plan.scenario, plan.local
        num_models = find_max_jobs(plan.recipe.bank)
        batch_size = min(local.batch_size, capacity)
        batches = (local.passes or 0) * capacity / batch_size
        steps = num_models * scenario.ticks * (local.steps or batches)
        if steps > MAX_STEPS:
            raise TooLarge(
                f"the plan has up to {steps:.0f} steps of local training per round, at most "
                f"{MAX_STEPS} are allowed."
            )
        arrivals = _count_arrivals(scenario, capacity)
        if supply is not None:
            arrivals = max(arrivals, supply.total / max(supply.rounds, 1.0))
        work = {"local training": steps * batch_size, "the stream": arrivals}
        for what, num_samples in work.items():
            if num_samples > self.max_samples:
                raise TooLarge(
                    f"the plan has up to {num_samples:.0f} samples of {what} per round, but this "
                    f"client allows {self.max_samples} (--max-samples). Reduce ticks, capacity, "
                    "arrivals, local.passes, local.steps or the number of models."
                )

    def check_data(self, scenario: Scenario) -> None:
        """Reject generated data that are too large, before they are drawn."""
        sizes = (getattr(scenario.data, name, 0) for name in ("num_samples", "num_test"))
        num_values = sum(sizes) * getattr(scenario.data, "num_features", 1)
        if 4 * num_values * DATA_COPIES > (limit := self._get_memory_limit()):
            raise TooLarge(
                f"the plan generates data of {num_values} numbers, which need more than the "
                f"{limit} bytes that this client allows (--max-memory)."
            )

    def _check_privacy(self, recipe: Recipe) -> None:
        """Reject a plan with less noise than the owner requires."""
        option = "--min-noise" if self.max_epsilon is None else "--max-epsilon"
        exact = list_exact_parts(recipe)
        if exact and (self.min_noise > 0 or self.max_epsilon is not None):
            raise Rejected(
                RejectionCode.PRIVACY,
                f"this client requires noise on everything it sends ({option}), but with the "
                f"server's plan it would send without noise: {', '.join(exact)}. Serve it with "
                "privacy=gaussian and privacy.losses, privacy.counts and privacy.predictions=noisy "
                "or omit.",
            )
        if (noise := compute_least_noise(recipe)) < self.min_noise:
            raise Rejected(
                RejectionCode.PRIVACY,
                f"the server's plan has noise {noise:g}, but this client requires at least "
                f"{self.min_noise:g} (--min-noise). Noise is privacy.noise, and 2 / epsilon for "
                "label counts.",
            )

    def check_net(self, spec: NetSpec) -> None:
        """Reject a module that is too large before its parameters are allocated.

        The owner's class receives numbers from the server (`net.options`).
        """
        if isinstance(spec, Module):
            self.check_params(count_params(spec))

    def check_params(self, num_params: int) -> None:
        """Reject a model that is too large."""
        if num_params > self.max_params:
            raise TooLarge(
                f"the model has {num_params} parameters, but this client allows {self.max_params} "
                "(--max-params)."
            )

    def check_memory(self, num_params: int, num_samples: int, sample_bytes: int) -> None:
        """Reject a model and a memory of samples that need too much memory."""
        limit = self._get_memory_limit()
        needed = 4 * num_params * MODEL_COPIES + num_samples * sample_bytes
        if needed > limit:
            raise TooLarge(
                f"{num_samples} samples of {sample_bytes} bytes and a model of {num_params} "
                f"parameters need about {needed} bytes, but this client allows {limit} "
                "(--max-memory)."
            )

    def _get_memory_limit(self) -> int:
        return get_machine_memory() if self.max_memory is None else self.max_memory

    def limit_process(self) -> None:
        """Make allocations of this process fail beyond `max_memory`, where the system can."""
        if self.max_memory is not None:
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            limit = self.max_memory if hard < 0 else min(self.max_memory, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


class RoundTimer:
    """Limits the rounds of a device; the last start is on disk before the round is computed."""

    def __init__(
        self, store: Store, min_interval_s: float, now: Callable[[], float] = time.time
    ) -> None:
        self._store, self._min_interval_s, self._now = store, min_interval_s, now

    def start(self, rnd: int) -> None:
        """Count a request of a round, or reject it.

        Requests of the same round need no interval, but their number is limited. If the clock was
        set back, the interval starts again.
        """
        if not self._min_interval_s:
            return
        now, stored = self._now(), self._store.read_fact(LAST_ROUND)
        last: dict[str, Any] = (
            {"round": -1, "at": -math.inf, "requests": 0} if stored is None else json.loads(stored)
        )
        if last["round"] == rnd and last["requests"] < MAX_REQUESTS:
            self._write(rnd, last["at"], last["requests"] + 1)
            return
        if now < last["at"]:
            self._write(last["round"], now, last["requests"])
        if now < last["at"] + self._min_interval_s:
            raise Rejected(
                RejectionCode.FREQUENCY,
                f"a round was requested {max(now - last['at'], 0):.0f} s after the last one, but "
                f"this client takes part every {self._min_interval_s:g} s at most "
                "(--min-interval).",
            )
        self._write(rnd, now, 1)

    def _write(self, rnd: int, at: float, requests: int) -> None:
        fact = json.dumps({"round": rnd, "at": at, "requests": requests})
        with self._store.transaction() as db:
            write_facts(db, {LAST_ROUND: fact})


def parse_size(text: str) -> int:
    """Return a number of bytes.

    >>> parse_size("2GB"), parse_size("500 MB")
    (2000000000, 500000000)
    """
    stripped = text.strip().upper()
    unit = next((each for each in UNITS if each and stripped.endswith(each)), "")
    number = stripped.removesuffix(unit).strip()
    try:
        size = float(number) * UNITS[unit]
    except ValueError:
        size = math.nan
    require(
        MIN_MEMORY <= size < math.inf,
        f"--max-memory {text}: expected a size such as 500MB or 2GB, at least "
        f"{MIN_MEMORY // 10**6}MB, which the client needs without a model.",
    )
    return int(size)


def get_machine_memory() -> int:
    """Return the memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_population(scenario: Scenario) -> None:
    """Reject a simulated population that takes long to create; a device needs one client of it."""
    world, data = scenario.world, scenario.data
    given = [getattr(world, "num_clients", None), getattr(data, "num_clients", None)]
    given.append(getattr(data, "clients", None))
    num_clients = max((each for each in given if isinstance(each, int)), default=1)
    if num_clients > MAX_CLIENTS:
        raise TooLarge(
            f"the plan has {num_clients} clients, but a device replays one client of at most "
            f"{MAX_CLIENTS}. Reduce world.num_clients, or serve the run with --live."
        )
    num_states = getattr(world, "num_states", 1)
    if num_clients * num_states > MAX_STATES:
        raise TooLarge(
            f"the plan has {num_clients} clients with {num_states} states each, but a device "
            f"allows {MAX_STATES} states in total. Reduce world.num_clients or "
            "world.states_per_cluster."
        )


def _count_arrivals(scenario: Scenario, capacity: int) -> float:
    """Return how many samples arrive per round, as far as the plan states it."""
    given = getattr(scenario.world, "arrivals", None)
    if isinstance(given, int):
        return scenario.ticks * given
    if given is None:
        return scenario.ticks * capacity
    size: float = given.burst_size(StreamRate(client=0, rows=0, rounds=max(scenario.rounds, 1)))
    return size


@contextmanager
def limit_join_time(seconds: float = MAX_JOIN_S) -> Iterator[None]:
    """Raise `TooLarge` in the block after some seconds of CPU time, in the main thread.

    This bounds plans whose cost no other limit covers. Other threads cannot receive signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLarge(
            f"the server's plan needs more than {seconds:g} s of CPU time before the first round. "
            "Reduce the numbers of clients, samples or drifts."
        )

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def parse_recipes(text: str) -> tuple[str, ...]:
    """Return the texts of ``A,B``.

    >>> parse_recipes("fedavg, dpcs?selection.privacy.epsilon=1")
    ('fedavg', 'dpcs?selection.privacy.epsilon=1')
    """
    names = tuple(name.strip() for name in text.split(","))
    require(all(names), f"--recipes: expected names such as fedavg,dpcs, got {text!r}.")
    return names


def parse_allowed_recipe(text: str) -> Recipe:
    """Return the recipe of ``NAME`` or ``NAME?field=value&field=value``.

    >>> parse_allowed_recipe("dpcs?selection.privacy.epsilon=0.5").selection.privacy.epsilon
    0.5
    """
    name, _, settings = text.partition("?")
    return with_overrides(get_recipe(name), settings.split("&") if settings else (), "--recipes")


def _has_same_components(recipe: Recipe, allowed: Recipe) -> bool:
    """Return whether a recipe has the components of another one, also inside components."""
    if recipe.name != allowed.name:
        return False
    for part in (each.name for each in fields(Recipe) if each.name not in ("name", "local")):
        theirs, ours = getattr(recipe, part), getattr(allowed, part)
        is_added = ours is None and part in PROTECTIONS
        if not is_added and not _has_same_types(theirs, ours):
            return False
    return True


def _has_same_types(theirs: Any, ours: Any) -> bool:
    if not is_dataclass(theirs) and not is_dataclass(ours):
        return True
    if type(theirs) is not type(ours):
        return False
    names = (each.name for each in fields(ours))
    return all(_has_same_types(getattr(theirs, name), getattr(ours, name)) for name in names)
