"""Invalid combinations are rejected before the run, and docs/how-to-combine.md lists them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

import thalweg
from thalweg.core.errors import ConfigError

DOCS = Path(__file__).parents[2] / "docs" / "how-to-combine.md"


class RejectedPlan(NamedTuple):
    documented: str  # how the page calls it
    recipe: str
    scenario: str
    overrides: list[str]
    reason: str


OLD, NEW = "sample_weights.strategy=historical", "sample_weights.strategy=fresh"
STORED = ["world.historical=1.0", "world.historical_data=none"]  # and nothing streams in
REFUSALS = [
    RejectedPlan(
        "sfedpo+drsr+is", "sfedpo+drsr+is", "digits-full", [], "can have only one component"
    ),
    RejectedPlan(
        "feddrift+warmstart", "feddrift+warmstart", "digits-full", [], "Use session_start=previous"
    ),
    RejectedPlan(
        OLD, "stream-historical", "digits-full", [], "gives 1 of the run to clients with stored"
    ),
    RejectedPlan(OLD, "sfedpo+stream-historical", "synthetic-logistic", [], "ours or uniform"),
    RejectedPlan(
        NEW, "stream-fresh", "streams-synthetic", STORED, "gives 1 .* with streaming data"
    ),
    RejectedPlan(
        "sample_weights.strategy=mass",
        "fedavg",
        "digits-full",
        ["sample_weights=old-and-new", "sample_weights.strategy=mass", "sample_weights.mass=0.3"],
        "gives 0.3 of the run to clients with stored data, but this world has none",
    ),
    RejectedPlan(
        "selection.goal", "dpcs", "digits-full", ["selection.goal=[0.5, 0.5]"], "one share per"
    ),
    RejectedPlan("net=cnn", "fedavg", "synthetic-logistic", ["net=cnn"], "use 'mlp' or 'linear'"),
    RejectedPlan("net=char-rnn", "fedavg", "digits-full", ["net=char-rnn"], "For images use 'cnn'"),
    RejectedPlan(
        "net=fast-text", "fedavg", "digits-full", ["net=fast-text"], "For images use 'cnn'"
    ),
    RejectedPlan(
        "augment=standard", "fedavg", "synthetic-logistic", ["augment=standard"], "leave it out"
    ),
    RejectedPlan(
        "world.partition=groups",
        "fedavg",
        "digits-full",
        ["world=inflow", "world.partition=groups"],
        "use partition=dirichlet",
    ),
    RejectedPlan(
        "world.partition=pachinko",
        "fedavg",
        "digits-full",
        ["world=inflow", "world.partition=pachinko"],
        "use partition=dirichlet",
    ),
    RejectedPlan(
        "world.num_clients",
        "fedavg",
        "synthetic-logistic",
        ["world.num_clients=3"],
        "remove num_clients",
    ),
    RejectedPlan(
        "world.historical_data",
        "fedavg",
        "digits-full",
        ["world=inflow", "world.historical_data=0.2"],
        "makes 0 of 20 clients historical",
    ),
    *(
        RejectedPlan(
            f"world.partition={kind}",
            "fedavg",
            "digits-full",
            ["world=inflow", f"world.partition={kind}", "world.num_clients=7"],
            reason,
        )
        for kind, reason in {
            "overlap": "must be even, got 7",
            "half": "must be even, got 7",
            "partial-overlap": "must be even, got 7",
            "two-shard": "10 labels are not a multiple of num_clients=7",
            "distinct": "10 labels are not a multiple of num_clients=7",
        }.items()
    ),
    RejectedPlan(
        "sessions.groups",
        "fedavg",
        "digits-full",
        ["sessions=alternating", "sessions.groups=21"],
        "20 clients cannot be divided into 21 non-empty groups",
    ),
    RejectedPlan("sessions=trace", "fedavg", "digits-full", ["sessions=trace"], "needs a file"),
    RejectedPlan("drift", "fedavg", "drift-digits", ["drift=sudden"], "has views of its own"),
    RejectedPlan("drift=table", "fedavg", "digits-full", ["drift=table"], "file|path|lines"),
    RejectedPlan(
        "world.concepts", "fedavg", "drift-digits", ["world.num_clients=5000"], "use fewer clients"
    ),
    RejectedPlan(
        "weights.basis=explained",
        "fedrc",
        "drift-digits",
        ["weights.basis=explained", "weights.normalise=all"],
        "normalise",
    ),
    RejectedPlan(
        "objective=scaffold", "feddrift", "digits-full", ["objective=scaffold"], "bank=one-model"
    ),
    RejectedPlan(
        "privacy=gaussian", "scaffold", "digits-full", ["privacy=gaussian"], "without noise"
    ),
    *(
        RejectedPlan(
            "privacy.losses=omit",
            "fedavg",
            "digits-full",
            ["privacy=gaussian", "privacy.losses=omit", *selection],
            "privacy.losses",
        )
        for selection in (
            ["selection=power-of-choice", "selection.form=rpow-d"],
            ["selection=balanced-cohort"],
        )
    ),
    RejectedPlan(
        "secure_aggregation=masked",
        "sfedpo",
        "digits-full",
        ["secure_aggregation=masked"],
        "needs individual updates",
    ),
    *(
        RejectedPlan("local.optimizer", recipe, scenario, ["local.optimizer=adam"], reason)
        for recipe, scenario, reason in (
            ("scaffold", "digits-full", "relies on the learning rate of SGD"),
            ("fedomd", "digits-full", "geometry=euclidean"),
        )
    ),
    RejectedPlan(
        "local.optimizer_state",
        "feddrift",
        "digits-full",
        ["local.optimizer_state=keep"],
        "bank=ifca",
    ),
    RejectedPlan(
        "serving=best-recent",
        "fine-tuned",
        "digits-full",
        ["serving=best-recent"],
        "or a bank with shared models",
    ),
    RejectedPlan("bank.every", "feddaa", "drift-digits", ["bank.every=7"], "rounds_per_step"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: f"{case.documented}-{case.recipe}")
def test_an_invalid_combination_is_rejected_before_the_run_and_documented(
    case: RejectedPlan, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=case.reason):
        thalweg.run(
            case.recipe, case.scenario, rounds=1, overrides=case.overrides, out=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()
    assert f"`{case.documented}`" in DOCS.read_text()


def test_the_page_lists_tested_combinations_only() -> None:
    listed = DOCS.read_text().partition("## Rejected combinations")[2].partition("\n## ")[0]
    first_cells = [row.split("|")[1] for row in listed.splitlines() if row.startswith("| `")]
    named = [name for cell in first_cells for name in cell.split("`")[1::2]]
    assert sorted(set(named)) == sorted({case.documented for case in REFUSALS})
