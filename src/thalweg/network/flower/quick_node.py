"""``python -m thalweg.network.flower.quick_node``: flower-supernode, which looks for messages more often.

A SuperNode asks for a message every three seconds, which is most of a short round. This is the same program with
shorter pauses while messages come (`network/flower/timing.py`), for the one version of Flower that it was written for
(`runner.is_supported`); its options are flower-supernode's.
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

from thalweg.network.flower.timing import PollInterval

MIN_POLL_S = 0.25
FLOWER_PAUSE_S = (
    3  # Flower's pause when no message was there; shorter ones wait for the answer to one
)


def shorten_pauses() -> None:
    """Shorten the pauses of the SuperNode's loop, and of nothing else."""
    from flwr.supernode import start_client_internal

    quick = {name: getattr(time, name) for name in dir(time) if not name.startswith("_")}
    pauses = PollInterval(MIN_POLL_S, FLOWER_PAUSE_S)

    def sleep(seconds: float) -> None:
        if seconds >= FLOWER_PAUSE_S:
            time.sleep(pauses.next_s())
        else:
            pauses.reset()
            time.sleep(min(seconds, MIN_POLL_S))

    quick["sleep"] = sleep
    vars(start_client_internal)["time"] = SimpleNamespace(**quick)


def main() -> None:
    from flwr.supernode.cli import flower_supernode

    shorten_pauses()
    flower_supernode()


if __name__ == "__main__":
    sys.argv[0] = "flower-supernode"
    main()
