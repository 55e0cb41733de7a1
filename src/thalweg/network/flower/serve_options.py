"""Options of the server besides the plan: waiting times, deadlines, and limits on client values.

Stored in `serve.json` of the run folder; all of them are optional.
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
MAX_S = 1e7  # of all times; longer timeouts fail on some systems


@dataclass(frozen=True)
class ServeOptions:
    """Options of a served run."""

    min_clients: int = 1  # connected clients that a round needs
    deadline_s: float = 600.0  # for the responses of a round
    share: float = 0.9  # of the responses, after which the others have a grace time; 1: no limit
    grace_s: float = 30.0  # minimum grace time
    wait_s: float | None = None  # for clients if there are too few; None: no limit
    data_dir: str | None = None  # folder of data sets at the server
    node_keys: str | None = None  # file of the nodes' keys (`node_keys.py`); None: without keys
    live: bool = False  # whether the plan's world is live, for readers of this file
    limits: dict[str, Any] = field(default_factory=dict)  # fields of `network.limits.Limits`

    def __post_init__(self) -> None:
        require(self.min_clients >= 1, f"min_clients must be at least 1, got {self.min_clients}.")
        require(
            0 < self.deadline_s <= MAX_S,
            f"the deadline must be positive and at most {MAX_S:,.0f} seconds, got "
            f"{self.deadline_s}.",
        )
        require(0 < self.share <= 1, f"share must be in (0, 1], got {self.share}.")
        for name, value in (("the grace time", self.grace_s), ("wait", self.wait_s)):
            require(
                value is None or 0 <= value <= MAX_S,
                f"{name} must be at least 0 and at most {MAX_S:,.0f} seconds, got {value}.",
            )

    def limits_for(self, plan: Plan, world: World, num_classes: int) -> Limits:
        """Limits from the world, if it is known, overridden by those of these options."""
        counts = 10.0 if plan.recipe.secure_aggregation is None else None
        limits = Limits(num_classes=num_classes, count_factor=counts)
        if not isinstance(world, LiveWorld):
            limits = limits_for(world, plan.local, num_classes)
            tested = plan.scenario.prequential * world.ticks
            limits = replace(limits, max_samples=max(limits.max_samples, tested))
        from_dict(Limits, self.limits, "limits")  # rejects unknown names
        return replace(limits, **self.limits)


def read_serve_options(folder: Path) -> ServeOptions:
    """Read the options of a run folder; the defaults if it has none."""
    try:
        stored = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return ServeOptions()
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read {folder / FILE}: {error}.") from error
    require(isinstance(stored, dict), f"{folder / FILE} must be a JSON object, got {stored!r}.")
    limits = stored.pop("limits", {})
    known = {name: value for name, value in stored.items() if value is not None}
    return replace(from_dict(ServeOptions, known, FILE), limits=dict(limits))
