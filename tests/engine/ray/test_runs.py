"""Runs on a Ray cluster that a command starts on this machine."""

import json
import os
import subprocess
import sys

import pytest

ENVIRONMENT = {**os.environ, "COLUMNS": "200"}


def thalweg(folder, *words):
    """Run a command as a process of its own: Ray changes the process that uses it."""
    done = subprocess.run(
        [sys.executable, "-m", "thalweg", *words],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def read_metrics(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if "seconds" not in k} for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ("fedavg", []),
        ("sfedpo", []),
        ("fedprox", []),
        ("fedavg", ["--set", "serving=best-recent", "--set", "server=averaged"]),
    ],
)
def test_run_on_ray_has_the_same_bits_and_the_same_plan(tmp_path, recipe, more):
    pytest.importorskip("ray", reason="the ray extra is not installed")
    words = ["run", recipe, "--on", "digits-partial", "--rounds", "3", *more]
    thalweg(tmp_path, *words, "--out", "here")
    thalweg(tmp_path, *words, "--out", "there", "--engine", "ray", "--workers", "2")
    here, there = tmp_path / "here", tmp_path / "there"
    assert read_metrics(here) == read_metrics(there)
    model = "model.safetensors"
    assert (here / model).read_bytes() == (there / model).read_bytes()
    assert (here / "plan.toml").read_text() == (there / "plan.toml").read_text()


@pytest.mark.slow
def test_comparison_on_ray_has_the_same_table(tmp_path):
    pytest.importorskip("ray", reason="the ray extra is not installed")
    words = ["compare", "fedavg", "majority", "--on", "digits-partial", "--seeds", "2"]
    words += ["--rounds", "3", "--json"]
    here = thalweg(tmp_path, *words, "--out", "here")
    there = thalweg(tmp_path, *words, "--out", "there", "--engine", "ray", "--workers", "2")

    def read(text):
        rows = [json.loads(line) for line in text.splitlines()]
        for row in rows:
            row["final"].pop("seconds", None)
            row["final"].pop("core_seconds", None)
        return rows

    assert read(here.stdout) == read(there.stdout)
