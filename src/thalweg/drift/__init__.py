"""Alarms: a number of every client in, "has it changed?" out; what follows is the user's choice."""

from thalweg.drift.actions import (
    ACTIONS,
    CombinedActions,
    OpenState,
    Recluster,
    RecordOnly,
    ScaleLr,
    Shrink,
)
from thalweg.drift.base import Action, Alarm, Detector, Effect, resolve_effect
from thalweg.drift.ddm import Ddm
from thalweg.drift.from_river import RiverAlarm  # any detector of River
from thalweg.drift.options import AlarmOptions  # the settings that all of them have
from thalweg.drift.page_hinkley import PageHinkley
from thalweg.drift.window_test import WindowTest

ALARMS = {"page-hinkley": PageHinkley, "ddm": Ddm, "window-test": WindowTest, "river": RiverAlarm}

__all__ = [
    "ACTIONS",
    "ALARMS",
    "Action",
    "Alarm",
    "AlarmOptions",
    "CombinedActions",
    "Ddm",
    "Detector",
    "Effect",
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
