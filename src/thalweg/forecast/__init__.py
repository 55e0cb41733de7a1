"""What will probably arrive next; read by memory (stage 2) and weights (stage 5)."""

from thalweg.forecast.base import Forecast, OpensStates, RecognisesStates
from thalweg.forecast.growing import Growing  # finds out by itself which states there are
from thalweg.forecast.oracles import Bayesian, Exact, Noisy

FORECASTS = {"exact": Exact, "noisy": Noisy, "bayesian": Bayesian, "growing": Growing}

__all__ = [
    "FORECASTS",
    "Bayesian",
    "Exact",
    "Forecast",
    "Growing",
    "Noisy",
    "OpensStates",
    "RecognisesStates",
]
