"""Alarms: detect that a client's data have changed, and act on it.

An alarm watches one number per client and round, its error or its training loss. When the number
changes significantly, the alarm applies its action in the next round of that client: record the
alarm, shrink the client's memory, scale its learning rate, and so on. Any object with the methods
of `Alarm` can be used, and any detector of the River library (`RiverAlarm`).
"""

from thalweg.drift.actions import (
    ACTIONS,
    AlarmOptions,
    CombinedActions,
    DropOutdated,
    OpenState,
    Recluster,
    RecordOnly,
    ScaleLr,
    Shrink,
)
from thalweg.drift.base import Action, Alarm, Detector, Effect, resolve_effect
from thalweg.drift.ddm import Ddm
from thalweg.drift.excess_errors import ExcessErrors
from thalweg.drift.from_river import RiverAlarm  # any detector of the River library
from thalweg.drift.page_hinkley import PageHinkley
from thalweg.drift.window_test import WindowTest

ALARMS = {
    "page-hinkley": PageHinkley,
    "ddm": Ddm,
    "window-test": WindowTest,
    "excess-errors": ExcessErrors,
    "river": RiverAlarm,
}

__all__ = [
    "ACTIONS",
    "ALARMS",
    "Action",
    "Alarm",
    "AlarmOptions",
    "CombinedActions",
    "Ddm",
    "Detector",
    "DropOutdated",
    "Effect",
    "ExcessErrors",
    "OpenState",
    "PageHinkley",
    "Recluster",
    "RecordOnly",
    "RiverAlarm",
    "ScaleLr",
    "Shrink",
    "WindowTest",
    "resolve_effect",
]
