"""Draw the figure of the README from the runs of ``make demo``; finished runs are reused.

python tools/demo_figure.py [FOLDER]          (default: runs/demo)
"""

from __future__ import annotations

import sys
from pathlib import Path

import thalweg
from thalweg.report.figure import figure_png

RECIPES = ("fedavg", "feddrift", "auto")
FILE = Path(__file__).parents[1] / "docs/figures/demo.png"


def main(folder: str = "runs/demo") -> None:
    comparison = thalweg.compare(RECIPES, "mixed-digits", out=folder)
    FILE.write_bytes(figure_png(comparison.cells, dots_per_inch=64))


if __name__ == "__main__":
    main(*sys.argv[1:])
