"""``python -m thalweg.flower.quick_node``: flower-supernode, which looks for messages more often.

A SuperNode asks for a message every three seconds, which is most of a short round. This is the same program with
shorter pauses while messages come (`flower/pauses.py`), for the one version of Flower that it was written for
(`runner.is_possible`); its options are flower-supernode's.
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

from thalweg.flower.pauses import Pauses

LEAST_S = 0.25
NOTHING_S = 3  # Flower's pause when no message was there; shorter ones wait for the answer to one


def hurry() -> None:
    """Shorten the pauses of the SuperNode's loop, and of nothing else."""
    from flwr.supernode import start_client_internal

    quick = {name: getattr(time, name) for name in dir(time) if not name.startswith("_")}
    pauses = Pauses(LEAST_S, NOTHING_S)

    def sleep(seconds: float) -> None:
        if seconds >= NOTHING_S:
            time.sleep(pauses.next_s())
        else:
            pauses.came()
            time.sleep(min(seconds, LEAST_S))

    quick["sleep"] = sleep
    vars(start_client_internal)["time"] = SimpleNamespace(**quick)


def main() -> None:
    from flwr.supernode.cli import flower_supernode

    hurry()
    flower_supernode()


if __name__ == "__main__":
    sys.argv[0] = "flower-supernode"
    main()
