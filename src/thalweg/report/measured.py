"""Measured cells of studies, stored as small CSV files in the source tree.

``thalweg reproduce STUDY --save`` writes them; the status report and the tables in ``docs`` read
them. One file per study, one line per row and column.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

from thalweg import __version__
from thalweg.core.errors import ConfigError, require
from thalweg.core.published import Published
from thalweg.engine.plan import AnyPlan, flatten_plan
from thalweg.report.cells import Cell, scores
from thalweg.report.render import csv_text, write_report_file
from thalweg.report.study import StudyPlan, StudyResult, plan_study
from thalweg.report.summary import Summary, bound_95, spread
from thalweg.scenarios import studies
from thalweg.scenarios.studies import STUDIES, Column, Study, replace_data, select_part

FOLDER = Path(studies.__file__).parent / "measured"
NOTHING: tuple[object, ...] = ("none", False, "", [], 0.0)  # values of options that are not used


@dataclass(frozen=True)
class MeasuredCell:
    """One entry of a study: our number, the published one, and what it was measured with.

    Numbers have the unit of tables: accuracies are in per cent.
    """

    study: str
    row: str
    column: str
    metric: str
    mean: float
    spread: float | None
    """Standard deviation over seeds, or the 95 % bound of the mean; None: one seed."""
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    """One value per seed."""
    rounds: int
    published: float | None
    published_spread: float | None
    command: str
    version: str
    settings: str
    """Digest of the plan without its seed, and of what the column shows of the run."""

    @property
    def is_within(self) -> bool:
        """Whether the mean is within two points or two of the paper's standard deviations."""
        if self.published is None:
            return False
        return abs(self.mean - self.published) <= max(2.0, 2 * (self.published_spread or 0.0))


class Saved(NamedTuple):
    """What was stored, and one line for each entry that was not."""

    file: Path
    cells: list[MeasuredCell]
    refused: list[str]


def save_study(plan: StudyPlan, result: StudyResult) -> Saved:
    """Store the finished entries of a study."""
    check_can_save(plan)
    cells, refused = measure_study(plan, result)
    file = FOLDER / f"{plan.study.name}.csv"
    if cells:
        write_measured(file, merge(read_measured(file), cells, plan.study))
    return Saved(file, cells, refused)


def check_can_save(plan: StudyPlan) -> None:
    """Reject cells that must not be stored, before anything runs."""
    require(
        plan.scale == "paper",
        f"--save stores numbers that are compared with the paper; expected --scale paper, got "
        f"{plan.scale}. Leave out --save or --scale.",
    )
    find_study_of_file(plan.study.name)
    root = FOLDER.parents[4]
    require(
        (root / "pyproject.toml").exists(),
        f"--save writes to {FOLDER}, which must be in a clone of the repository, but {root} has no "
        "pyproject.toml. Install the clone (pip install --editable .) and run the command again.",
    )


def find_study_of_file(name: str) -> Study:
    """Return a built-in study by name, also on another data set, such as ``dpcs-table-1-digits``.

    >>> find_study_of_file("sfedpo-table-3-digits").columns[0].scenario
    'digits-full'
    """
    study, data = split_name(name)
    return replace_data(STUDIES[study], data) if data else STUDIES[study]


def split_name(name: str) -> tuple[str, str]:
    """Return the name of a built-in study and the data set that replaces the study's, if any.

    >>> split_name("sfedpo-table-3"), split_name("sfedpo-table-3-digits")
    (('sfedpo-table-3', ''), ('sfedpo-table-3', 'digits'))
    """
    if name in STUDIES:
        return name, ""
    found = [study for study in STUDIES if name.startswith(f"{study}-")]
    if not found:
        raise ConfigError(
            f"{name} is not a built-in study; expected one of {', '.join(STUDIES)}. Only these are "
            "stored in the repository."
        )
    study = max(found, key=len)
    return study, name.removeprefix(f"{study}-")


