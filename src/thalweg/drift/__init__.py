"""Alarms: a number of every client in, "has it changed?" out; what follows is the user's choice."""

from thalweg.drift.actions import ACTIONS, Hurry, Note, OpenState, Recluster, Several, Shrink
from thalweg.drift.base import Action, Alarm, Detector, Effect, effect_of
from thalweg.drift.ddm import Ddm
from thalweg.drift.from_river import River  # any detector of River
from thalweg.drift.page_hinkley import PageHinkley
from thalweg.drift.watching import Watching  # the settings that all of them have
from thalweg.drift.window_test import WindowTest

ALARMS = {"page-hinkley": PageHinkley, "ddm": Ddm, "window-test": WindowTest, "river": River}

__all__ = [
    "ACTIONS",
    "ALARMS",
    "Action",
    "Alarm",
    "Ddm",
    "Detector",
    "Effect",
    "Hurry",
    "Note",
    "OpenState",
    "PageHinkley",
    "Recluster",
    "River",
    "Several",
    "Shrink",
    "Watching",
    "WindowTest",
    "effect_of",
]
