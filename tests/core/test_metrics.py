"""Every metric is declared once, and everything that shows metrics follows the declaration."""

import re
from pathlib import Path

import pytest

import thalweg
from thalweg.core import metrics
from thalweg.core.metrics import (
    METRICS,
    Metric,
    find_undeclared,
    is_redundant,
    make_final_row,
    metrics_in,
)

ROOT = Path(__file__).parents[2]
SRC = Path(thalweg.__file__).parent


def test_names_are_unique_and_descriptions_have_no_full_stop() -> None:
    assert len(METRICS) == len(metrics._DECLARED)
    for metric in METRICS.values():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
        assert metric.description
        assert not metric.description.endswith(".")
        assert not metric.redundant_with or metric.redundant_with in METRICS
        assert set(metric.sum_of) <= set(METRICS)


def test_columns_of_tables_have_different_headings() -> None:
    for place in ("table", "run", "policy table"):
        headings = [metric.column for metric in metrics_in(place)]
        assert len(set(headings)) == len(headings)


def test_lines_of_a_run_fit_into_80_columns() -> None:
    assert [m.name for m in metrics_in("run") if 16 + 9 + len(m.note) > 80 or not m.note] == []


@pytest.mark.parametrize(
    ("over_rounds", "expected"), [("last", 2.0), ("mean", 3.0), ("sum", 6.0), ("max", 4.0)]
)
def test_rounds_are_aggregated_as_declared(over_rounds: str, expected: float) -> None:
    metric = Metric("m", "A metric", over_rounds=over_rounds)
    rows = [{"m": 4}, {}, {"m": None}, {"m": 2}, {"m": float("nan")}]
    assert metric.aggregate(rows) == expected
    assert metric.aggregate([{}]) is None


def test_a_weighted_mean_counts_samples_and_not_rounds() -> None:
    metric = Metric("m", "A metric", over_rounds="mean", weight="n")
    # 1 of 1 and 1 of 4 samples: 2 of 5, not the mean of the rounds (0.625).
    assert metric.aggregate([{"m": 1.0, "n": 1}, {"n": 9}, {"m": 0.25, "n": 4}]) == 0.4
    assert metric.aggregate([{"m": 1.0}, {"m": 0.5}]) == 0.75, "without counts, rounds are equal"


def test_weights_are_declared_metrics_of_means() -> None:
    weighted = [metric for metric in METRICS.values() if metric.weight]
    assert {metric.name for metric in weighted} == {"prequential_accuracy", "prequential_mae"}
    assert all(m.over_rounds == "mean" and m.weight in METRICS for m in weighted)


def test_the_final_row_has_test_then_train_over_all_rounds_and_the_rest_of_the_last() -> None:
    rows = [
        {"round": 1, "prequential_mae": 2.0, "tested": 3, "loss": 1.0},
        {"round": 2, "prequential_mae": 6.0, "tested": 1, "loss": 0.5},
        {"round": 3, "mae": 4.0, "loss": 0.25},
    ]
    # (3 * 2 + 1 * 6) / 4 = 3
    expected = {"round": 3, "mae": 4.0, "loss": 0.25, "prequential_mae": 3.0, "tested": 4}
    assert make_final_row(rows) == expected
    assert make_final_row([{"round": 1, "accuracy": 0.5}]) == {"round": 1, "accuracy": 0.5}


def test_a_metric_is_redundant_only_if_it_repeats_the_other_one_everywhere() -> None:
    metric = METRICS["balanced_accuracy"]
    near, far = ({"accuracy": 0.5, metric.name: value} for value in (0.504, 0.6))
    assert is_redundant(metric, [near, near])
    assert not is_redundant(metric, [near, far])


def test_the_reference_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "reference-metrics.md").read_text()
    assert page == metrics.to_markdown(), "run: python -m thalweg.core.metrics"


RUNS = {  # recipe, scenario and overrides of short runs that cover all sources of metrics
    "states": ("sfedpo", "digits-partial", ["validation=0.5"]),
    "dpcs": ("dpcs", "digits-partial", ["selection.privacy.epsilon=1.0"]),
    "sessions": ("fedavg", "digits-partial", ["sessions=alternating", "sessions.length=1"]),
    "hostile": (
        "fedavg",
        "digits-partial",
        ["faults=hostile", "robust=krum", "privacy=gaussian"],
    ),
    "faults": ("fedavg", "digits-partial", ["faults=unreliable", "staleness=polynomial"]),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_metric_of_a_run_is_declared(name: str) -> None:
    recipe, scenario, overrides = RUNS[name]
    result = thalweg.run(recipe, scenario, rounds=2, overrides=overrides, workers=1)
    assert find_undeclared(result.metrics) == []


def test_metrics_that_policies_add_are_declared() -> None:
    """Literal names in the functions that return extra metrics; a new one must be declared."""
    sources = {
        path: re.findall(r"def _?\w*metrics\b.*?(?=\n    def |\ndef |\Z)", path.read_text(), re.S)
        for path in SRC.glob("*/**/*.py")
        if path.parts[len(SRC.parts)] not in ("core", "report", "cli", "evaluation")
    }
    names = {
        name
        for bodies in sources.values()
        for body in bodies
        for name in re.findall(r"[\"']([a-z][a-z0-9_]+)[\"'](?:: |\] = )", body)
    }
    assert names >= {"rejected", "epsilon_spent_max", "update_epsilon", "clusters_found"}
    assert sorted(names - set(METRICS)) == []
