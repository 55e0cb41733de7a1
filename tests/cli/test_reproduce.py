"""`thalweg reproduce`."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from thalweg.cli.main import app
from thalweg.report.measured import read_all_measured


def test_reproduce_without_a_name_lists_studies(thalweg):
    listed = json.loads(thalweg("reproduce", "--json").stdout)
    assert listed["sfedpo-table-1"] == 480  # 20 rows, 8 scenarios, 3 seeds
    assert "sfedpo-ablation" in thalweg("reproduce").stdout


def test_study_writes_its_page_and_reuses_finished_runs(thalweg, tmp_path):
    words = [
        "reproduce",
        "sfedpo-table-7",
        "--data",
        "digits",
        "--only",
        "kl,l1",
        "--scale",
        "quick",
    ]
    before = thalweg(*words, "--show")
    assert before.returncode == 0, before.stderr
    assert "missing" in before.stdout
    done = thalweg(*words, "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "4 runs, 0 of them finished before" in done.stdout
    assert "with 1 worker\n" in done.stdout
    folder = tmp_path / "runs/reproduce-quick/sfedpo-table-7-digits/only-kl+l1"
    assert "Not comparable" in (folder / "index.html").read_text()
    assert "4 of them finished before" in " ".join(thalweg(*words).stdout.split())


MINE = """
from thalweg.scenarios.studies import Column, Row, Study
MINE = Study('mine', 'Mine', '', (Row('fedavg'), Row('sfedpo')),
    (Column('digits-full', ('rounds=1', 'capacity=24')),), (4, 5), 'fedavg')
"""


def test_shards_run_each_cell_once_and_the_last_one_writes_the_table(thalweg, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    words = ["reproduce", "mine.py:MINE", "--workers", "1", "--out", "o"]
    table = tmp_path / "o/mine/table.md"
    first = thalweg(*words, "--shard", "2/3")
    assert first.returncode == 0, first.stderr
    assert "1 run, 0 of them" in first.stdout
    assert "shard 2/3: 1 of 1 runs are done. 3 runs of all shards are missing" in first.stderr
    second = thalweg(*words, "--shard", "1/3")
    assert "2 runs, 0 of them" in second.stdout, "every third of four cells"
    assert not table.exists()
    last = thalweg(*words, "--shard", "3/3")
    assert last.returncode == 0, last.stderr
    assert "1 run, 0 of them" in last.stdout
    assert table.exists()
    assert "4 of them finished before" in " ".join(thalweg(*words).stdout.split())


def test_auto_is_compared_with_the_best_specialist(thalweg):
    words = ["reproduce", "auto-table", "--seeds", "3,4,5", "--workers", "1"]
    part = "auto,fedavg,stream-ours,warmstart,streams-synthetic 5%"
    before = thalweg(*words, "--only", part, "--show")
    assert "Within 0.5 points" not in before.stdout, "nothing to compare"
    done = thalweg(*words, "--only", part)
    assert done.returncode == 0, done.stderr
    assert "9 runs, 0 of them finished before" in done.stdout
    text = " ".join(done.stdout.split())
    assert "a: the world has no sessions" in text
    assert "auto and the best specialist" in text
    assert "of 1 comparisons" in text
    assert "target: at least 9 of 18" in text


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/2/3", "-1/2"])
def test_invalid_shard_is_rejected(thalweg, shard):
    done = thalweg("reproduce", "sfedpo-table-1", "--shard", shard)
    assert done.returncode == 2
    assert "expected I/N with I from 1 to N" in done.stderr


def test_unknown_study_gives_one_message(thalweg):
    done = thalweg("reproduce", "sfedpo-tabel-1")
    assert done.returncode == 2
    assert "Did you mean 'sfedpo-table-1'" in done.stderr


RUN_WITH_SIGINT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from thalweg.cli.main import main
main()
"""


def has_complete_round(folder: Path) -> bool:
    """Whether the run has started its second round, so that the first one is complete."""
    files = list(folder.glob("o/*/*/seed-4/metrics.jsonl"))
    return bool(files) and files[0].read_text().count("\n") >= 2


def test_printed_command_continues_an_interrupted_study(thalweg, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from thalweg.scenarios.studies import Column, Row, Study\n"
        "MINE = Study('mine', 'Mine', '', (Row('fedavg'),),\n"
        "    (Column('digits-full', ('rounds=200', 'capacity=24')),), (4,), 'fedavg')\n"
    )
    words = ["reproduce", "mine.py:MINE", "--workers", "1", "--out", "o"]
    running = subprocess.Popen(
        [sys.executable, "-c", RUN_WITH_SIGINT, *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not has_complete_round(tmp_path):
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert "0 of 1 runs are done" in errors
    assert "continue with: thalweg reproduce mine.py:MINE --out o" in errors
    assert "interrupted" in (tmp_path / "o/mine/index.html").read_text()
    (metrics,) = tmp_path.glob("o/*/*/seed-4/metrics.jsonl")
    before = metrics.read_text().splitlines()[0]
    done = thalweg("reproduce", "mine.py:MINE", "--out", "o")
    assert done.returncode == 0, done.stderr
    rows = metrics.read_text().splitlines()
    assert len(rows) == 200
    assert rows[0] == before  # with the same seconds, so the round was not repeated


def test_status_lists_all_papers(thalweg):
    listed = json.loads(thalweg("reproduce", "--status", "--json").stdout)
    by_table = {(each["paper"], each["table"]): each for each in listed}
    assert by_table["dpcs", "Table I"]["cells"] == 24
    assert by_table["churn", "Table 10"]["command"] is None
    fields = ["paper", "table", "content", "cells", "run", "within", "tau"]
    assert list(listed[0]) == [*fields, "scale", "seeds", "command", "tau_of"]
    shown = thalweg("reproduce", "--status")
    assert shown.returncode == 0, shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "sfedpo-figure-2-fashion-mnist" in shown.stdout


def test_status_fits_80_columns_with_cells_on_other_data(monkeypatch):
    cells = read_all_measured()
    (cell, *_) = cells["sfedpo-table-1"]
    for column, number in (("fashion-mnist-full", None), ("cifar10-cnn-full", 67.45)):
        more = replace(cell, row="noise 0.00", column=column, published=number)
        cells.setdefault("sfedpo-table-3", []).append(more)
    monkeypatch.setattr("thalweg.cli.reproduce.read_all_measured", lambda: cells)
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["reproduce", "--status"])
    assert "reduced + " in done.output
    assert "sfedpo-figure-2-fashion-mnist" in done.output
    assert max(map(len, done.output.splitlines())) <= 80


def test_options_of_stored_cells_are_checked(thalweg):
    both = thalweg("reproduce", "dpcs-table-1", "--status")
    assert both.returncode == 2
    assert "--status lists all papers" in both.stderr
    unnamed = thalweg("reproduce", "--save")
    assert unnamed.returncode == 2
    assert "name one: thalweg reproduce STUDY" in unnamed.stderr
    quick = thalweg("reproduce", "dpcs-table-1", "--save", "--scale", "quick", "--show")
    assert quick.returncode == 2
    assert "expected --scale paper, got quick" in quick.stderr
