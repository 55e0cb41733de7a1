"""The papers' worlds, and the problem made of your own data."""

from thalweg.scenarios.base import Scenario
from thalweg.scenarios.worlds import SCENARIOS, scenario_named

__all__ = ["SCENARIOS", "Scenario", "scenario_named"]
