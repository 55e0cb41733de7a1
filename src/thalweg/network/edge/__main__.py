"""``python -m thalweg.network.edge``: the daemon of one device. Started by `thalweg join`.

Prints JSON lines.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from thalweg.core.errors import ThalwegError
from thalweg.core.remedies import messages_for
from thalweg.network.edge.daemon import Daemon, print_event
from thalweg.network.edge.device_client import DeviceOptions, check_options
from thalweg.network.edge.device_limits import DeviceLimits
from thalweg.network.edge.store import Store

LOCK_TIMEOUT_S = 12.0  # a daemon whose `join` was killed ends within this time


def main(arguments: Sequence[str] | None = None) -> int:
    """Handle requests until a signal arrives (0) or the client is rejected (1)."""
    args = _parser().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        with messages_for("device"):
            reason = _run(args)
    except ThalwegError as error:
        reason = str(error)
    except MemoryError:
        reason = "the client needs more memory than it may use; increase it (--max-memory)."
    if reason is not None:
        print_event({"event": "rejected", "reason": reason})
        print(reason, file=sys.stderr)
    return 0 if reason is None else 1


def _run(args: argparse.Namespace) -> str | None:
    store = Store.open(args.state, LOCK_TIMEOUT_S)
    try:
        options = DeviceOptions(
            args.data,
            args.data_dir,
            args.capacity,
            args.queue,
            tuple(args.component),
            args.model,
            DeviceLimits(
                args.max_params,
                args.max_memory,
                args.min_interval,
                tuple(args.recipe),
                args.min_noise,
                args.max_epsilon,
                args.delta,
                args.max_samples,
            ),
            node_key=args.node_key,
            peers=args.peers,
            min_participants=args.min_participants,
            account=args.privacy_account,
        )
        options.limits.limit_process()
        check_options(options)
        daemon = Daemon(store, options, args.client, print_event)
        try:
            daemon.serve(args.socket)
            return daemon.rejection_reason
        finally:
            daemon.close()
    finally:
        store.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m thalweg.network.edge", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="the state folder")
    parser.add_argument("--data", default="replay", help="replay, or where samples come from")
    parser.add_argument("--socket", type=Path, required=True, help="unix socket for messages")
    parser.add_argument("--client", type=int, help="the number that it would like to have")
    parser.add_argument("--data-dir", type=Path, help="where data sets are")
    parser.add_argument("--capacity", type=int, help="samples that it holds")
    parser.add_argument("--queue", type=int, help="samples that may wait beside them")
    parser.add_argument(
        "--component",
        action="append",
        default=[],
        help="a class that a plan may name: FILE.py:NAME",
    )
    parser.add_argument("--model", help="the module to train: FILE.py:NAME")
    parser.add_argument("--node-key", type=Path, help="private key that signs public keys")
    parser.add_argument("--peers", type=Path, help="folder with public keys of trusted nodes")
    parser.add_argument("--min-participants", type=int, help="clients in a secure sum")
    limits = DeviceLimits()
    parser.add_argument("--max-params", type=int, default=limits.max_params)
    parser.add_argument("--max-samples", type=int, default=limits.max_samples)
    parser.add_argument("--max-memory", type=int, help="in bytes")
    parser.add_argument("--min-interval", type=float, default=limits.min_interval_s)
    parser.add_argument("--min-noise", type=float, default=limits.min_noise)
    parser.add_argument("--max-epsilon", type=float, help="of everything that is ever sent")
    parser.add_argument("--delta", type=float, default=limits.delta)
    parser.add_argument("--privacy-account", type=Path, help="file of the privacy account")
    parser.add_argument("--recipe", action="append", default=[], help="an allowed recipe")
    return parser


def _stop(number: int, frame: FrameType | None) -> None:
    """Stop. Work in progress is discarded; the server requests it again."""
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
