"""Runs several ``flwr`` commands in one process: ``python -P control.py '[["run", ...], ...]'``.

Starting the ``flwr`` command takes seconds, and each node key needs one command. Each command
prints one JSON object: ``{"success": true, ...}``.
"""

from __future__ import annotations

import json
import sys


def main(text: str) -> None:
    from flwr.cli.app import app

    for arguments in json.loads(text):
        try:
            app(arguments, standalone_mode=False)
        except SystemExit:
            pass  # the command has printed the reason
        except Exception as error:  # report any error, and run the next command
            reason = f"{type(error).__name__}: {error}"
            print(json.dumps({"success": False, "error-message": reason}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
