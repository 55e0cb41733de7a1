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

from thalweg.core.capabilities import Broadcast
from thalweg.core.types import Floats, Floats32, Ints, Job, Supply
from thalweg.federation.base import SurveyStage
from thalweg.federation.client_state import Received


@dataclass(frozen=True, eq=False)
class Hello:
    """A client says who it is and what it expects to have by the end of the run; once, when it joins."""

    client: int
    supply: Supply


Octets = npt.NDArray[np.uint8]
MaskStep = Literal["keys", "shares", "open"]


@dataclass(frozen=True, eq=False)
class MaskGroup:
    """Clients whose masks cancel each other."""

    members: Ints  # (n,) ascending
    keys: Octets  # (n, 32) their public keys for masks


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """The server asks a client to take part in a round, and to train one model or several."""

    rnd: int
    client: int
    models: Ints  # (J,) which models of the bank these are, ascending
    lr_scales: Floats  # (J,)
    params: Floats32  # (J, P)
    session: int = 0
    age: int = 0  # rounds of the session that are over
    probe_round: int = 0  # 0: for good; else the client remembers nothing of it
    broadcast: Received = field(default_factory=dict)
    mask_group: MaskGroup | None = None  # with whom the update is masked; none: it is sent as it is


@dataclass(frozen=True, eq=False)
class TrainResponse:
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
    probe_round: int = 0  # of the order; the client only repeats it
    reports: Mapping[str, Floats] = field(default_factory=dict)  # (J,)
    uploads: Mapping[str, Floats32] = field(default_factory=dict)  # (J, E) by "stage.name"
    masked: npt.NDArray[np.uint64] | None = None  # (P,) then deltas have no columns


@dataclass(frozen=True, eq=False)
class SurveyRequest:
    """A stage's policy asks a client something before anybody trains."""

    rnd: int
    client: int
    stage: SurveyStage
    bank: Floats32  # (models, P); no models if the policy does not show them


@dataclass(frozen=True, eq=False)
class SurveyResponse:
    """What the client answers; nothing if it has nothing to say."""

    rnd: int
    client: int
    stage: SurveyStage
    values: Mapping[str, Floats] = field(default_factory=dict)  # (E,) by name


@dataclass(frozen=True, eq=False)
class MaskRequest:
    """The server asks for what a masked sum needs: public keys, then shares of secrets, then some of those.

    Members are the same, in the same order, from the shares on: shares are counted by their places.
    """

    rnd: int
    client: int
    step: MaskStep
    members: Ints  # (n,) ascending
    probe_round: int = 0
    values: Mapping[str, Octets] = field(default_factory=dict)  # (n, E) by name


@dataclass(frozen=True, eq=False)
class MaskResponse:
    """What the client gives."""

    rnd: int
    client: int
    step: MaskStep
    probe_round: int = 0
    values: Mapping[str, Octets] = field(default_factory=dict)  # (n, E) by name


Request = TrainRequest | SurveyRequest | MaskRequest
Response = TrainResponse | SurveyResponse | MaskResponse
Message = Hello | Request | Response


def make_train_requests(
    jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
) -> list[TrainRequest]:
    """One order per client, ascending: what comes of them must not depend on the order of asking."""
    places = sorted(range(len(jobs)), key=lambda place: jobs[place][:2])
    orders = []
    for client, mine in groupby(places, key=lambda place: jobs[place].client):
        own = list(mine)
        models = np.array([jobs[place].model for place in own], dtype=np.int64)
        lr_scales = np.array([jobs[place].lr_scale for place in own], dtype=np.float64)
        when, received = jobs[own[0]][3:], select_client_broadcast(broadcast, own[0])
        orders.append(
            TrainRequest(rnd, client, models, lr_scales, bank[models], *when, broadcast=received)
        )
    return orders


def select_client_broadcast(broadcast: Broadcast | None, row: int) -> Received:
    """What one client is told: its row of every message."""
    return {
        stage: {name: values[row] for name, values in messages.items()}
        for stage, messages in (broadcast or {}).items()
    }
