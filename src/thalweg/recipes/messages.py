"""What the server and one client send each other.

Nothing else passes between them. A client does its part from what it has, which is the recipe, its stream,
its data and its state, and from the message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

import numpy as np
import numpy.typing as npt

from thalweg.core.talk import Told
from thalweg.core.types import Floats, Floats32, Ints, Job, Supply
from thalweg.recipes.client import Heard
from thalweg.recipes.federation import AskingStage


@dataclass(frozen=True, eq=False)
class Hello:
    """A client says who it is and what it expects to have by the end of the run; once, when it joins."""

    client: int
    supply: Supply


Octets = npt.NDArray[np.uint8]
MaskStep = Literal["keys", "shares", "open"]


@dataclass(frozen=True, eq=False)
class Circle:
    """Clients whose masks cancel each other."""

    members: Ints  # (n,) ascending
    keys: Octets  # (n, 32) their public keys for masks


@dataclass(frozen=True, eq=False)
class Order:
    """The server asks a client to take part in a round, and to train one model or several."""

    rnd: int
    client: int
    models: Ints  # (J,) which models of the bank these are, ascending
    paces: Floats  # (J,)
    params: Floats32  # (J, P)
    session: int = 0
    age: int = 0  # rounds of the session that are over
    rehearsal: int = 0  # 0: for good; else the client remembers nothing of it
    told: Heard = field(default_factory=dict)
    circle: Circle | None = None  # with whom the update is masked; none: it is sent as it is


@dataclass(frozen=True, eq=False)
class Reply:
    """What came of it: a row of `Updates` for each model."""

    rnd: int
    client: int
    models: Ints  # (J,) of the order
    deltas: Floats32  # (J, P) trained minus received parameters
    num_samples: int
    num_steps: Ints  # (J,)
    losses: Floats  # (J,) nan without a step
    num_tested: Ints  # (J,) not zero only for the model that predicts for this client
    num_correct: Ints  # (J,)
    rehearsal: int = 0  # of the order; the client only repeats it
    reports: Mapping[str, Floats] = field(default_factory=dict)  # (J,)
    said: Mapping[str, Floats32] = field(default_factory=dict)  # (J, E) by "stage.name"
    masked: npt.NDArray[np.uint64] | None = None  # (P,) then deltas have no columns


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


@dataclass(frozen=True, eq=False)
class Call:
    """The server asks for what a masked sum needs: public keys, then shares of secrets, then some of those.

    Members are the same, in the same order, from the shares on: shares are counted by their places.
    """

    rnd: int
    client: int
    step: MaskStep
    members: Ints  # (n,) ascending
    rehearsal: int = 0
    words: Mapping[str, Octets] = field(default_factory=dict)  # (n, E) by name


@dataclass(frozen=True, eq=False)
class Token:
    """What the client gives."""

    rnd: int
    client: int
    step: MaskStep
    rehearsal: int = 0
    words: Mapping[str, Octets] = field(default_factory=dict)  # (n, E) by name


Errand = Order | Question | Call
News = Reply | Answer | Token
Message = Hello | Errand | News


def orders_for(
    jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
) -> list[Order]:
    """One order per client, ascending: what comes of them must not depend on the order of asking."""
    places = sorted(range(len(jobs)), key=lambda place: jobs[place][:2])
    orders = []
    for client, mine in groupby(places, key=lambda place: jobs[place].client):
        own = list(mine)
        models = np.array([jobs[place].model for place in own], dtype=np.int64)
        paces = np.array([jobs[place].pace for place in own], dtype=np.float64)
        when, heard = jobs[own[0]][3:], heard_by(told, own[0])
        orders.append(Order(rnd, client, models, paces, bank[models], *when, told=heard))
    return orders


def heard_by(told: Told | None, row: int) -> Heard:
    """What one client is told: its row of every message."""
    return {
        stage: {name: words[row] for name, words in messages.items()}
        for stage, messages in (told or {}).items()
    }
