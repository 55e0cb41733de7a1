"""Gives a SuperLink several commands from one process: ``python -P control.py '[["run", ...], ...]'``.

Every start of the ``flwr`` command takes seconds, and every node key needs one; here they are paid once. Each
command asks for JSON and prints one object: ``{"success": true, ...}``.
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
            pass  # it has said why
        except Exception as error:  # whatever it is, it is reported and the next command is tried
            reason = f"{type(error).__name__}: {error}"
            print(json.dumps({"success": False, "error-message": reason}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
