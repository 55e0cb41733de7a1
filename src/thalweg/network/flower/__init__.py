"""Federated runs over Flower, which connects and authenticates the nodes and delivers messages.

Server: `server_processes` starts a SuperLink (`loopback_only`) and the ServerApp (`server_app`),
which runs the engine's loop with a `FlowerFederation` (`federation`, `nodes`, `registry`,
`transport`, `inbox`). Client: `client_processes` starts the daemon (`network.edge`), a SuperNode
(`quick_node`) and the `runner` between them. Both: `messenger`, `processes`, `guard`, `liveness`,
`timing`, `certs` and `trust`.
"""

from __future__ import annotations

import importlib.util

from thalweg.core.errors import require

require(
    importlib.util.find_spec("flwr") is not None,
    "Flower is not installed; install it with pip install 'thalweg[flower]'.",
)
