"""Live data: sources that a device reads its samples from as they come."""

from thalweg.streams.sources.base import LATER, Event, Form, LateLabels, LiveBatch, Source, nothing
from thalweg.streams.sources.opening import open_source

__all__ = [
    "LATER",
    "Event",
    "Form",
    "LateLabels",
    "LiveBatch",
    "Source",
    "nothing",
    "open_source",
]
