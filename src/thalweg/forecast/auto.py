"""The default forecast, which depends on what is known about the world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from thalweg.core.config import check_literals
from thalweg.forecast.base import Forecast
from thalweg.forecast.growing import Growing
from thalweg.forecast.oracles import Exact, Proxy


@dataclass(frozen=True)
class Auto:
    """Uses `Exact` if the world has known latent states, else `Growing`, which learns them.

    A world without known states, such as a real stream, describes all its data as one state.
    `Exact` would predict that state with probability one, and SFedPO would be the same as FedAvg.
    Recipes without a policy that uses the forecast do not learn states.

    >>> Auto().resolve(num_states=3)
    Exact(proxy='kl')
    >>> type(Auto().resolve(num_states=1)).__name__
    'Growing'
    >>> Auto().resolve(num_states=1, is_used=False)
    Exact(proxy='kl')
    """

    uses_true_states: ClassVar[bool] = True  # if the world has known states

    proxy: Proxy = "kl"
    """Measure of the distance of a state's classes from balanced classes."""

    def __post_init__(self) -> None:
        check_literals(self)

    def resolve(self, num_states: int, is_used: bool = True) -> Forecast:
        """Return the forecast for a world with this number of latent states."""
        is_learned = is_used and num_states <= 1
        return Growing(proxy=self.proxy) if is_learned else Exact(self.proxy)


def resolve_forecast(forecast: Forecast | Auto, num_states: int, is_used: bool) -> Forecast:
    """Return the forecast of a recipe in a world with this number of latent states.

    `is_used` is whether a policy of the recipe uses the forecast.
    """
    return forecast.resolve(num_states, is_used) if isinstance(forecast, Auto) else forecast
