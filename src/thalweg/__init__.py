"""Thalweg: streaming federated learning.

Samples arrive; each client keeps some; a few clients are chosen; they learn; the server merges.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thalweg.engine.loop import Result, run
    from thalweg.report.comparison import compare
    from thalweg.report.study import reproduce

__version__ = "0.1.0"
__all__ = ["Result", "__version__", "compare", "reproduce", "run"]

_LAZY_IMPORTS = {
    "Result": "thalweg.engine.loop",
    "compare": "thalweg.report.comparison",
    "reproduce": "thalweg.report.study",
    "run": "thalweg.engine.loop",
}


def __getattr__(name: str) -> Any:
    """Import what runs things only when it is asked for: ``import thalweg`` stays quick."""
    if name in _LAZY_IMPORTS:
        return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)
    raise AttributeError(f"module 'thalweg' has no attribute {name!r}")
