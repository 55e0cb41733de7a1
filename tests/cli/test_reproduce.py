import json
import subprocess
import sys


def thalweg(*words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "thalweg", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


def test_without_a_name_the_studies_are_listed():
    listed = json.loads(thalweg("reproduce", "--json").stdout)
    assert listed["sfedpo-table-1"] == 264
    assert "sfedpo-table-3-fashion-mnist" in thalweg("reproduce").stdout


def test_a_study_on_small_data_ends_with_a_table_and_goes_on_where_it_was(tmp_path):
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
    begun = thalweg(*words, "--show", cwd=tmp_path)
    assert begun.returncode == 0, begun.stderr
    assert "missing" in begun.stdout
    done = thalweg(*words, "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 runs, 0 of them already here" in done.stdout
    assert "on 1 workers" in done.stdout
    folder = tmp_path / "runs/reproduce-quick/sfedpo-table-7-digits/only-kl+l1"
    assert "Not comparable" in (folder / "index.html").read_text()
    assert "4 of them already here" in " ".join(thalweg(*words, cwd=tmp_path).stdout.split())


def test_a_name_nobody_has_is_one_message(tmp_path):
    done = thalweg("reproduce", "sfedpo-tabel-1", cwd=tmp_path)
    assert done.returncode == 2
    assert "Did you mean 'sfedpo-table-1'" in done.stderr
