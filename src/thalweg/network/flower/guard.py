"""Runs one program, keeps its log, and sees to it that nothing of it is left behind.

``python -I guard.py LOG PROGRAM ARGUMENT ...`` is started by `network/flower/processes.py`, which holds the other end
of the guard's standard input and never writes to it. When that end closes, because the owner ended it or was
killed itself, the program and everything it started are ended: SIGTERM, then SIGKILL. The same happens when
the program ends by itself, since Flower's programs leave children behind when they are killed. The guard then
ends with the program's exit code, 128 + signal if a signal ended it.

Needs nothing but Python's own library, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO

GRACE_S = 5.0  # between SIGTERM and SIGKILL
LOG_BYTES = 4_000_000  # then the log becomes LOG.1, and a new one is begun
PR_SET_PDEATHSIG = 1  # Linux: a signal for when the parent dies


def main(arguments: list[str]) -> int:
    log, command = arguments[0], arguments[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent,
    ) as child:
        assert child.stdout is not None
        scribe = threading.Thread(target=_keep_log, args=(child.stdout, log), daemon=True)
        scribe.start()
        threading.Thread(target=_await_owner, args=(child,), daemon=True).start()
        try:
            code = child.wait()
        finally:
            _end(child)
            scribe.join(timeout=2.0)
    return code if code >= 0 else 128 - code


def _await_owner(child: subprocess.Popen[bytes]) -> None:
    """Until the owner's end of our standard input closes; then the whole group has to go."""
    while os.read(0, 1024):
        pass
    _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the program's process group: politely, and what is left of it after a while at once."""
    group = child.pid  # it was started as the leader of its own
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until:
            child.poll()
            os.killpg(group, 0)  # raises as soon as nobody is left
            time.sleep(0.02)
        os.killpg(group, signal.SIGKILL)


def _keep_log(output: IO[bytes], path: str) -> None:
    """Copy what the program says; two files of bounded size, the older one as ``.1``."""
    while some := os.read(output.fileno(), 65536):
        with contextlib.suppress(OSError):  # a full disk must not stop the program
            with open(path, "ab") as file:
                size = file.tell()
                file.write(some)
            if size + len(some) > LOG_BYTES:
                os.replace(path, path + ".1")


def _die_with_parent() -> None:
    """For the case that somebody kills the guard itself."""
    with contextlib.suppress(Exception):  # other systems than Linux have no such thing
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
