"""Scenarios of real streams with drift, evaluated by test-then-train (prequential) accuracy.

There is no separate test set: every sample is predicted when it arrives and then used for training.
The net is linear; ``--set net=mlp`` has a hidden layer. Memories hold the arrivals of ten rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from thalweg.data import Elec2, Flights, NoaaWeather
from thalweg.local import LocalTraining
from thalweg.losses import Huber
from thalweg.nets import Linear
from thalweg.scenarios.base import Scenario
from thalweg.streams import Replay

ALL_ARRIVALS = 10_000  # larger than any number of arrivals per tick


def elec2() -> Scenario:
    """Electricity price, up or down: ten clients with periods of 94 days, one day per round.

    With interleaved clients, which all see the same days: ``--set data.clients=interleaved --set
    world.every=1 --set rounds=944 --set capacity=48``. The learning rate is the same for both nets:
    the best of 0.03, 0.1 and 0.3 with FedAvg in the first third of the run (seed 9); 1.0 is better
    by one point for the linear net.
    """
    return Scenario(
        name="elec2",
        data=Elec2(),
        net=Linear(),
        world=Replay(arrivals=48, availability=1.0, at_end="stop"),
        local=LocalTraining(lr=0.3, batch_size=48, passes=1),
        rounds=95,
        ticks=1,
        capacity=480,
        prequential=ALL_ARRIVALS,
    )


def weather() -> Scenario:
    """Rain or no rain: ten clients with periods of five years at one station, 30 days per round.

    With interleaved clients, which all see the same years: ``--set data.clients=interleaved --set
    world.every=30 --set rounds=606 --set capacity=30``. The learning rate was chosen as for
    ``elec2``.
    """
    return Scenario(
        name="weather",
        data=NoaaWeather(),
        net=Linear(),
        world=Replay(arrivals=30, availability=1.0, at_end="stop"),
        local=LocalTraining(lr=0.3, batch_size=30, passes=1),
        rounds=61,
        ticks=1,
        capacity=300,
        prequential=ALL_ARRIVALS,
    )


def flights() -> Scenario:
    """Late or on time: the 16 carriers of New York are the clients; a round is one day of 2013.

    The largest carrier has 158 flights per day, the smallest 29 per year. The learning rate was
    chosen as for ``elec2``.
    """
    return Scenario(
        name="flights",
        data=Flights(),
        net=Linear(),
        world=Replay(every=1.0, availability=1.0, at_end="stop"),
        local=LocalTraining(lr=0.3, batch_size=64, passes=1),
        rounds=365,
        ticks=1,
        capacity=1000,
        prequential=ALL_ARRIVALS,
    )


def flights_minutes() -> Scenario:
    """The arrival delay of flights in minutes (regression): clients and rounds as in ``flights``.

    The Huber loss is used because a few flights are many hours late.
    """
    return replace(
        flights(),
        name="flights-minutes",
        data=Flights(target="minutes"),
        loss=Huber(delta=20.0),
        local=LocalTraining(lr=0.1, batch_size=64, passes=1),
    )


REAL_STREAMS: dict[str, Callable[[], Scenario]] = {
    "elec2": elec2,
    "weather": weather,
    "flights": flights,
    "flights-minutes": flights_minutes,
}
