"""The comparison of `auto` with the best specialist, with numbers computed by hand."""

from dataclasses import replace

import pytest

from thalweg.report import auto_table
from thalweg.report.auto_table import (
    compare_auto,
    describe_targets,
    tabulate_comparison,
    tabulate_parts,
)
from thalweg.report.measured import MeasuredCell
from thalweg.scenarios.studies.auto import ABLATIONS, WORLDS, make_columns, name_ablation

WORLD = {world.label: world for world in WORLDS}
SEEDS = (10, 11, 12)


def measure(row, world, values, shown="accuracy", seeds=SEEDS):
    """A stored cell."""
    return MeasuredCell(
        study="auto-table",
        row=row,
        column=make_columns(WORLD[world])[shown].label,
        metric="accuracy",
        mean=sum(values) / len(values),
        spread=None,
        seeds=seeds,
        values=tuple(map(float, values)),
        rounds=10,
        published=None,
        published_spread=None,
        command="",
        version="0.1.0",
        settings="",
    )


FULL = [
    measure("auto", "digits-full", (81, 82, 83)),
    measure("sfedpo", "digits-full", (80, 80, 80)),
    measure("dpcs", "digits-full", (90, 60, 60)),
    measure("centralised", "digits-full", (85, 82, 82)),
    measure(name_ablation("memory"), "digits-full", (99, 99, 99)),
]


def test_best_specialist_has_the_highest_mean_and_is_paired_by_seed():
    (found,) = compare_auto(FULL)
    assert (found.label, found.mean) == ("digits-full", 82)
    rival = found.specialist
    assert (rival.row, rival.mean) == ("sfedpo", 80)
    # Differences 1, 2 and 3: t = 2 / (1 / sqrt 3) and p = 1 - sqrt(6 / 7) with two degrees.
    assert (rival.difference.mean, rival.difference.std) == (2, 1)
    assert rival.difference.p_value == pytest.approx(1 - (6 / 7) ** 0.5)
    assert found.is_within
    assert not found.is_above


def test_baselines_count_among_the_others_and_parts_do_not():
    (found,) = compare_auto(FULL)
    assert (found.other.row, found.other.mean) == ("centralised", 83)
    assert found.other.difference.mean == -1


@pytest.mark.parametrize(
    "values, within, above",
    [
        ((79.5, 79.5, 79.5), True, False),  # equal differences have no p
        ((79.4, 79.4, 79.6), False, False),
        ((81.0, 81.1, 81.2), True, True),
        ((79.0, 79.1, 79.2), False, False),  # significantly below
    ],
)
def test_criteria_of_a_world(values, within, above):
    cells = [measure("auto", "elec2", values), measure("feddrift", "elec2", (80, 80, 80))]
    (found,) = compare_auto(cells)
    assert (found.is_within, found.is_above) == (within, above)


def test_only_shared_seeds_are_compared():
    cells = [
        measure("auto", "elec2", (81, 82, 83)),
        measure("feddrift", "elec2", (50, 80, 82), seeds=(9, 10, 11)),
    ]
    (found,) = compare_auto(cells)
    assert found.specialist.mean == 81
    assert found.specialist.difference[:3] == (0.5, pytest.approx(0.5**0.5), None)


def test_costs_are_ratios_of_medians_where_one_model_suffices():
    cells = [
        *FULL,
        measure("auto", "digits-full", (3, 1.4, 1.5), "core-seconds"),
        measure("fedavg", "digits-full", (1, 1, 9), "core-seconds"),
        measure("auto", "digits-full", (4, 4, 4), "MB"),
        measure("fedavg", "digits-full", (2, 2, 2), "MB"),
    ]
    (found,) = compare_auto(cells)
    assert (found.core_ratio, found.traffic_ratio, found.is_cheap) == (1.5, 2, True)
    assert replace(found, core_ratio=1.51).is_cheap is False
    assert replace(found, traffic_ratio=2.01).is_cheap is False
    assert replace(found, world=WORLD["elec2"]).is_cheap is None
    assert compare_auto(FULL)[0].is_cheap is None


def test_accuracy_on_the_whole_test_set_is_compared_as_well():
    cells = [
        *FULL,
        measure("auto", "digits-full", (70, 70, 70), "whole test set"),
        measure("sfedpo", "digits-full", (72, 72, 72), "whole test set"),
    ]
    found = compare_auto(cells)
    assert [each.label for each in found] == ["digits-full", "digits-full, whole test set"]
    first, second, *_ = describe_targets(found)
    assert first == (
        "Within 0.5 points of the best specialist: 1 of 2 comparisons. Missed: digits-full, whole "
        "test set."
    )
    assert second.startswith("Significantly above the best specialist: 0 of 1 worlds")


@pytest.mark.parametrize(
    "values, verdict", [((82.0, 82.1, 82.2), "met"), ((81.8, 81.9, 82.0), "missed")]
)
def test_lead_in_the_mixed_world_is_over_all_others(values, verdict):
    cells = [
        measure("auto", "mixed-digits", values),
        measure("sfedpo", "mixed-digits", (70, 70, 70)),
        measure("fedavg", "mixed-digits", (80, 80, 80)),
    ]
    (sentence,) = (each for each in describe_targets(compare_auto(cells)) if "fedavg" in each)
    assert sentence.endswith(f"target: +2, {verdict}.")


def test_mixed_world_exists():
    assert auto_table.MIXED in WORLD


def test_p_values_are_corrected_over_worlds():
    cells = []
    for world in ("elec2", "weather"):
        cells += [measure("auto", world, (81, 82, 83)), measure("feddrift", world, (80, 80, 80))]
    columns = {column.heading: column for column in tabulate_comparison(compare_auto(cells))}
    assert columns["world"].entries == ["elec2", "weather"]
    assert columns["best specialist"].entries == ["feddrift 80.00"] * 2
    assert columns["difference"].entries == ["+2.00 ± 1.00"] * 2
    assert columns["p"].entries == ["0.074"] * 2
    assert columns["p (Holm)"].entries == ["0.148"] * 2
    assert columns["MB / FedAvg"].entries == ["–"] * 2


def test_parts_show_what_auto_gains_by_them():
    cells = [
        measure("auto", "elec2", (81, 82, 83)),
        measure(name_ablation("memory"), "elec2", (80, 80, 80)),
        measure(name_ablation("bank"), "elec2", (80.9, 81.8, 82.9)),
    ]
    columns = {column.heading: column.entries for column in tabulate_parts(cells)}
    assert list(columns) == ["world", *ABLATIONS]
    assert columns["memory"] == ["+2.00"]
    # Differences 0.1, 0.2 and 0.1: t = 4, p = 0.057.
    assert columns["bank"] == ["+0.13"]
    assert columns["alarm"] == ["–"]


def test_nothing_is_compared_without_auto():
    assert compare_auto(FULL[1:]) == []
    assert describe_targets([])[0].startswith("Within 0.5 points of the best specialist: 0 of 0")
