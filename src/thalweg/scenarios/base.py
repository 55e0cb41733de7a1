"""A scenario: the problem that recipes are tried on."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.core.config import check_ranges, choice
from thalweg.data import AUGMENTATIONS, SOURCES, Augmentation, DataSource
from thalweg.local import Sgd
from thalweg.nets import NETS, NetSpec
from thalweg.streams import DRIFTS, FAULTS, SCHEDULES, WORLDS, Drift, Faults, Schedule, WorldSpec


@dataclass(frozen=True)
class Scenario:
    """Data, a world in which they arrive, devices of a certain size, and a net to train."""

    name: str
    local: Sgd
    """How clients train, unless the recipe has its own way."""
    data: DataSource = choice(SOURCES)
    net: NetSpec = choice(NETS)
    world: WorldSpec = choice(WORLDS)
    rounds: int = 100
    ticks: int = 5
    """Times per round that data arrives; after each the client trains."""
    capacity: int = 500
    """Samples a client can hold."""
    evaluate_every: int = 5
    """Rounds between two looks at the test set; the last round is always one."""
    evaluate_first: int = 0
    """The first so many rounds of every session are evaluated too."""
    validation: float = 0.0
    """Share of the test samples that is set aside for choosing among runs, and not tested on."""
    tasks: bool = False
    """Is what is left of earlier views of the data measured, too? After the last look at the test set before
    somebody drifts, and in the end; in worlds without views there is nothing to measure."""
    prequential: int = 32
    """Arriving samples per tick that are predicted before they are learnt from; 0: none."""
    augment: Augmentation | None = choice(AUGMENTATIONS, default=None)
    """How images are changed in training, and only there; none: not at all."""
    start_from: str | None = None
    """A file of parameters to start from, as a run leaves it (model.safetensors); none: at random."""
    sessions: Schedule | None = choice(SCHEDULES, default=None)
    """Who belongs to the federation when; none: everybody, all the time."""
    faults: Faults | None = choice(FAULTS, default=None)
    """Which replies of clients are lost, or late; none: all come in time."""
    drift: Drift | None = choice(DRIFTS, default=None)
    """How samples are seen in another way as time goes by; none: as they are, or as the world says."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            rounds="[1, inf)",
            ticks="[1, inf)",
            capacity="[1, inf)",
            evaluate_every="[1, inf)",
            evaluate_first="[0, inf)",
            validation="[0, 1)",
            prequential="[0, inf)",
        )