def measure_study(plan: StudyPlan, result: StudyResult) -> tuple[list[MeasuredCell], list[str]]:
    """Return the entries whose seeds are all finished, and a line for each of the others."""
    study, settings = plan.study, _settings_of(plan)
    columns = {column.label: column for column in study.columns}
    found, refused = [], []
    for label, summaries in result.summaries().items():
        runs: dict[str, list[Cell]] = {}
        for cell in result.cells_of(label):
            runs.setdefault(cell.recipe, []).append(cell)
        for summary in summaries:
            cells = runs[summary.recipe]
            if unfinished := summary.unfinished_cells:
                seeds = ", ".join(str(cell.seed) for cell in unfinished)
                reason = unfinished[0].reason or unfinished[0].status
                refused.append(f"{summary.recipe} on {label}, seed {seeds}: {reason}")
            elif summary.main is None:
                metric = study.metric_of(columns[label])
                refused.append(f"{summary.recipe} on {label}: the runs have no {metric}")
            else:
                digest = settings[summary.recipe, label]
                found.append(_measure(study, columns[label], summary, cells, digest))
    return found, refused


def _measure(
    study: Study, column: Column, summary: Summary, cells: Sequence[Cell], settings: str
) -> MeasuredCell:
    scale = summary.shown_metric.scale
    values = {cell.seed: scores(cell)[summary.main_metric] for cell in cells}
    entry = MeasuredCell(
        study=study.name,
        row=summary.recipe,
        column=column.label,
        metric=study.metric_of(column),
        mean=0.0,
        spread=None,
        seeds=(),
        values=(),
        rounds=max(cell.rows[-1]["round"] for cell in cells),
        published=None,
        published_spread=None,
        command="",
        version=__version__,
        settings=settings,
    )
    known = {seed: round(scale * value, 4) for seed, value in values.items() if value is not None}
    return _with_values(entry, known, study)


def _with_values(cell: MeasuredCell, values: Mapping[int, float], study: Study) -> MeasuredCell:
    """Return a cell with other seeds, and what follows from them and from the study."""
    seeds = tuple(sorted(values))
    found = spread(values[seed] for seed in seeds)
    assert found is not None
    shown = bound_95(found) if study.spread == "bound" else found
    assert shown is not None
    number = study.published.get((cell.row, cell.column), Published(0.0))
    has_number = (cell.row, cell.column) in study.published
    only = f"{cell.row},{cell.column}"
    numbers = ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")
    name, data = split_name(study.name)
    words = ["thalweg", "reproduce", name, *(["--data", data] if data else [])]
    return replace(
        cell,
        mean=round(found.mean, 4),
        spread=None if shown.std is None else round(shown.std, 4),
        seeds=seeds,
        values=tuple(values[seed] for seed in seeds),
        published=number.mean if has_number else None,
        published_spread=number.spread if has_number else None,
        command=shlex.join([*words, "--only", only, "--seeds", numbers]),
    )


def _settings_of(plan: StudyPlan) -> dict[tuple[str, str], str]:
    """Return a digest for each entry (row, column) of a study."""
    found = {
        (cell.row.label, cell.column.label): digest_settings(cell.job.plan, cell.column, plan.study)
        for cell in plan.cells
    }
    for row in plan.study.rows:
        for column in plan.study.columns if row.best_of else ():
            parts = [found.get((other, column.label), "") for other in row.best_of]
            found[row.label, column.label] = _digest(parts)
    return found


def digest_settings(plan: AnyPlan, column: Column, study: Study) -> str:
    """Return a digest of all that determines an entry, except its seeds.

    Options that are not used are left out, so that a new option does not change the digests of
    cells that do not use it.
    """
    settings = flatten_plan(plan)
    del settings["seed"]
    used = {name: value for name, value in settings.items() if value not in NOTHING}
    shown = (column.until, column.after, column.session, column.step, column.task)
    metric = study.metric_of(column)
    return _digest([sorted(used.items()), shown, metric, column.assignment if column.task else ""])


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


