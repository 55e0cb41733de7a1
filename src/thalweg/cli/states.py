"""``thalweg states``"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console

from thalweg.analysis.latent_states import LatentStateNumbers, latent_states
from thalweg.cli.progress import print_json
from thalweg.cli.run import plan_from_options
from thalweg.core.errors import ConfigError
from thalweg.engine.plan import Plan
from thalweg.report.circles import CirclePanel, ColumnGroup, write_circles


def states_command(
    recipe: str,
    *,
    on: str | None,
    sets: list[str],
    seed: int | None,
    out: Path | None,
    as_json: bool,
    data_dir: Path | None,
) -> None:
    """Print the latent states of a plan, and draw them."""
    plan, _, _ = plan_from_options(recipe, on, sets, seed, None, data_dir=data_dir)
    if not isinstance(plan, Plan):
        raise ConfigError(f"{recipe} is a baseline and has no memory; name a recipe.")
    numbers = latent_states(plan, data_dir=data_dir)
    if out is not None:
        draw_states(out, numbers)
    if as_json:
        print_json({name: value.tolist() for name, value in numbers._asdict().items()})
        return
    num_states, num_classes = numbers.counts.shape
    lines = [
        f"{plan.title}: {num_states} states, {num_classes} classes, {len(numbers.probs)} clients",
        "",
        f"{'cluster':>9}{'states':>8}{'samples':>9}{'classes':>9}{'distance':>10}"
        f"{'visits':>8}{'renewal':>9}",
        *_describe_clusters(numbers),
        "",
        "cluster: Dirichlet parameter. samples, classes: mean per state; classes with at",
        "least 1 %. distance: from balanced classes. visits: share of all ticks. renewal:",
        "mean share of the memory that a tick in such a state renews.",
    ]
    if out is not None:
        lines += ["", f"figure: {out}"]
    Console().print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def draw_states(path: Path, numbers: LatentStateNumbers) -> None:
    """Draw Figures 4, 5 and 6 of SFedPO, one below the other."""
    reached = np.where(numbers.probs > 0, numbers.ratios, 0.0)
    panels = [
        CirclePanel("samples of each class", "class", numbers.counts.T.astype(np.float64)),
        CirclePanel("probability of each state", "client", numbers.probs),
        CirclePanel("share of the memory that a tick renews", "client", reached),
    ]
    sizes = np.bincount(numbers.clusters)
    groups = [
        ColumnGroup(f"{concentration:g}", int(size))
        for concentration, size in zip(numbers.concentrations, sizes, strict=True)
    ]
    write_circles(path, panels, groups, "state; above: Dirichlet parameter of its cluster")


def _describe_clusters(numbers: LatentStateNumbers) -> list[str]:
    """Return one line for each cluster."""
    shares = numbers.counts / numbers.counts.sum(axis=1, keepdims=True)  # (M, C)
    spent = numbers.probs * numbers.ratios  # (N, M)
    lines = []
    for cluster, concentration in enumerate(numbers.concentrations):
        states = np.flatnonzero(numbers.clusters == cluster)
        visits = numbers.probs[:, states].sum()
        renewal = spent[:, states].sum() / visits if visits > 0 else 0.0
        lines.append(
            f"{concentration:>9g}{len(states):>8}{numbers.counts[states].sum(1).mean():>9.0f}"
            f"{(shares[states] >= 0.01).sum(1).mean():>9.1f}"
            f"{numbers.heterogeneity[states].mean():>10.2f}"
            f"{visits / len(numbers.probs):>8.2f}{renewal:>9.2f}"
        )
    return lines
