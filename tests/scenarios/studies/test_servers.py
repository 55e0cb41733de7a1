from __future__ import annotations

from pathlib import Path

from thalweg.aggregation import Buffered, FedAdam, RejectLate
from thalweg.bank import Ifca
from thalweg.report.study import plan_study
from thalweg.scenarios.studies import STUDIES


def plans(name, tmp_path: Path):
    cells = plan_study(STUDIES[name], seeds=1, out=tmp_path).cells
    return {(cell.row.label, cell.column.label): cell.job.plan for cell in cells}


def test_server_rules_differ_in_the_server_rule_only(tmp_path: Path) -> None:
    found = plans("server-rules-table", tmp_path)
    recipes = [plan.recipe for plan in found.values()]
    assert {repr(recipe.memory) for recipe in recipes} == {"Fifo()"}
    assert len({repr(recipe.server) for recipe in recipes}) == 5
    plan = found["fedadam", "dpcs-mnist 60 rounds"]
    assert plan.recipe.server == FedAdam(lr=0.03)
    assert (plan.scenario.rounds, plan.scenario.local.lr) == (60, 0.1)


def test_learning_rates_are_chosen_on_other_seeds_and_images(tmp_path: Path) -> None:
    rates, table = STUDIES["server-rules-rates"], STUDIES["server-rules-table"]
    assert not set(rates.seeds) & set(table.seeds)
    assert rates.metric == "validation_accuracy"
    assert table.metric == "accuracy"
    tried = {repr(plan.recipe) for plan in plans("server-rules-rates", tmp_path).values()}
    for plan in plans("server-rules-table", tmp_path).values():
        assert plan.scenario.validation == 0.5
        assert repr(plan.recipe) in tried


def test_late_updates_are_rejected_discounted_or_buffered(tmp_path: Path) -> None:
    found = plans("late-updates-table", tmp_path)
    assert found["rejected", "digits-partial late 0.3"].recipe.staleness == RejectLate()
    buffered = found["fedbuff, 20", "digits-partial late 0.7"]
    assert buffered.recipe.server == Buffered(size=20)
    assert (buffered.scenario.faults.late, buffered.scenario.faults.delay) == (0.7, 3.0)


def test_all_banks_train_all_clients_in_steps_of_twenty_rounds(tmp_path: Path) -> None:
    found = {row: plan for (row, _), plan in plans("ifca-table", tmp_path).items()}
    assert found["ifca, 4 models"].recipe.bank == Ifca(models=4)
    assert {repr(plan.recipe.selection) for plan in found.values()} == {"Available()"}
    assert {plan.scenario.world.rounds_per_step for plan in found.values()} == {20}
