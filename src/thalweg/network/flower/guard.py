"""Runs one program, writes its log, and terminates all of its processes at the end.

`network/flower/processes.py` starts ``python -I guard.py LOG PROGRAM ARGUMENT ...`` and holds the
other end of the guard's standard input, without writing to it. When that end closes, because the
owner closed it or was killed, the guard terminates the program's process group: SIGTERM, then
SIGKILL. It does the same when the program exits, because killed Flower programs leave child
processes behind. The guard exits with the program's exit code, or 128 + signal.

Imports only the standard library, so that it starts fast.
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
LOG_BYTES = 4_000_000  # larger logs are renamed to LOG.1
PR_SET_PDEATHSIG = 1  # Linux: the signal sent when the parent dies


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
        log_thread = threading.Thread(target=_write_log, args=(child.stdout, log), daemon=True)
        log_thread.start()
        threading.Thread(target=_await_owner, args=(child,), daemon=True).start()
        try:
            code = child.wait()
        finally:
            _terminate(child)
            log_thread.join(timeout=2.0)
    return code if code >= 0 else 128 - code


def _await_owner(child: subprocess.Popen[bytes]) -> None:
    """Wait until the owner closes our standard input; then terminate the program."""
    while os.read(0, 1024):
        pass
    _terminate(child)


def _terminate(child: subprocess.Popen[bytes]) -> None:
    """Terminate the program's process group: SIGTERM, and SIGKILL after `GRACE_S`."""
    group = child.pid  # the program was started as the leader of its own group
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline:
            child.poll()
            os.killpg(group, 0)  # raises when no process is left
            time.sleep(0.02)
        os.killpg(group, signal.SIGKILL)


def _write_log(output: IO[bytes], path: str) -> None:
    """Append the program's output to a log.

    Keep two files of bounded size, the older one as ``.1``.
    """
    while chunk := os.read(output.fileno(), 65536):
        with contextlib.suppress(OSError):  # a full disk must not stop the program
            with open(path, "ab") as file:
                size = file.tell()
                file.write(chunk)
            if size + len(chunk) > LOG_BYTES:
                os.replace(path, path + ".1")


def _die_with_parent() -> None:
    """Have the system kill the program if the guard itself is killed."""
    with contextlib.suppress(Exception):  # only Linux has prctl
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
