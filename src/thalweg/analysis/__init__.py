"""What a theory says about one run, with the run's own numbers. Each looks at the methods its theory is about."""

from thalweg.analysis.oracle_gap import oracle_gap  # what the forecasts of SFedPO cost
from thalweg.analysis.stream_numbers import StreamNumbers, stream_numbers  # old against new data

__all__ = ["StreamNumbers", "oracle_gap", "stream_numbers"]
