"""Pages in a real browser: no console messages, tables and figures, no overflowing text."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from thalweg.core.published import Published
from thalweg.report import page
from thalweg.report.study import StudyResult, Timing
from thalweg.report.study_page import study_page
from thalweg.scenarios.studies import Column, Row, Study

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTH = 1280
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

# Runs in a copy of the page without its content security policy, and writes results to the page.
MEASURE = """<script>addEventListener("load", () => {
  const wide = [], seen = e => e.textContent.trim().slice(0, 60);
  for (const e of document.querySelectorAll("main, main *:not(svg *):not(pre)"))
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0 && !e.closest("pre")
        && getComputedStyle(e).display != "inline") wide.push(e.tagName + ": " + seen(e));
  for (const svg of document.querySelectorAll("svg")) {
    const box = svg.getBoundingClientRect();
    for (const t of svg.querySelectorAll("text")) {
      const r = t.getBoundingClientRect();
      if (r.right > box.right + 1 || r.left < box.left - 1 || r.bottom > box.bottom + 1)
        wide.push("svg text: " + seen(t));
    }
  }
  const values = [];  // what the pointer meets at points of the curves and marks of the timeline
  const marks = [...document.querySelectorAll("figure svg circle:not(.point)")];
  for (const c of [...marks, ...[...document.querySelectorAll(".point")].slice(0, 30)]) {
    c.scrollIntoView({block: "center", inline: "center"});
    const r = c.getBoundingClientRect();
    const e = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
    values.push(e?.querySelector("title")?.textContent ?? "nothing at " + c.outerHTML);
  }
  const found = {wide, values, page: document.documentElement.scrollWidth,
    tables: document.querySelectorAll("table").length,
    figures: document.querySelectorAll("figure svg").length};
  const out = document.createElement("pre");
  out.id = "found"; out.textContent = JSON.stringify(found); document.body.append(out);
})</script>"""


def chromium(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    flags = (
        "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --enable-logging=stderr "
        f"--window-size={WIDTH},900"
    )
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [str(CHROMIUM), *flags.split(), profile, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def make_comparison(cell) -> str:
    """All sections of a comparison: sessions, drifts, alarms, banks, policies, unfinished runs."""

    def rows(top: float) -> list[dict]:
        return [
            {
                "round": rnd,
                "accuracy": top * rnd / 12,
                "session_accuracy": top * rnd / 12,
                "state_accuracy": top * rnd / 12,
                "worst_state_accuracy": top * rnd / 24,
                "balanced_accuracy": top * rnd / 16,
                "prequential_accuracy": top / 2,
                "session": (rnd - 1) // 4,
                "session_round": (rnd - 1) % 4 + 1,
                "bytes_up": 10**7,
                "bytes_down": 10**7,
                "models": 1 + rnd // 4,
                "rejected": rnd % 3,
                "update_epsilon": rnd / 7,
                **({"drifted": 1, "drifts": {"real": [1]}} if rnd == 7 else {}),
                **({"alarms": [1]} if rnd == 8 else {}),
            }
            for rnd in range(1, 13)
        ]

    alarms = {"raised": 5, "drifts": 4, "missed": 1, "false_alarms": 2, "mean_delay": 1.5}
    names = [f"sfedpo,memory=uniform-ratio,variant={number}" for number in range(7)]
    cells = [
        cell(name, seed, rows=rows(0.6 + 0.05 * place + 0.01 * seed), alarms=alarms)
        for place, name in enumerate(names)
        for seed in range(3)
    ]
    cells += [
        cell("fedogd", 0, status="failed", reason="the loss is nan " * 20, rows=rows(0.5)[:2])
    ]
    return page("Comparison on digits-full", cells, "Ten clients.\nTwo states.")


def make_study(cell) -> str:
    """Three rows, three columns that sweep a value, published numbers, one missing run."""
    recipes = ["sfedpo", "fedavg", "adaptive-fedavg"]
    columns = [Column("digits-full", (f"world.num_clients={n}",), f"N={n}") for n in (5, 10, 20)]
    study = Study(
        "tiny",
        "Tiny: three recipes on three scenarios",
        "Made up for a test.",
        tuple(Row(name) for name in recipes),
        tuple(columns),
        (0, 1, 2),
        "sfedpo",
        {(name, columns[0].label): Published(70.0, 0.5) for name in recipes},
    )
    cells = [
        cell(name, seed, 0.5 + 0.1 * i + 0.05 * j + 0.01 * seed, scenario=column.label)
        for i, name in enumerate(recipes)
        for j, column in enumerate(columns)
        for seed in range(3)
    ]
    cells[-1] = cell(recipes[-1], 2, status="missing", rows=[], scenario=columns[-1].label)
    return study_page(
        StudyResult(
            study=study,
            scale="quick",
            folder=Path("runs/reproduce-quick/tiny"),
            command="thalweg reproduce tiny --scale quick",
            cells=cells,
            timings=(Timing(100, 12.5, 7.0, 2),),
        )
    )


@pytest.mark.parametrize(
    "make", [make_comparison, pytest.param(make_study, marks=pytest.mark.slow)]
)
def test_page_opens_without_errors_and_without_overflow(make, cell, tmp_path):
    text = make(cell)
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    shot = tmp_path / "page.png"
    done = chromium(tmp_path, f"--screenshot={shot}", (tmp_path / "page.html").as_uri())
    assert "CONSOLE" not in done.stderr, "a message of the page itself"
    assert shot.stat().st_size > 10_000
    without_policy = re.sub(r"<meta http-equiv=[^>]*>", "", text)
    (tmp_path / "copy.html").write_text(without_policy + MEASURE, encoding="utf-8")
    dom = chromium(tmp_path, "--dump-dom", (tmp_path / "copy.html").as_uri()).stdout
    measured = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert measured is not None
    found = json.loads(unescape(measured[1]))
    assert found["tables"] >= 3
    assert found["figures"] >= 1
    assert found["page"] <= WIDTH
    assert len(found["values"]) >= 9
    assert all(re.search(r", (round|N) \d+: (\d|alarm)", value) for value in found["values"])
    assert ("client 1, round 8: alarm" in found["values"]) is (make is make_comparison)
    assert found["wide"] == []
