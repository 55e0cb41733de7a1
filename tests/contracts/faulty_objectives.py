"""Faulty objectives, in a module that worker processes can import."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from thalweg.core.errors import ConfigError


@dataclass(frozen=True)
class RaisingObjective:
    """Raises an error of the library."""

    def loss(self, model: Any, params: Any, batch: Any, memo: Any) -> Any:
        raise ConfigError(f"no loss for {len(params)} clients.")


class UnpicklableError(Exception):
    """An exception that cannot be unpickled."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


@dataclass(frozen=True)
class UnpicklableErrorObjective:
    """Raises an exception that cannot be sent to another process."""

    def loss(self, model: Any, params: Any, batch: Any, memo: Any) -> Any:
        raise UnpicklableError("this", "that")


@dataclass(frozen=True)
class SelfKillingObjective:
    """Ends its own process as if the machine had run out of memory."""

    def loss(self, model: Any, params: Any, batch: Any, memo: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class SlowObjective:
    """Sleeps before it returns a loss."""

    seconds: float = 60.0

    def loss(self, model: Any, params: Any, batch: Any, memo: Any) -> Any:
        time.sleep(self.seconds)
        return model(params, batch.x).sum((1, 2))


@dataclass(frozen=True)
class UnpicklableObjective:
    """Cannot be unpickled in a worker process."""

    secret: list[int] = field(default_factory=list)

    def __reduce__(self) -> Any:
        return _raise_import_error, ()

    def loss(self, model: Any, params: Any, batch: Any, memo: Any) -> Any:
        return model(params, batch.x).sum((1, 2))


def _raise_import_error() -> None:
    raise ImportError("cannot be imported here")
