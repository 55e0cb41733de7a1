"""The same recipes on Flower: letters between the server and devices on a network."""

from __future__ import annotations

import importlib.util

from thalweg.core.errors import require

require(
    importlib.util.find_spec("flwr") is not None,
    "Flower is not installed, which carries letters between devices; install it with "
    "pip install 'thalweg[flower]'.",
)
