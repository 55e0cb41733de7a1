"""What the server and one client send each other.

Nothing else passes between them. A client does its part from what it has, which is the recipe, its stream,
its data and its state, and from the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from thalweg.core.talk import Told
from thalweg.core.types import Floats, Floats32, Job, Supply
from thalweg.recipes.client import Heard
from thalweg.recipes.federation import AskingStage


@dataclass(frozen=True, eq=False)
class Hello:
    """A client says who it is and what it expects to have by the end of the run; once, when it joins."""

    client: int
    supply: Supply


@dataclass(frozen=True, eq=False)
class Order:
    """The server asks a client to take part in a round."""

    rnd: int
    client: int
    model: int  # which model of the bank this is; the client only repeats it
    pace: float
    params: Floats32  # (P,)
    session: int = 0
    age: int = 0  # rounds of the session that are over
    rehearsal: int = 0  # 0: for good; else the client remembers nothing of it
    told: Heard = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Reply:
    """What came of it: one row of `Updates`."""

    rnd: int
    client: int
    model: int
    delta: Floats32  # (P,) trained minus received parameters
    num_samples: int
    num_steps: int
    loss: float  # nan without a step
    num_tested: int
    num_correct: int
    rehearsal: int = 0  # of the order; the client only repeats it
    reports: Mapping[str, float] = field(default_factory=dict)
    said: Mapping[str, Floats32] = field(default_factory=dict)  # (E,) by "stage.name"


@dataclass(frozen=True, eq=False)
class Question:
    """A stage's policy asks a client something before anybody trains."""

    rnd: int
    client: int
    stage: AskingStage
    bank: Floats32  # (models, P); no models if the policy does not show them


@dataclass(frozen=True, eq=False)
class Answer:
    """What the client answers; nothing if it has nothing to say."""

    rnd: int
    client: int
    stage: AskingStage
    words: Mapping[str, Floats] = field(default_factory=dict)  # (E,) by name


Message = Hello | Order | Reply | Question | Answer


def orders_for(
    jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
) -> list[Order]:
    """One order per job, ascending by client: what comes of them must not depend on the order of asking."""
    orders = [
        Order(rnd, *job[:3], bank[job.model], *job[3:], told=heard_by(told, place))
        for place, job in enumerate(jobs)
    ]
    return sorted(orders, key=lambda order: (order.client, order.model))


def heard_by(told: Told | None, row: int) -> Heard:
    """What one client is told: its row of every message."""
    return {
        stage: {name: words[row] for name, words in messages.items()}
        for stage, messages in (told or {}).items()
    }
