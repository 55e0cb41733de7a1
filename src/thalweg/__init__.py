"""Thalweg: streaming federated learning.

In each round samples arrive at the clients, each client keeps some of them, the server chooses a
cohort, the cohort trains, and the server aggregates the updates. Start with `run` and `compare`.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thalweg.data import Dataset
    from thalweg.engine.loop import run
    from thalweg.engine.result import Result, load
    from thalweg.evaluation.named import NamedMetric
    from thalweg.report.comparison import Comparison, compare
    from thalweg.report.study import reproduce
    from thalweg.report.tuning import Tuning, tune

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Dataset",
    "NamedMetric",
    "Result",
    "Tuning",
    "__version__",
    "compare",
    "load",
    "reproduce",
    "run",
    "tune",
]

_LAZY_IMPORTS = {
    "Dataset": "thalweg.data",
    "NamedMetric": "thalweg.evaluation.named",
    "Comparison": "thalweg.report.comparison",
    "Result": "thalweg.engine.result",
    "Tuning": "thalweg.report.tuning",
    "compare": "thalweg.report.comparison",
    "load": "thalweg.engine.result",
    "reproduce": "thalweg.report.study",
    "run": "thalweg.engine.loop",
    "tune": "thalweg.report.tuning",
}


def __getattr__(name: str) -> Any:
    """Import functions and subpackages on first use, so that ``import thalweg`` stays fast."""
    if name in _LAZY_IMPORTS:
        return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)
    if not name.startswith("_") and importlib.util.find_spec(f"thalweg.{name}") is not None:
        return importlib.import_module(f"thalweg.{name}")
    raise AttributeError(f"module 'thalweg' has no attribute {name!r}")


def __dir__() -> list[str]:
    packages = (found.name for found in pkgutil.iter_modules(__path__) if found.ispkg)
    return sorted({*globals(), *__all__, *packages})
