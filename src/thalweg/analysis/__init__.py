"""Theoretical quantities of one run, computed from the run's own numbers."""

from thalweg.analysis.latent_states import LatentStateNumbers, latent_states  # Figures 4 to 6
from thalweg.analysis.oracle_gap import oracle_gap  # cost of imperfect forecasts in SFedPO
from thalweg.analysis.stream_numbers import (  # weighting of old and new data
    StreamNumbers,
    stream_numbers,
)

__all__ = [
    "LatentStateNumbers",
    "StreamNumbers",
    "latent_states",
    "oracle_gap",
    "stream_numbers",
]
