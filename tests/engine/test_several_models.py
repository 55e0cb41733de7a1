"""Clients that train several models in a round: engines agree, and runs resume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from contracts.runs import Interruption, check_engines_agree, check_same_bits, interrupt_after
from contracts.splitting_bank import EvenAndOdd
from engine.bytes_federation import BytesFederation
from thalweg.core.rng import Draw, rng_for
from thalweg.engine.builders import make_federation, make_model_factory
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import Plan, make_plan
from thalweg.federation import new_server, run_server_round
from thalweg.local import Elastic, Moon, Proximal
from thalweg.memory import Ode

SMALL = ["capacity=24", "ticks=2", "world.num_clients=5", "world.availability=0.8"]


def plan_of(overrides: list[str] = SMALL, **parts: object) -> Plan:
    plan = make_plan("fedavg", "digits-partial", seed=3, rounds=3, overrides=overrides)
    recipe = replace(plan.recipe, bank=EvenAndOdd(), **parts)  # type: ignore[arg-type]
    return replace(plan, recipe=recipe)


PARTS = {
    "planned ahead": {},
    "looking at the start": {"objective": Proximal(0.1)},
    "remembering something for each model": {"objective": Elastic()},
    "comparing with what it was": {"objective": Moon()},
    "a memory that talks": {"memory": Ode()},
}


@pytest.mark.parametrize("case", PARTS)
def test_both_engines_agree(case: str) -> None:
    plan = plan_of(**PARTS[case])
    fast, slow = (
        run_plan(replace(plan, engine=engine), workers=1) for engine in ("fast", "reference")
    )
    check_engines_agree(fast, slow)
    assert fast.metrics[-1]["models"] == 2


def test_the_number_of_workers_changes_no_bit() -> None:
    one, two = (run_plan(plan_of(), workers=workers) for workers in (1, 2))
    assert np.array_equal(one.model, two.model)


@pytest.mark.parametrize("case", ["planned ahead", "remembering something for each model"])
def test_a_resumed_run_has_the_same_bits(case: str, tmp_path: Path) -> None:
    plan = plan_of(**PARTS[case])
    whole = run_plan(plan, workers=1)
    with pytest.raises(Interruption):
        run_plan(plan, workers=1, out=tmp_path / "run", watch=interrupt_after(1))
    check_same_bits(whole, run_plan(plan, workers=1, out=tmp_path / "run", resume=True))


def test_several_models_give_the_same_bits_by_bytes() -> None:
    plan = replace(plan_of(), engine="reference")
    data = plan.scenario.data.load(None, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    banks = []
    for federation in (make_federation(plan, data, net, 1), BytesFederation(plan, data)):
        server = new_server(plan.recipe, net.init(rng_for(plan.seed, Draw.NET)), 5)
        for _ in range(3):
            server, _ = run_server_round(
                server, federation, plan.recipe, plan.seed, make_model_factory(plan, net)
            )
        banks.append(server.bank)
    assert np.array_equal(*banks)
    assert len(banks[0]) == 2


def test_the_stream_moves_once_and_only_one_model_is_tested() -> None:
    several, one = run_plan(plan_of(), workers=1), plan_of()
    single = run_plan(
        replace(one, recipe=replace(make_plan("fedavg", "digits-partial").recipe)), workers=1
    )
    assert [row["cohort"] for row in several.metrics] == [
        row["cohort"] for row in single.metrics
    ], "clients, however many models each of them trains"
    assert several.metrics[0]["prequential_accuracy"] <= 1
