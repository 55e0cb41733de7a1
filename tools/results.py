"""Write tables and numbers of the docs from the stored cells of the studies.

    python tools/results.py                     # after `thalweg reproduce STUDY --save`
    python tools/results.py --drop-outdated     # also remove cells of other settings

`docs/results/README.md` is written whole. On other pages the text between two comments is replaced:

    <!-- table STUDY [--only WORDS] -->  ...  <!-- end table -->
    <!-- value STUDY [--only WORDS] [--minus ROW] [--show WHAT] -->...<!-- end value -->
    <!-- comparison specialists|parts|targets -->  ...  <!-- end comparison -->

`--only` selects rows and columns as in `thalweg reproduce`. A table shows our value, the paper's
and the difference, and marks cells that were not run; rows and columns of which nothing was run are
listed below it. The value of one cell is its mean ± spread, that of several is their range, with
the number of cells if not all of them were run. `--show published` shows the paper's numbers,
`--show difference` ours minus the paper's, `--show tau` Kendall's tau of the row order, averaged
over columns. With `--minus ROW` the numbers of that row are subtracted; with several seeds only
those that both cells have count. A comparison is that of `report.auto_table`: auto and the best
specialist, auto and auto without its parts, or the targets.
A test compares the pages with the cells.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from thalweg.core.errors import require
from thalweg.report.auto_table import (
    compare_auto,
    describe_targets,
    tabulate_comparison,
    tabulate_parts,
)
from thalweg.report.measured import FOLDER as CELLS
from thalweg.report.measured import (
    MeasuredCell,
    find_outdated,
    find_study_of_file,
    merge,
    read_all_measured,
    write_measured,
)
from thalweg.report.numbers import points
from thalweg.report.render import escape_markdown, markdown_row
from thalweg.report.status import (
    MIN_ROWS,
    ExhibitStatus,
    format_command,
    kendall_tau,
    make_status,
    to_texts,
)
from thalweg.report.study_table import MAX_COLUMNS
from thalweg.report.table import FAR_MARK
from thalweg.scenarios.studies import Study, auto, restrict_study, select_part, split_words
from thalweg.scenarios.studies.papers import PAPERS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/results/README.md"
NOT_RUN = "not run"
FENCE = r"^```.*?^```$"
BLOCK = re.compile(
    rf"{FENCE}|(?P<start><!-- (?P<kind>table|value|comparison) (?P<words>[^>]*?) -->)"
    r"(?:(?!<!-- (?:table|value|comparison) ).)*?(?P<end><!-- end (?P=kind) -->)",
    re.DOTALL | re.MULTILINE,
)
Cells = Mapping[str, Sequence[MeasuredCell]]

INTRODUCTION = """\
# Results