def merge(
    old: Iterable[MeasuredCell], new: Iterable[MeasuredCell], study: Study
) -> list[MeasuredCell]:
    """Return stored and new cells, sorted, with the present numbers of the paper.

    A new cell replaces a stored one of other settings or of another version; otherwise it adds its
    seeds, and replaces the values of seeds that both have.
    """
    cells: dict[tuple[str, str], MeasuredCell] = {}
    for cell in (*old, *new):
        stored = cells.get((cell.row, cell.column))
        values = dict(zip(cell.seeds, cell.values, strict=True))
        if stored is not None and _is_comparable(stored, cell):
            values = dict(zip(stored.seeds, stored.values, strict=True)) | values
        cells[cell.row, cell.column] = _with_values(cell, values, study)
    return [cells[key] for key in sorted(cells)]


def _is_comparable(stored: MeasuredCell, cell: MeasuredCell) -> bool:
    return (stored.settings, stored.version, stored.metric, stored.rounds) == (
        cell.settings,
        cell.version,
        cell.metric,
        cell.rounds,
    )


def find_outdated(cells: Sequence[MeasuredCell]) -> list[MeasuredCell]:
    """Return the cells of one study that were measured with other settings than its present ones.

    Only the rows and columns of these cells are planned. The data of the study are read if the
    number of rounds follows from them.
    """
    if not cells:
        return []
    study = find_study_of_file(cells[0].study)
    rows = {cell.row for cell in cells}
    rows |= {other for row in study.rows if row.label in rows for other in row.best_of}
    columns = {cell.column for cell in cells}
    part = select_part(
        study,
        [row for row in study.rows if row.label in rows],
        [column for column in study.columns if column.label in columns],
    )
    now = _settings_of(plan_study(part)) if part.rows and part.columns else {}
    return [cell for cell in cells if now.get((cell.row, cell.column)) != cell.settings]


def read_all_measured() -> dict[str, list[MeasuredCell]]:
    """Return the stored cells by study."""
    return {file.stem: read_measured(file) for file in sorted(FOLDER.glob("*.csv"))}


def read_measured(file: Path) -> list[MeasuredCell]:
    """Read the stored cells of a study; none if there is no file."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return [_parse(record, file) for record in csv.DictReader(lines)]


def _parse(record: Mapping[str, str], file: Path) -> MeasuredCell:
    def optional(name: str) -> float | None:
        return float(record[name]) if record[name] else None

    try:
        texts = {name: record[name] for name in ("study", "row", "column", "metric")}
        return MeasuredCell(
            **texts,
            mean=float(record["mean"]),
            spread=optional("spread"),
            seeds=tuple(map(int, record["seeds"].split())),
            values=tuple(map(float, record["values"].split())),
            rounds=int(record["rounds"]),
            published=optional("published"),
            published_spread=optional("published_spread"),
            command=record["command"],
            version=record["version"],
            settings=record["settings"],
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        names = ", ".join(field.name for field in fields(MeasuredCell))
        raise ConfigError(
            f"{file} is not a file of measured cells ({error}); expected the fields {names}. "
            "Restore it from the repository."
        ) from error


def write_measured(file: Path, cells: Sequence[MeasuredCell]) -> None:
    """Write the cells of a study."""
    write_report_file(file, csv_text([_to_record(cell) for cell in cells]).encode())


def _to_record(cell: MeasuredCell) -> dict[str, str]:
    record = {name: "" if value is None else value for name, value in asdict(cell).items()}
    record |= {
        "mean": f"{cell.mean:.4f}",
        "spread": "" if cell.spread is None else f"{cell.spread:.4f}",
        "seeds": " ".join(map(str, cell.seeds)),
        "values": " ".join(f"{value:.4f}" for value in cell.values),
    }
    return {name: str(value) for name, value in record.items()}
