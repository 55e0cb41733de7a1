"""What will probably arrive next; read by memory (stage 2) and weights (stage 5)."""

from thalweg.forecast.base import Forecast
from thalweg.forecast.oracles import Bayesian, Exact, Noisy

ORACLES = {"exact": Exact, "noisy": Noisy, "bayesian": Bayesian}

__all__ = ["ORACLES", "Bayesian", "Exact", "Forecast", "Noisy"]
