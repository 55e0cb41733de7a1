"""Forecasts of the latent states of a client's data.

Memory policies (`Dds`) and aggregation weights (`ShiftAware`) read them.
"""

from thalweg.forecast.auto import Auto, resolve_forecast
from thalweg.forecast.base import Forecast, OpensStates, RecognisesStates
from thalweg.forecast.bayesian import Bayesian
from thalweg.forecast.growing import Growing
from thalweg.forecast.oracles import Exact, Noisy

FORECASTS = {
    "auto": Auto,
    "exact": Exact,
    "noisy": Noisy,
    "bayesian": Bayesian,
    "growing": Growing,
}

__all__ = [
    "FORECASTS",
    "Auto",
    "Bayesian",
    "Exact",
    "Forecast",
    "Growing",
    "Noisy",
    "OpensStates",
    "RecognisesStates",
    "resolve_forecast",
]
