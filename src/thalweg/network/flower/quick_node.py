"""``python -m thalweg.network.flower.quick_node``: flower-supernode with a shorter poll interval.

A SuperNode polls for messages every three seconds, which is long compared to a short round. This is
the same program, with the same options, but shorter intervals while messages arrive
(`network/flower/timing.py`). It supports one version of Flower only
(`runner.check_flower_version`).
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

from thalweg.network.flower.timing import PollInterval

MIN_POLL_S = 0.25
FLOWER_PAUSE_S = 3  # Flower's poll interval; shorter pauses wait for the response to a message


def shorten_pauses() -> None:
    """Shorten the pauses of the SuperNode's message loop."""
    from flwr.supernode import start_client_internal

    replacement = {name: getattr(time, name) for name in dir(time) if not name.startswith("_")}
    interval = PollInterval(MIN_POLL_S, FLOWER_PAUSE_S)

    def sleep(seconds: float) -> None:
        if seconds >= FLOWER_PAUSE_S:
            time.sleep(interval.next_s())
        else:
            interval.reset()
            time.sleep(min(seconds, MIN_POLL_S))

    replacement["sleep"] = sleep
    vars(start_client_internal)["time"] = SimpleNamespace(**replacement)


def main() -> None:
    from flwr.supernode.cli import flower_supernode

    shorten_pauses()
    flower_supernode()


if __name__ == "__main__":
    sys.argv[0] = "flower-supernode"
    main()
