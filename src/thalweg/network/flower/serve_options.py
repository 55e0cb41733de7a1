"""How a run is served: for whom the server waits, how long, and how far it believes what it is sent.

Said in `serve.json` of the run folder; all of it may be missing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from thalweg.core.config import from_dict
from thalweg.core.errors import ConfigError, require
from thalweg.engine.plan import Plan
from thalweg.network.limits import Limits, limits_for
from thalweg.streams import LiveWorld, World

FILE = "serve.json"


@dataclass(frozen=True)
class ServeOptions:
    """The server's side of a run, beside its plan."""

    min_clients: int = 1  # below which a round does not begin
    deadline_s: float = 600.0  # for the replies of a round
    wait_s: float | None = None  # for clients, each time that there are too few; none: for ever
    data_dir: str | None = None  # where the server's own data are
    live: bool = False  # as the plan's world has it; for those who only read this
    limits: dict[str, Any] = field(default_factory=dict)  # of `recipes.limits.Limits`

    def __post_init__(self) -> None:
        require(self.min_clients >= 1, f"min_clients must be at least 1, got {self.min_clients}.")
        require(self.deadline_s > 0, f"the deadline must be positive, got {self.deadline_s}.")
        wait_s = self.wait_s
        require(wait_s is None or wait_s >= 0, f"wait must be at least 0, got {wait_s}.")

    def limits_for(self, plan: Plan, world: World, num_classes: int) -> Limits:
        """What clients may claim: what their world allows, if it is known, and what is said here."""
        limits = Limits(num_classes=num_classes)
        if not isinstance(world, LiveWorld):
            limits = limits_for(world, plan.local, num_classes)
            tested = plan.scenario.prequential * world.ticks
            limits = replace(limits, max_samples=max(limits.max_samples, tested))
        from_dict(Limits, self.limits, "limits")  # a slip in a name
        return replace(limits, **self.limits)


def read_serve_options(folder: Path) -> ServeOptions:
    """As a run folder says."""
    try:
        said = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return ServeOptions()
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {folder / FILE}: {error}.") from error
    require(isinstance(said, dict), f"{folder / FILE} must hold names and values, got {said!r}.")
    limits = said.pop("limits", {})
    known = {name: value for name, value in said.items() if value is not None}
    return replace(from_dict(ServeOptions, known, FILE), limits=dict(limits))
