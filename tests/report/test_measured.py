"""Measured cells of studies are stored, merged and read again."""

from dataclasses import replace

import pytest

from thalweg.core.errors import ConfigError
from thalweg.core.published import Published
from thalweg.report import measured
from thalweg.report.measured import (
    MeasuredCell,
    check_can_save,
    find_outdated,
    find_study_of_file,
    merge,
    read_all_measured,
    read_measured,
    save_study,
    write_measured,
)
from thalweg.report.study import plan_study, read_study, reproduce
from thalweg.scenarios.studies import STUDIES, Column, Row, Study

SMALL = ("rounds=2", "capacity=24", "local.passes=1")
TINY = Study(
    name="tiny",
    title="Tiny",
    description="Made up.",
    rows=(Row("sfedpo"), Row("plain, small", "fedavg"), Row("best", best_of=("sfedpo",))),
    columns=(Column("digits-full", (*SMALL, "validation=0.5")),),
    seeds=(4, 5),
    reference="plain, small",
    published={("sfedpo", "digits-full"): Published(50.0, 1.5)},
)
CELL = MeasuredCell(
    study="tiny",
    row="sfedpo",
    column="digits-full",
    metric="accuracy",
    mean=51.0,
    spread=1.4142,
    seeds=(4, 5),
    values=(50.0, 52.0),
    rounds=2,
    published=50.0,
    published_spread=1.5,
    command="thalweg reproduce tiny --only sfedpo,digits-full --seeds 4,5",
    version=measured.__version__,
    settings="0123456789ab",
)


