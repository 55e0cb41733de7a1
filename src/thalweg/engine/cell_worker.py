"""A process that runs cells: one order per line on standard input, news per line on standard output."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from thalweg.core.errors import ThalwegError
from thalweg.data import Dataset
from thalweg.engine.any_plan import AnyPlan, any_plan_from_toml
from thalweg.engine.baseline import carry_out
from thalweg.engine.loop import Progress


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    news = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    sys.stdout = sys.stderr  # whatever a policy prints must not be mistaken for news
    loaded: dict[str, Dataset] = {}

    def say(event: str, **rest: Any) -> None:
        try:
            news.write(json.dumps({"event": event, **rest}) + "\n")
            news.flush()
        except BrokenPipeError:  # who started us was killed; this cell goes on after its last round
            os._exit(0)

    def tell(progress: Progress) -> None:
        say("round", row=dict(progress.row))

    for line in sys.stdin:
        order = json.loads(line)
        try:
            plan = any_plan_from_toml(order["plan"], "the plan of a cell")
            data_dir = None if order["data_dir"] is None else Path(order["data_dir"])
            carry_out(
                plan,
                workers=1,
                out=Path(order["out"]),
                data_dir=data_dir,
                watch=tell,
                command=order["command"],
                data=_data(plan, data_dir, loaded),
            )
            say("done")
        except ThalwegError as error:
            say("failed", reason=str(error))
        except Exception as error:
            traceback.print_exc()
            say("failed", reason=f"{type(error).__name__}: {error}")


def _data(plan: AnyPlan, data_dir: Path | None, loaded: dict[str, Dataset]) -> Dataset:
    """Cells that follow one another mostly share their data: keep the last ones loaded."""
    key = f"{plan.scenario.data} {plan.seed}"
    if key not in loaded:
        loaded.clear()
        loaded[key] = plan.scenario.data.load(data_dir, plan.seed)
    return loaded[key]


if __name__ == "__main__":
    main()
