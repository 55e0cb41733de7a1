"""Server rules in whole runs, compared with loops written by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.recipe_runs import PlanRuns, load, play, reference, small_plan
from thalweg.aggregation import AVERAGED_RULES
from thalweg.core.rng import Draw, rng_for
from thalweg.engine.plan import Plan
from thalweg.federation import get_served_models


def initial_model(plan: Plan) -> np.ndarray:
    data = load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    return net.init(rng_for(plan.seed, Draw.NET)).astype(np.float64)


def run_by_hand(rule: str, x: np.ndarray, mean_updates: list[np.ndarray]) -> np.ndarray:
    """Algorithm 2 of Reddi et al. 2021, and FedAvgM, in double precision."""
    eta = {"fedadam": 0.01, "fedyogi": 0.01, "fedadagrad": 0.1, "fedavgm": 1.0}[rule]
    beta1 = {"fedadam": 0.9, "fedyogi": 0.9, "fedadagrad": 0.0, "fedavgm": 0.9}[rule]
    beta2, tau = 0.99, 1e-3
    m, v = np.zeros_like(x), np.full_like(x, tau**2)
    for delta in mean_updates:
        if rule == "fedavgm":
            m = beta1 * m + delta
            x = x + eta * m
            continue
        m = beta1 * m + (1 - beta1) * delta
        if rule == "fedadam":
            v = beta2 * v + (1 - beta2) * delta**2
        elif rule == "fedyogi":
            v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
        else:
            v = v + delta**2
        x = x + eta * m / (np.sqrt(v) + tau)
    return x


@pytest.mark.parametrize("rule", ["fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_a_run_equals_a_loop_written_by_hand(rule: str, tmp_path: Path) -> None:
    run = PlanRuns(small_plan(rule, rounds=5), tmp_path).reference
    plan = small_plan(rule, rounds=5)
    mean_updates = [
        updates.deltas[updates.num_steps > 0].astype(np.float64).mean(axis=0)
        for updates in run.updates
        if (updates.num_steps > 0).any()
    ]
    assert len(mean_updates) > 2
    expected = run_by_hand(rule, initial_model(plan), mean_updates)
    np.testing.assert_allclose(run.result.model, expected, rtol=1e-4, atol=1e-5)


def test_a_buffered_run_equals_a_loop_written_by_hand() -> None:
    faults = ["faults=unreliable", "faults.late=0.5", "faults.delay=1.0"]
    plan = small_plan("fedbuff", *faults, "server.size=6", rounds=8)
    server, history = play(plan, reference(plan), rounds=8)
    x, buffer, num_steps, num_late = initial_model(plan), [], 0, 0
    for rnd, updates in enumerate(history):
        if updates is None:
            continue
        staleness = updates.staleness(rnd)
        buffer += list(updates.deltas.astype(np.float64) / np.sqrt(1 + staleness)[:, None])
        num_late += int((staleness > 0).sum())
        if len(buffer) >= 6:
            x, buffer, num_steps = x + np.mean(buffer, axis=0), [], num_steps + 1
    assert 0 < num_steps < 8
    assert num_late > 0
    np.testing.assert_allclose(server.bank[0], x, rtol=1e-4, atol=1e-5)
    assert server.rules[0].num_updates == len(buffer)


def test_an_averaged_run_evaluates_the_mean_of_its_models_by_the_weight_of_rounds() -> None:
    aging = ["weights=by-weight", "sample_weights=inverse-age"]  # rounds differ in total weight
    plan = small_plan("fedavg", *aging, "server=averaged", rounds=3)
    starts = [play(plan, reference(plan), rounds)[0].bank[0] for rounds in range(3)]
    server, history = play(plan, reference(plan), rounds=3)
    totals = [updates.reports["total_weight"].sum() for updates in history if updates is not None]
    assert len(set(totals)) == 3
    average = np.average(np.array(starts, dtype=np.float64), axis=0, weights=totals)
    served = get_served_models(server, plan.recipe).models[0]
    np.testing.assert_allclose(served, average, rtol=1e-4, atol=1e-6)
    assert not np.allclose(served, server.bank[0], atol=1e-3)


@pytest.mark.parametrize(
    ("rule", "robust"),
    [*((rule, "norm-clip") for rule in AVERAGED_RULES), ("step", "multi-krum"), ("fedexp", "none")],
)
def test_any_rule_can_be_averaged_also_with_robust_aggregation(rule: str, robust: str) -> None:
    sets = [f"robust={robust}"] + (["server.size=4"] if rule == "buffered" else [])
    plain = small_plan("fedavg", f"server={rule}", *sets, rounds=3)
    inner = ["server.rule.size=4"] if rule == "buffered" else []
    average = small_plan(
        "fedavg", "server=averaged", f"server.rule={rule}", *inner, sets[0], rounds=3
    )
    models = [play(plain, reference(plain), rounds)[0] for rounds in range(4)]
    server, _ = play(average, reference(average), rounds=3)
    np.testing.assert_array_equal(server.bank, models[3].bank)
    evaluated = [get_served_models(each, plain.recipe).models[0] for each in models[:3]]
    served = get_served_models(server, average.recipe).models[0]
    np.testing.assert_allclose(served, np.mean(evaluated, axis=0), atol=1e-5)