@pytest.fixture(autouse=True)
def built_in(monkeypatch):
    monkeypatch.setitem(STUDIES, "tiny", TINY)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone of the repository."""
    (tmp_path / "pyproject.toml").touch()
    folder = tmp_path / "src/thalweg/scenarios/studies/measured"
    folder.mkdir(parents=True)
    monkeypatch.setattr(measured, "FOLDER", folder)
    return folder


def test_finished_entries_are_stored_and_read_again(clone, tmp_path):
    result = reproduce(TINY, workers=1, out=tmp_path)
    plan = plan_study(TINY, out=tmp_path)
    saved = save_study(plan, result)
    assert saved.refused == []
    cells = read_measured(saved.file)
    assert [cell.row for cell in cells] == ["best", "plain, small", "sfedpo"]
    by_row = {cell.row: cell for cell in cells}
    (summary, *_) = result.summaries()["digits-full"]
    stored = by_row["sfedpo"]
    assert stored.mean == pytest.approx(100 * summary.accuracy.mean, abs=1e-4)
    assert stored.spread == pytest.approx(100 * summary.accuracy.std, abs=1e-4)
    assert (stored.seeds, stored.rounds, stored.metric) == ((4, 5), 2, "accuracy")
    assert (stored.published, stored.published_spread) == (50.0, 1.5)
    assert by_row["best"].values == stored.values
    assert by_row["plain, small"].published is None
    assert by_row["plain, small"].command == (
        "thalweg reproduce tiny --only 'plain, small,digits-full' --seeds 4,5"
    )
    assert find_outdated(cells) == []
    before = saved.file.read_bytes()
    save_study(plan, result)
    assert saved.file.read_bytes() == before


def test_unfinished_entries_are_refused(clone, tmp_path):
    some = plan_study(TINY, only=["sfedpo"], seeds=[4], out=tmp_path)
    reproduce(TINY, only=["sfedpo"], seeds=[4], workers=1, out=tmp_path)
    assert [cell.row for cell in save_study(some, read_study(some)).cells] == ["sfedpo"]
    whole = plan_study(TINY, out=tmp_path)
    saved = save_study(whole, read_study(whole))
    assert saved.cells == []
    assert "sfedpo on digits-full, seed 5: not run yet" in saved.refused
    assert [cell.seeds for cell in read_measured(saved.file)] == [(4,)]


def test_quick_runs_and_other_studies_are_refused(clone):
    with pytest.raises(ConfigError, match="expected --scale paper, got quick"):
        check_can_save(plan_study(TINY, scale="quick"))
    with pytest.raises(ConfigError, match="mine is not a built-in study"):
        check_can_save(plan_study(replace(TINY, name="mine")))
    check_can_save(plan_study(TINY, data="fashion-mnist"))


def test_installed_package_is_refused(clone, tmp_path):
    (tmp_path / "pyproject.toml").unlink()
    with pytest.raises(ConfigError, match="must be in a clone"):
        check_can_save(plan_study(TINY))


def test_new_seeds_are_added_to_a_cell_with_the_same_settings():
    new = replace(CELL, seeds=(5, 6), values=(53.0, 56.0))
    (merged,) = merge([CELL], [new], TINY)
    assert merged.seeds == (4, 5, 6)
    assert merged.values == (50.0, 53.0, 56.0)
    assert (merged.mean, merged.spread) == (53.0, 3.0)
    assert merged.command.endswith("--seeds 4,5,6")


@pytest.mark.parametrize(
    "change", [{"settings": "f" * 12}, {"version": "0.0.9"}, {"metric": "state_accuracy"}]
)
def test_cell_of_other_settings_is_replaced(change):
    new = replace(CELL, seeds=(6,), values=(60.0,))
    (merged,) = merge([replace(CELL, **change)], [new], TINY)
    assert (merged.seeds, merged.mean, merged.spread) == ((6,), 60.0, None)
    assert merged.command.endswith("--seeds 6,")


def test_order_of_saving_does_not_matter():
    other = replace(CELL, row="plain, small")
    assert merge([CELL], [other], TINY) == merge([other], [CELL], TINY)


def test_spread_may_be_the_bound_of_the_mean():
    (merged,) = merge([], [CELL], replace(TINY, spread="bound"))
    assert merged.spread == pytest.approx(
        12.7062, abs=1e-4
    )  # t(1) = 12.7062, times sqrt(2)/sqrt(2)


def test_file_is_read_as_it_was_written(tmp_path):
    cells = [CELL, replace(CELL, row='with "quotes", commas', spread=None, published=None)]
    write_measured(tmp_path / "tiny.csv", cells)
    assert read_measured(tmp_path / "tiny.csv") == cells
    assert read_measured(tmp_path / "other.csv") == []


def test_damaged_file_is_reported(tmp_path):
    (tmp_path / "tiny.csv").write_text("study,row\ntiny,sfedpo\n")
    with pytest.raises(ConfigError, match="not a file of measured cells"):
        read_measured(tmp_path / "tiny.csv")


@pytest.mark.parametrize(
    "mean, is_within", [(52.0, True), (52.9, True), (53.1, False), (46.9, False)]
)
def test_cell_is_within_two_points_or_two_spreads(mean, is_within):
    assert replace(CELL, mean=mean).is_within == is_within
    narrow = replace(CELL, mean=mean, published_spread=None)
    assert narrow.is_within == (mean == 52.0)
    assert not replace(CELL, mean=mean, published=None).is_within


def test_cells_of_changed_studies_are_outdated(clone):
    plan = plan_study(TINY)
    settings = measured._settings_of(plan)["sfedpo", "digits-full"]
    now = replace(CELL, settings=settings)
    assert find_outdated([now]) == []
    assert find_outdated([CELL]) == [CELL]
    removed = replace(now, column="digits-partial")
    assert find_outdated([now, removed]) == [removed]


def test_digest_does_not_depend_on_the_seed_but_on_the_metric():
    (first, *_) = plan_study(TINY, seeds=[7]).cells
    plan, column = first.job.plan, first.column
    digest = measured.digest_settings(plan, column, TINY)
    assert digest == measured.digest_settings(replace(plan, seed=8), column, TINY)
    other = replace(column, metric="state_accuracy")
    assert digest != measured.digest_settings(plan, other, TINY)
    assert digest != measured.digest_settings(plan, replace(column, until=1), TINY)


STORED = read_all_measured()


@pytest.mark.parametrize("name", STORED)
def test_stored_cells_have_the_settings_of_the_present_studies(name):
    outdated = [f"{cell.row} on {cell.column}" for cell in find_outdated(STORED[name])]
    assert outdated == [], "run `python tools/results.py --drop-outdated`, or measure them again"


@pytest.mark.parametrize("name", STORED)
def test_stored_cells_follow_from_their_values(name):
    study, cells = find_study_of_file(name), STORED[name]
    assert {cell.study for cell in cells} == {name}
    assert merge([], cells, study) == cells