This page is written by `python tools/results.py` from the stored cells in
`src/thalweg/scenarios/studies/measured`; do not edit it. `thalweg reproduce --status` prints the
same numbers, and `thalweg reproduce STUDY --save` stores cells
([reproduce a table](../reproduce.md#stored-cells)).

Pages with discussions: {pages}.

- **cells**: accuracies that the paper prints. **run**: those that were measured and stored; of a
  figure, the points of its study.
- **within**: within two points or two of the paper's standard deviations.
- **tau**: Kendall's tau of the order of our rows against the paper's, averaged over columns with at
  least three rows.
- **scale**: that of the paper, reduced (a smaller net, fewer clients, samples or rounds), or both;
  other data: measured on data for which the paper has no number.
- If several rows or scales are compared with one published cell, the first one in the study counts.
"""
HEADINGS = ("table", "content", "cells", "run", "within", "tau", "scale", "seeds", "command")


def make_page(cells: Cells) -> str:
    """Return the text of `docs/results/README.md`."""
    files = sorted(file for file in PAGE.parent.glob("*.md") if file != PAGE)
    links = [f"[{_read_title(file)}]({file.name})" for file in files]
    found = make_status(cells)
    sections = [_wrap(INTRODUCTION.format(pages=", ".join(links)))]
    for paper, about in PAPERS.items():
        mine = [each for each in found if each.paper == paper]
        lines = [markdown_row(HEADINGS), markdown_row(["---", "---", *["---:"] * 4, *["---"] * 3])]
        lines += [markdown_row(_make_row(each)) for each in mine]
        rest = "; ".join(f"{e.name} ({e.content})" for e in about.exhibits if not e.has_results)
        after = _wrap(f"Without results of experiments: {rest}.")
        sections.append("\n".join([f"## {about.title}", "", *lines, "", after]))
    return "\n\n".join(section.rstrip() for section in sections) + "\n"


def _read_title(file: Path) -> str:
    return file.read_text().partition("\n")[0].removeprefix("# ")


def _make_row(status: ExhibitStatus) -> list[str]:
    commands = "<br>".join(f"`{format_command(study)}`" for study in status.studies)
    texts = [text or "–" for text in to_texts(status)]
    return [status.table, status.content, *texts, commands or "no study"]


def _wrap(text: str, indent: str = "") -> str:
    """Wrap the lines of prose that are longer than 100 characters; indent the new lines."""
    lines = []
    for line in text.splitlines():
        while len(line) > 100:
            cut = line.rindex(" ", 0, 101)
            lines.append(line[:cut])
            line = indent + line[cut + 1 :]
        lines.append(line)
    return "\n".join(lines)


def fill_page(text: str, cells: Cells) -> str:
    """Return a page with the tables and values of the stored cells; code blocks do not change."""
    makers: dict[str, Callable[[list[str], Cells], str]] = {
        "table": make_table,
        "value": make_value,
        "comparison": make_comparison,
    }

    def fill(match: re.Match[str]) -> str:
        if match["kind"] is None:
            return match[0]
        made = makers[match["kind"]](shlex.split(match["words"]), cells)
        return f"{match['start']}{made}{match['end']}"

    starts = re.findall(r"<!-- (?:table|value|comparison) .*?-->", BLOCK.sub("", text))
    require(not starts, f"{', '.join(starts)}: the end comment is missing (<!-- end table -->).")
    return BLOCK.sub(fill, text)


def make_table(words: list[str], cells: Cells) -> str:
    """Return a command and a Markdown table of the stored rows and columns of a study."""
    arguments = _parse(words)
    study = _select(arguments)
    keys = _keys(study)
    stored = {(c.row, c.column): c for c in cells.get(arguments.study, ())}
    stored = {key: cell for key, cell in stored.items() if key in keys}
    command = format_command(arguments.study)
    command += f" --only {shlex.quote(arguments.only)}" if arguments.only else ""
    lines = ["```sh", command, "```", ""]
    if stored:
        columns = {column for _, column in stored}
        run = select_part(
            study,
            [
                row
                for row in study.rows
                if any(row.label == each for each, _ in stored)
                or not any((row.label, column) in keys for column in columns)  # with the reasons
            ],
            [column for column in study.columns if column.label in columns],
        )
        lines += [
            *_make_grid(run, study, stored),
            "",
            _wrap(_make_legend(run, list(stored.values()))),
        ]
        lines += [""] if (missing := _describe_missing(study, run)) else []
        lines += [_wrap(missing)] if missing else []
    else:
        lines.append("Not run.")
    return "\n\n" + "\n".join(lines) + "\n\n"


def _make_grid(
    study: Study, whole: Study, stored: Mapping[tuple[str, str], MeasuredCell]
) -> list[str]:
    """Return the lines of the table of a part of a study; with many columns it is transposed."""
    headings = _shorten(study.column_labels, whole)
    body = [
        [_make_entry(study, row, column, stored) for column in study.column_labels]
        for row in study.row_labels
    ]
    names, corner = study.row_labels, "recipe"
    if len(headings) > max(MAX_COLUMNS, len(names)):
        names, headings, corner = headings, names, "column"
        body = [list(each) for each in zip(*body, strict=True)]
    return [
        markdown_row([corner, *map(escape_markdown, headings)]),
        markdown_row(["---", *["---:"] * len(headings)]),
        *(
            markdown_row([escape_markdown(name), *map(escape_markdown, entries)])
            for name, entries in zip(names, body, strict=True)
        ),
    ]


def _describe_missing(study: Study, run: Study) -> str:
    """Return the rows and columns of which nothing was run; empty if there are none."""
    rows = [label for label in study.row_labels if label not in run.row_labels]
    columns = [label for label in study.column_labels if label not in run.column_labels]
    parts = [
        f"{what} {', '.join(f'`{label}`' for label in labels)}"
        for what, labels in (("rows", rows), ("columns", columns))
        if labels
    ]
    return f"Not run: {'; '.join(parts)}." if parts else ""


def _make_entry(
    study: Study, row: str, column: str, stored: Mapping[tuple[str, str], MeasuredCell]
) -> str:
    if (row, column) not in _keys(study):
        return f"– {study.mark_of(row, column)}".strip()
    number, cell = study.published.get((row, column)), stored.get((row, column))
    if cell is None:
        return NOT_RUN if number is None else f"{NOT_RUN} ({number.mean:.2f})"
    text = _format_mean(cell)
    if number is None:
        return text
    gap = cell.mean - number.mean
    is_far = number.spread is not None and abs(gap) > 2 * number.spread
    return f"{text} ({number.mean:.2f}, {points(gap)}{FAR_MARK if is_far else ''})"


def _format_mean(cell: MeasuredCell) -> str:
    return f"{cell.mean:.2f}" + ("" if cell.spread is None else f" ± {cell.spread:.2f}")


def _make_legend(study: Study, shown: Sequence[MeasuredCell]) -> str:
    after = "95 % bound of the mean" if study.spread == "bound" else "standard deviation"
    seeds = sorted({cell.seeds for cell in shown})
    text = f"Mean ± {after}"
    if len(seeds) == 1:
        text = f"{text} over seeds" if seeds[0][1:] else "Seed"
        text += f" {', '.join(map(str, seeds[0]))}"
    elif seeds:
        numbers = sorted(len(each) for each in seeds)
        text += (
            f" over {numbers[0]} to {numbers[-1]} seeds"
            if numbers[0] < numbers[-1]
            else (f" over {numbers[0]} seeds")
        )
    if any(key in study.published for key in _keys(study)):
        text += (
            "; in brackets: the paper's number, and ours minus the paper's. "
            f"{escape_markdown(FAR_MARK)}: more than two of the paper's standard deviations"
        )
    return f"{text}.{study.describe_left_out()}"


def make_value(words: list[str], cells: Cells) -> str:
    """Return a mean ± spread, or a range: ``0.15 to 0.82``.

    A range of which a part was run has the number of its cells; ``not run`` if there is none.
    """
    arguments = _parse(words)
    study = _select(arguments)
    stored = {(cell.row, cell.column): cell for cell in cells.get(arguments.study, ())}
    if arguments.show == "tau":
        return _make_tau(study, stored)
    whole = find_study_of_file(arguments.study)
    means = {key: cell.mean for key, cell in stored.items()}
    numbers = {key: number.mean for key, number in whole.published.items()}
    if arguments.minus:
        require(
            arguments.minus in whole.row_labels,
            f"value {shlex.join(words)}: expected a row of {whole.name} after --minus, got "
            f"{arguments.minus}.",
        )
        means = _subtract_seeds(stored, arguments.minus)
        numbers = _subtract_row(numbers, arguments.minus)
    keys = [key for key in _keys(study) if key[0] != arguments.minus]
    keys = [key for key in keys if arguments.show == "mean" or key in numbers]
    require(bool(keys), f"value {shlex.join(words)}: no cell has a published number.")
    run = [key for key in keys if key in means or arguments.show == "published"]
    if not run:
        return NOT_RUN
    if arguments.show == "mean" and len(keys) == 1 and not arguments.minus:
        return _format_mean(stored[keys[0]])
    found = []
    for key in run:
        ours, theirs = means.get(key, 0.0), numbers.get(key, 0.0)
        found.append({"mean": ours, "published": theirs}.get(arguments.show, ours - theirs))
    has_sign = arguments.minus or arguments.show == "difference"
    show = points if has_sign else "{:.2f}".format
    low, high = show(min(found)), show(max(found))
    text = low if low == high else f"{low} to {high}"
    return text if len(run) == len(keys) else f"{text} ({len(run)} of {len(keys)} cells)"


def _subtract_row(
    numbers: Mapping[tuple[str, str], float], row: str
) -> dict[tuple[str, str], float]:
    """Return the numbers minus that of a row in the same column, where the row has one."""
    return {key: n - numbers[row, key[1]] for key, n in numbers.items() if (row, key[1]) in numbers}


def _subtract_seeds(
    stored: Mapping[tuple[str, str], MeasuredCell], row: str
) -> dict[tuple[str, str], float]:
    """Return mean differences of cells and that of a row in the same column, over shared seeds."""
    found = {}
    for key, cell in stored.items():
        other = stored.get((row, key[1]))
        values = dict(zip(cell.seeds, cell.values, strict=True))
        others = dict(zip(other.seeds, other.values, strict=True)) if other is not None else {}
        if shared := values.keys() & others.keys():
            found[key] = fmean(values[seed] - others[seed] for seed in shared)
    return found


def _make_tau(study: Study, stored: Mapping[tuple[str, str], MeasuredCell]) -> str:
    """Return Kendall's tau of our row order against the paper's, averaged over columns."""
    taus = []
    for column in study.column_labels:
        keys = [(row, column) for row in study.row_labels if (row, column) in stored]
        pairs = [(stored[k].mean, study.published[k].mean) for k in keys if k in study.published]
        tau = kendall_tau(pairs) if len(pairs) >= MIN_ROWS else None
        taus += [] if tau is None else [tau]
    return f"{fmean(taus):.2f}" if taus else NOT_RUN


def make_comparison(words: list[str], cells: Cells) -> str:
    """Return a part of the comparison of `auto` with the other rows of its study as Markdown."""
    require(
        words in (["specialists"], ["parts"], ["targets"]),
        f"comparison {shlex.join(words)}: expected specialists, parts or targets.",
    )
    stored = cells.get(auto.NAME, ())
    found = compare_auto(stored)
    if not found:
        return f"\n\n{NOT_RUN}\n\n"
    if words == ["targets"]:
        items = (_wrap(f"- {sentence}", indent="  ") for sentence in describe_targets(found))
        return "\n\n" + "\n".join(items) + "\n\n"
    columns = tabulate_comparison(found) if words == ["specialists"] else tabulate_parts(stored)
    lines = [
        markdown_row([escape_markdown(column.heading) for column in columns]),
        markdown_row(["---", *["---:"] * (len(columns) - 1)]),
        *(
            markdown_row(list(map(escape_markdown, entries)))
            for entries in zip(*(column.entries for column in columns), strict=True)
        ),
    ]
    return "\n\n" + "\n".join(lines) + "\n\n"


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="<!-- table|value -->")
    parser.add_argument("study")
    parser.add_argument("--only", default="")
    parser.add_argument("--minus", default="")
    parser.add_argument(
        "--show", choices=("mean", "published", "difference", "tau"), default="mean"
    )
    return parser.parse_args(words)


def _select(arguments: argparse.Namespace) -> Study:
    study = find_study_of_file(arguments.study)
    words = split_words([arguments.only], study)
    return restrict_study(study, words) if words else study


def _keys(study: Study) -> set[tuple[str, str]]:
    return {(row.label, column.label) for column in study.columns for row in study.rows_of(column)}


def _shorten(labels: list[str], study: Study) -> list[str]:
    """Leave out the scenario if all columns of the study have the same one and a note."""
    scenarios = {column.scenario for column in study.columns}
    notes = {column.label: column.note for column in study.columns}
    is_clear = len(scenarios) == 1 and all(notes.values()) and len(notes) > 1
    return [notes[label] for label in labels] if is_clear else labels


def find_pages() -> list[Path]:
    """Return the pages that may have tables and values between comments."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drop-outdated", action="store_true")
    arguments = parser.parse_args(words)
    for name, stored in read_all_measured().items():
        outdated = find_outdated(stored) if arguments.drop_outdated else []
        kept = [cell for cell in stored if cell not in outdated]
        if outdated:
            print(f"{name}: removed {len(outdated)} of {len(stored)} cells")
        if kept:
            write_measured(CELLS / f"{name}.csv", merge([], kept, find_study_of_file(name)))
        else:
            (CELLS / f"{name}.csv").unlink()
    cells = read_all_measured()
    PAGE.write_text(make_page(cells), encoding="utf-8")
    for page in find_pages():
        before = page.read_text(encoding="utf-8")
        if (after := fill_page(before, cells)) != before:
            page.write_text(after, encoding="utf-8")
            print(f"updated {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
