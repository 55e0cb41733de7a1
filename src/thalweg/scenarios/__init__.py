"""Scenarios: the worlds of the papers, and scenarios built from user data."""

from thalweg.scenarios.base import Scenario
from thalweg.scenarios.registry import SCENARIOS, find_scenario

__all__ = ["SCENARIOS", "Scenario", "find_scenario"]
