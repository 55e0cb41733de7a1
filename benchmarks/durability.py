"""Cost of manifests and of synchronisation with the disk, relative to a round.

Runs a recipe and measures the time in which each round is written: as it is, without
synchronisation (THALWEG_NO_SYNC=1), and without manifests. The three are measured in one run, on
the same states, in turn. Run it as

    python benchmarks/durability.py [--on fashion-mnist-partial] [--rounds 30]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from thalweg.core import files
from thalweg.core.files import System
from thalweg.engine import run_folder
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import make_plan
from thalweg.engine.run_folder import RunFolder

NAMES = ("synchronised", "not synchronised", "no manifest")


class Measured(RunFolder):
    """A run folder that writes each round three times, to folders of their own."""

    times: dict[str, list[float]] = {name: [] for name in NAMES}  # noqa: RUF012

    def open(self, plan: Any, **options: Any) -> bool:
        self.others = [RunFolder(self.path.with_name(name)) for name in NAMES]
        for other in self.others:
            other.open(plan, command="", resume=False)
        return super().open(plan, **options)

    def close(self) -> None:
        for other in self.others:
            other.close()
        super().close()

    def commit(self, *round_: Any) -> None:
        for name, other in zip(NAMES, self.others, strict=True):
            with mock.patch.object(files, "system", System(name == "synchronised")):
                if name == "no manifest":
                    with mock.patch.object(run_folder, "write_manifest"):
                        self.times[name].append(_measure(other, round_))
                else:
                    self.times[name].append(_measure(other, round_))


def _measure(folder: RunFolder, round_: tuple[Any, ...]) -> float:
    began = time.perf_counter()
    folder.commit(*round_)
    return 1000 * (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", default="fashion-mnist-partial")
    parser.add_argument("--recipe", default="fedavg")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    plan = make_plan(options.recipe, options.on, rounds=options.rounds)
    with (
        tempfile.TemporaryDirectory(dir=".") as scratch,
        mock.patch("thalweg.engine.loop.RunFolder", Measured),
        mock.patch.object(Measured, "finish"),
    ):
        result = run_plan(plan, out=Path(scratch) / "run")
    round_ms = statistics.median(1000 * row["seconds"] for row in result.metrics)
    print(f"{plan.title}, {options.rounds} rounds, medians: a round takes {round_ms:.1f} ms")
    least = statistics.median(Measured.times["no manifest"])
    for name in NAMES:
        found = statistics.median(Measured.times[name])
        print(f"  {name:17} {found:6.1f} ms, {100 * (found - least) / round_ms:5.1f} % of a round")


if __name__ == "__main__":
    main()
