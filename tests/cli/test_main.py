import json
import subprocess
import sys

import pytest

from thalweg.baselines import BASELINES
from thalweg.recipes import RECIPES


def thalweg(*words, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "thalweg", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


def test_help_teaches_and_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['thalweg', '--help']\n"
        "from thalweg.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'sklearn', 'scipy', 'matplotlib', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "thalweg run sfedpo --on digits-partial" in " ".join(done.stdout.split())


def test_run_shows_plan_progress_summary_and_how_to_repeat_it(tmp_path):
    words = [
        "run",
        "sfedpo",
        "--on",
        "digits-partial",
        "--rounds",
        "4",
        "--set",
        "memory.budget=0.3",
    ]
    done = thalweg(*words, "--seed", "7", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "budget was 0.5" in done.stdout
    assert "round 4/4" in done.stdout
    assert "runs/sfedpo-digits-partial-seed7/" in done.stdout
    repeat = done.stdout.strip().splitlines()[-1]
    assert "thalweg run sfedpo --on digits-partial --seed 7 --set memory.budget=0.3" in repeat
    again = thalweg(*words, "--seed", "7", cwd=tmp_path)
    assert "runs/sfedpo-digits-partial-seed7-2/" in again.stdout


def test_json_is_one_object_per_line(tmp_path):
    done = thalweg(
        "run",
        "fedavg",
        "--on",
        "digits-full",
        "--rounds",
        "2",
        "--json",
        "--out",
        "x",
        cwd=tmp_path,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row.get("round") for row in rows[:2]] == [1, 2]
    assert rows[-1]["folder"] == "x"
    assert rows[-1]["final"]["round"] == 2


def test_a_run_folder_can_be_resumed_and_its_plan_run_again(tmp_path):
    first = ["run", "fedavg", "--on", "digits-full", "--rounds", "2", "--out", "one"]
    assert thalweg(*first, cwd=tmp_path).returncode == 0
    assert thalweg("run", "one", "--resume", cwd=tmp_path).returncode == 0
    done = thalweg("run", "one/plan.toml", "--out", "two", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "sfedop", "--on", "digits-full"], "Did you mean 'sfedpo'?"),
        (["run", "sfedpo", "--on", "digit-full"], "Did you mean 'digits-full'?"),
        (["run", "sfedpo"], "Say --on SCENARIO"),
        (["run", "sfedpo", "--on", "digits-full", "--set", "memory.budget=7"], "got 7"),
        (["run", "sfedpo", "--on", "digits-full", "--rounds", "0"], "rounds must be at least 1"),
        (
            ["run", "sfedpo", "--on", "digits-full", "--rounds", "1", "--out", "/dev/null/x"],
            "cannot write",
        ),
        (["run", "sfedpo", "--on", "nowhere.csv", "--rounds", "1"], "nowhere.csv"),
        (["compare", "sfedpo", "--on", "digits-full", "--seeds", "x"], "number of seeds"),
        (["show", "ddss"], "Did you mean 'dds'?"),
    ],
)
def test_errors_of_ours_are_one_message_and_exit_code_2(words, said, tmp_path):
    done = thalweg(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_where_an_error_came_from(tmp_path):
    done = thalweg("run", "sfedop", "--on", "digits-full", "--debug", cwd=tmp_path)
    assert "Traceback" in done.stderr


def test_list_and_show_know_every_name():
    listed = json.loads(thalweg("list", "--json").stdout)
    assert set(listed["recipe"]) == set(RECIPES)
    assert "dds" in listed["memory"]
    assert "feddrift" in listed["bank"]
    assert "p-norm" in listed["geometry"]
    assert "gain-threshold" in listed["stopping"]
    assert {"page-hinkley", "ddm", "window-test", "river"} <= set(listed["alarm"])
    assert "shrink" in listed["alarm.action"]
    assert "mean training loss of a round" in " ".join(thalweg("show", "ddm").stdout.split())
    assert "--set alarm.action=shrink" in thalweg("show", "shrink").stdout
    shown = thalweg("show", "dds").stdout
    assert "--set memory=dds" in shown
    assert "What a state predicted to be impossible gets" in shown
    assert "thalweg show server=flash" in thalweg("show", "flash").stdout
    assert "--set server=flash" in thalweg("show", "server=flash").stdout
    assert "Proximal" in thalweg("show", "fedprox+sfedpo").stdout


def test_a_baseline_is_listed_shown_run_and_compared_like_a_recipe(tmp_path):
    assert set(json.loads(thalweg("list", "--json").stdout)["baseline"]) == set(BASELINES)
    assert "--set pooled=true" in thalweg("show", "majority").stdout
    small = ["--on", "gaussian-mixture", "--rounds", "2"]
    words = ["run", "majority", *small, "--set", "pooled=true", "--out", "r"]
    done = thalweg(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "learner   majority" in done.stdout
    assert "one for all clients, after every round   <- pooled was False" in done.stdout
    assert "test-then-train" in done.stdout
    assert "[baseline.learner]" in thalweg("show", "r", cwd=tmp_path).stdout
    again = thalweg("run", "r", "--resume", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    words = ["compare", "majority", "fedavg", *small, "--set", "data.num_test=1", "--seeds", "1"]
    both = thalweg(*words, "--out", "c", cwd=tmp_path)
    assert both.returncode == 0, both.stdout + both.stderr
    table = (tmp_path / "c/table.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in table[1:]] == ["majority", "fedavg"]


def test_a_bank_and_another_geometry_are_part_of_the_plan_that_is_shown(tmp_path):
    words = ["run", "fedomd+feddrift", "--on", "digits-partial", "--rounds", "1", "--out", "r"]
    stopping = ["--set", "stopping=gain-threshold", "--set", "stopping.gain=0.1"]
    done = thalweg(*words, *stopping, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    for line in (
        "bank      feddrift",
        "geometry    p-norm",
        "stopping  gain-threshold(gain=0.1)   <- was none",
    ):
        assert line in said


def test_compare_ends_with_a_table_a_figure_and_a_page(tmp_path):
    words = ["compare", "sfedpo", "fedavg", "sfedpo,weights=equal", "--on", "digits-partial"]
    done = thalweg(*words, "--seeds", "2", "--rounds", "3", "--out", "c", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "sfedpo,weights=equal" in done.stdout
    for name in ("index.html", "table.md", "table.csv", "accuracy.png"):
        assert (tmp_path / "c" / name).stat().st_size > 100
    assert (tmp_path / "c/sfedpo-weights=equal/seed-1/summary.json").exists()
    assert (
        "thalweg run sfedpo --on digits-partial --seed 1" in (tmp_path / "c/index.html").read_text()
    )


def test_compare_shows_a_cell_that_failed_and_exits_1(tmp_path):
    done = thalweg(
        *["compare", "fedavg", "fedavg,local.lr=1e18", "--on", "digits-partial", "--seeds", "1"],
        *["--rounds", "9", "--out", "c"],
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "not a finite number" in (tmp_path / "c/table.md").read_text()


def test_gap_says_what_the_forecasts_of_a_run_cost(tmp_path):
    words = ["run", "sfedpo", "--on", "digits-partial", "--rounds", "1", "--out", "one"]
    assert thalweg(*words, "--set", "forecast=bayesian", cwd=tmp_path).returncode == 0
    done = thalweg("gap", "one", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("gap", "oracle error", "ideal", "achieved", "effective budget", "min", "mean"):
        assert word in done.stdout
    told = json.loads(thalweg("gap", "one", "--json", cwd=tmp_path).stdout)
    assert told["gap"] == pytest.approx(abs(told["achieved"] - told["ideal"]))
    assert told["oracle_error"] > 0
    assert set(told["effective_budget"]) == {"min", "mean", "max"}
    refused = thalweg("gap", "nowhere", cwd=tmp_path)
    assert refused.returncode == 2
    assert "not a run folder" in refused.stderr
