"""Scenarios of real streams that drift: every sample is tested on as it arrives, before anybody learns from it.

Nothing is set aside for testing, so recipes are compared by their prequential accuracy. The net is linear;
``--set net=mlp`` has a hidden layer. Memories hold ten rounds of what arrives.
"""

from __future__ import annotations

from collections.abc import Callable

from thalweg.data import Elec2, Flights, NoaaWeather
from thalweg.local import Sgd
from thalweg.nets import Linear
from thalweg.scenarios.base import Scenario
from thalweg.streams import Replay

ALL_ARRIVALS = 10_000  # more than ever arrive in a tick


def elec2() -> Scenario:
    """The price of electricity, up or down: ten clients, each in another stretch of 94 days, a day per round.

    By turns instead, so that all see the same days: ``--set data.clients=interleaved --set world.every=1 --set
    rounds=944 --set capacity=48``. The learning rate is one for both nets: of 0.03, 0.1 and 0.3 it is the best with
    FedAvg in the first third of the run (seed 9); for the linear net 1.0 is better by a point.
    """
    return Scenario(
        name="elec2",
        data=Elec2(),
        net=Linear(),
        world=Replay(arrivals=48, availability=1.0, at_end="stop"),
        local=Sgd(lr=0.3, batch_size=48, passes=1),
        rounds=95,
        ticks=1,
        capacity=480,
        prequential=ALL_ARRIVALS,
    )


def weather() -> Scenario:
    """Rain or not: ten clients, each in another five years at one station, 30 days per round.

    By turns instead, so that all see the same years: ``--set data.clients=interleaved --set world.every=30 --set
    rounds=606 --set capacity=30``. The learning rate was chosen as that of ``elec2``.
    """
    return Scenario(
        name="weather",
        data=NoaaWeather(),
        net=Linear(),
        world=Replay(arrivals=30, availability=1.0, at_end="stop"),
        local=Sgd(lr=0.3, batch_size=30, passes=1),
        rounds=61,
        ticks=1,
        capacity=300,
        prequential=ALL_ARRIVALS,
    )


def flights() -> Scenario:
    """Late or not: the 16 carriers of New York are the clients, and a round is a day of 2013 for all of them.

    The largest has 158 flights on a day, the smallest 29 in the year. The learning rate was chosen as that of
    ``elec2``.
    """
    return Scenario(
        name="flights",
        data=Flights(),
        net=Linear(),
        world=Replay(every=1.0, availability=1.0, at_end="stop"),
        local=Sgd(lr=0.3, batch_size=64, passes=1),
        rounds=365,
        ticks=1,
        capacity=1000,
        prequential=ALL_ARRIVALS,
    )


REAL_STREAMS: dict[str, Callable[[], Scenario]] = {
    "elec2": elec2,
    "weather": weather,
    "flights": flights,
}
