"""Calls of Ray actors: each idle actor gets the next one, and lost ones are repeated."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from thalweg.core.errors import RunError
from thalweg.engine.ray.cluster import RayWarning

T = TypeVar("T")

MAX_ATTEMPTS = 3  # actors that a task may lose: then it is the likely cause
IN_FLIGHT = 2  # tasks that an actor has received: it need not wait for the next one


class LostObjects(RunError):
    """Results of actors were lost with their node."""


class ActorCall(NamedTuple):
    """A call of a method of any actor. The last of its results is small."""

    method: str
    arguments: tuple[Any, ...]
    num_results: int = 1


class ActorPool(Protocol):
    """The actors of a run."""

    ray: Any
    actors: dict[int, Any]

    def exclude(self, actor: int, reason: str) -> None:
        """Do not use an actor any longer. If it was the last one, start new ones."""


class ActorSchedule:
    """Distributes some calls to the actors of a pool, and repeats those whose actor is lost.

    With `fetches`, results are copied to this node while other calls are computed.
    """

    def __init__(self, pool: ActorPool, calls: Sequence[ActorCall], fetches: bool = False) -> None:
        self._pool, self._calls, self._fetches = pool, calls, fetches
        self._ray = pool.ray
        self._todo = deque(range(len(calls)))
        self._attempts = [0] * len(calls)
        self._results: list[list[Any]] = [[] for _ in calls]
        self._busy: dict[Any, tuple[int, int, list[Any]]] = {}  # actor, call and its results
        self._errors: dict[int, BaseException] = {}

    def run(self) -> list[list[Any]]:
        ray = self._ray
        while self._busy or (self._todo and not self._errors):
            while self._todo and not self._errors and (actor := self._find_idle()) is not None:
                self._send(actor, self._todo.popleft())
            ready, _ = ray.wait(list(self._busy), num_returns=1, fetch_local=False)
            for reference in ready:
                self._receive(reference)
        if self._errors:
            raise self._errors[min(self._errors)]
        return self._results

    def _find_idle(self) -> int | None:
        """Return the actor with the fewest tasks; None if all have enough."""
        counts = dict.fromkeys(self._pool.actors, 0)
        for actor, _, _ in self._busy.values():
            if actor in counts:
                counts[actor] += 1
        idle = min(counts, key=lambda actor: (counts[actor], actor))
        return idle if counts[idle] < IN_FLIGHT else None

    def _send(self, actor: int, which: int) -> None:
        call = self._calls[which]
        method = getattr(self._pool.actors[actor], call.method)
        found = method.options(num_returns=call.num_results).remote(*call.arguments)
        results = list(found) if call.num_results > 1 else [found]
        self._busy[results[-1]] = actor, which, results

    def _receive(self, reference: Any) -> None:
        ray = self._ray
        actor, which, results = self._busy.pop(reference)
        try:
            results[-1] = ray.get(reference)
        except ray.exceptions.RayActorError as error:
            self._repeat(which)
            self._pool.exclude(actor, first_line(error))
        except ray.exceptions.ObjectLostError as error:  # its result, or an argument
            self._errors[which] = LostObjects(first_line(error))
        except ray.exceptions.RayTaskError as error:
            cause = get_cause(error)
            if isinstance(cause, ray.exceptions.ObjectLostError):
                cause = LostObjects(first_line(cause))
            else:
                cause.add_note(f"In an actor of the Ray cluster:\n{error}")
            self._errors[which] = cause
        else:
            self._results[which] = results
            if self._fetches and len(results) > 1:  # starts copies, and does not wait for them
                ray.wait(results[:-1], num_returns=len(results) - 1, timeout=0)

    def _repeat(self, which: int) -> None:
        self._attempts[which] += 1
        if self._attempts[which] == MAX_ATTEMPTS:
            raise RunError(
                f"{MAX_ATTEMPTS} actors were lost while they computed the same task. Has a node "
                "run out of memory? Use fewer workers per node, or nodes with more memory."
            )
        self._todo.appendleft(which)


def repeat_lost(compute: Callable[[], T], recover: Callable[[], object] | None = None) -> T:
    """Return a result; if objects are lost, call `recover` and compute it again."""
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return compute()
        except LostObjects as error:
            warn(f"results are lost with their node ({error}). They are computed again.")
            if recover is not None:
                recover()
    return compute()


def get_cause(error: Any) -> BaseException:
    """Return the exception that a task raised."""
    return error.cause if isinstance(error.cause, Exception) else error


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


def warn(message: str) -> None:
    warnings.warn(message, RayWarning, stacklevel=3)
