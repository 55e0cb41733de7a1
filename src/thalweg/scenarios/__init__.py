"""Scenarios: the worlds of the papers, and scenarios built from user data."""

from thalweg.scenarios.base import Scenario, resolve_sizes
from thalweg.scenarios.registry import SCENARIOS, ScenarioLike, find_scenario

__all__ = ["SCENARIOS", "Scenario", "ScenarioLike", "find_scenario", "resolve_sizes"]
