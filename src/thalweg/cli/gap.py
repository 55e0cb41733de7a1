"""``thalweg gap``"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from thalweg.analysis.oracle_gap import oracle_gap
from thalweg.cli.code_files import print_code_files
from thalweg.cli.progress import print_json


def gap_command(run: Path, *, as_json: bool, data_dir: Path | None) -> None:
    """Print the oracle gap of a run."""
    print_code_files(run)
    gap = oracle_gap(run, data_dir=data_dir)
    budgets = gap.effective_budgets
    spent = {
        "min": float(budgets.min()),
        "mean": float(budgets.mean()),
        "max": float(budgets.max()),
    }
    if as_json:
        print_json(
            {
                "folder": str(run),
                "gap": gap.gap,
                "oracle_error": gap.oracle_error,
                "ideal": gap.ideal,
                "achieved": gap.achieved,
                "effective_budget": spent,
            }
        )
        return
    lines = [
        f"gap               {gap.gap:.6f}   increase of the bound due to the forecasts",
        f"oracle error      {gap.oracle_error:.6f}   L1 distance to the truth, over all clients",
        f"ideal             {gap.ideal:.6f}   term of the bound with the true probabilities",
        f"achieved          {gap.achieved:.6f}   the same term with the predicted ones",
        f"effective budget  {spent['min']:.4f} min, {spent['mean']:.4f} mean, "
        f"{spent['max']:.4f} max over clients",
    ]
    Console().print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
