"""Gives a SuperLink several commands from one process: ``python -P control.py '[["run", ...], ...]'``.

Every start of the ``flwr`` command takes seconds, and every node key needs one. Here they are paid once. For each
command one line of JSON is printed: ``{"ok": true, "said": "..."}``.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys


def main(text: str) -> None:
    from flwr.cli.app import app

    for arguments in json.loads(text):
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                app(arguments, standalone_mode=False)
            ok = True
        except SystemExit as stop:
            ok = stop.code in (0, None)
        except Exception as error:  # whatever it is, it is reported and the next command is tried
            ok = False
            said.write(f"{type(error).__name__}: {error}")
        print(json.dumps({"ok": ok, "said": said.getvalue().strip()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
