"""The papers' worlds, and the problem made of your own data."""

from thalweg.scenarios.base import Scenario
from thalweg.scenarios.registry import SCENARIOS, find_scenario

__all__ = ["SCENARIOS", "Scenario", "find_scenario"]
