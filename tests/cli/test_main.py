"""The commands of the CLI, run as users do."""

import inspect
import json
import re
import subprocess
import sys

import pytest

from thalweg.baselines import BASELINES
from thalweg.cli.main import app
from thalweg.core.errors import UnknownName
from thalweg.recipes import RECIPES

COMMANDS = [each.name or each.callback.__name__ for each in app.registered_commands]


def test_help_has_examples_and_imports_no_large_package():
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


def test_run_prints_plan_progress_results_and_the_command_to_repeat_it(thalweg):
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
    done = thalweg(*words, "--seed", "7")
    assert done.returncode == 0, done.stderr
    assert "budget was 0.5" in done.stdout
    assert "round 4/4" in done.stdout
    assert "runs/sfedpo-digits-partial-seed7/" in done.stdout
    repeat = done.stdout.strip().splitlines()[-1]
    assert "thalweg run sfedpo --on digits-partial --seed 7 --set memory.budget=0.3" in repeat
    again = thalweg(*words, "--seed", "7")
    assert "runs/sfedpo-digits-partial-seed7-2/" in again.stdout


def test_the_option_optimizer_is_part_of_the_plan_and_of_the_command_to_repeat_it(thalweg):
    words = ["run", "fedavg", "--on", "digits-partial", "--rounds", "1", "--optimizer", "adam"]
    done = thalweg(*words, "--set", "local.optimizer.betas=0.9,0.99")
    assert done.returncode == 0, done.stderr
    assert "betas=(0.9, 0.99)" in " ".join(done.stdout.split())
    assert "momentum was 0.9" in " ".join(done.stdout.split())
    sets = "--set local.optimizer=adam --set local.optimizer.betas=0.9,0.99"
    assert sets in done.stdout.strip().splitlines()[-1]
    wrong = thalweg(*words[:-1], "adan")
    assert wrong.returncode == 2
    assert "Did you mean" in wrong.stderr


def test_run_with_json_prints_one_object_per_line(thalweg):
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
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row.get("round") for row in rows[:2]] == [1, 2]
    assert rows[-1]["folder"] == "x"
    assert rows[-1]["final"]["round"] == 2


def test_run_folder_can_be_resumed_and_its_plan_repeated(thalweg, tmp_path):
    first = ["run", "fedavg", "--on", "digits-full", "--rounds", "2", "--out", "one"]
    assert thalweg(*first).returncode == 0
    assert thalweg("run", "one", "--resume").returncode == 0
    done = thalweg("run", "one/plan.toml", "--out", "two")
    assert done.returncode == 0, done.stderr
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "sfedop", "--on", "digits-full"], "Did you mean 'sfedpo'?"),
        (["run", "sfedpo", "--on", "digit-full"], "Did you mean 'digits-full'?"),
        (["run", "sfedpo"], "add --on SCENARIO"),
        (["run", "sfedpo", "--on", "digits-full", "--set", "memory.budget=7"], "got 7"),
        (["run", "sfedpo", "--on", "digits-full", "--rounds", "0"], "rounds must be at least 1"),
        (
            ["run", "sfedpo", "--on", "digits-full", "--rounds", "1", "--out", "/dev/null/x"],
            "cannot write",
        ),
        (["run", "sfedpo", "--on", "nowhere.csv", "--rounds", "1"], "nowhere.csv"),
        (["compare", "sfedpo", "--on", "digits-full", "--seeds", "x"], "number of seeds"),
        (["show", "ddss"], "Did you mean 'dds' or 'dds-stationary'?"),
    ],
)
def test_error_gives_one_message_and_exit_code_2(thalweg, words, message):
    done = thalweg(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_raises_the_error_itself(thalweg):
    with pytest.raises(UnknownName):
        thalweg("run", "sfedop", "--on", "digits-full", "--debug")


def test_error_in_a_new_process_gives_one_message_and_exit_code_2(tmp_path):
    words = [sys.executable, "-m", "thalweg", "run", "sfedop", "--on", "digits-full"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "Did you mean 'sfedpo'?" in done.stderr
    assert "Traceback" not in done.stderr


def test_list_and_show_contain_every_name(thalweg):
    listed = json.loads(thalweg("list", "--json").stdout)
    assert set(listed["recipe"]) == set(RECIPES)
    assert "dds" in listed["memory"]
    assert "feddrift" in listed["bank"]
    assert "p-norm" in listed["geometry"]
    assert "gain-threshold" in listed["stopping"]
    assert {"page-hinkley", "ddm", "window-test", "river"} <= set(listed["alarm"])
    assert "shrink" in listed["alarm.action"]
    assert "before the first possible alarm" in " ".join(thalweg("show", "ddm").stdout.split())
    assert "--set alarm.action=shrink" in thalweg("show", "shrink").stdout
    shown = thalweg("show", "dds").stdout
    assert "--set memory=dds" in shown
    assert "Round the number of renewed samples at random" in shown
    assert "thalweg show server=flash" in thalweg("show", "flash").stdout
    assert "--set server=flash" in thalweg("show", "server=flash").stdout
    assert "Proximal" in thalweg("show", "fedprox+sfedpo").stdout


def test_baseline_can_be_listed_shown_run_and_compared(thalweg, tmp_path):
    assert set(json.loads(thalweg("list", "--json").stdout)["baseline"]) == set(BASELINES)
    assert "--set pooled=true" in thalweg("show", "majority").stdout
    small = ["--on", "gaussian-mixture", "--rounds", "2"]
    words = ["run", "majority", *small, "--set", "pooled=true", "--out", "r"]
    done = thalweg(*words)
    assert done.returncode == 0, done.stderr
    assert re.search("learner +majority", done.stdout)
    assert "one for all clients, after every round   <- pooled was False" in done.stdout
    assert "prequential" in done.stdout
    assert "[baseline.learner]" in thalweg("show", "r").stdout
    again = thalweg("run", "r", "--resume")
    assert again.returncode == 0, again.stderr
    words = ["compare", "majority", "fedavg", *small, "--set", "data.num_test=1", "--seeds", "1"]
    both = thalweg(*words, "--workers", "1", "--out", "c")
    assert both.returncode == 0, both.stdout + both.stderr
    table = (tmp_path / "c/table.csv").read_text().splitlines()
    assert {line.partition(",")[0] for line in table[1:]} == {"majority", "fedavg"}


def test_run_prints_the_bank_the_geometry_and_the_stopping_rule(thalweg):
    words = ["run", "fedomd+feddrift", "--on", "digits-partial", "--rounds", "1", "--out", "r"]
    stopping = ["--set", "stopping=gain-threshold", "--set", "stopping.gain=0.1"]
    done = thalweg(*words, *stopping)
    assert done.returncode == 0, done.stderr
    for name, value in (
        ("bank", "feddrift"),
        ("geometry", "p-norm"),
        ("stopping", r"gain-threshold\(gain=0.1\)   <- was none"),
    ):
        assert re.search(rf"{name} +{value}", done.stdout)


def test_compare_writes_a_table_a_figure_and_a_page(thalweg, tmp_path):
    words = ["compare", "sfedpo", "fedavg", "sfedpo,weights=equal", "--on", "digits-partial"]
    done = thalweg(*words, "--seeds", "2", "--rounds", "2", "--out", "c")
    assert done.returncode == 0, done.stderr
    assert "sfedpo,weights=equal" in done.stdout
    for name in ("index.html", "table.md", "table.csv", "accuracy.png"):
        assert (tmp_path / "c" / name).stat().st_size > 100
    assert (tmp_path / "c/sfedpo-weights=equal/seed-1/summary.json").exists()
    assert (
        "thalweg run sfedpo --on digits-partial --seed 1" in (tmp_path / "c/index.html").read_text()
    )


def test_compare_reports_a_failed_run_and_exits_with_1(thalweg, tmp_path):
    done = thalweg(
        *["compare", "fedavg", "fedavg,local.lr=1e18", "--on", "digits-partial", "--seeds", "1"],
        *["--rounds", "9", "--workers", "1", "--out", "c"],
    )
    assert done.returncode == 1
    assert "not a finite number" in (tmp_path / "c/table.md").read_text()


def test_gap_prints_the_cost_of_the_forecasts(thalweg):
    words = ["run", "sfedpo", "--on", "digits-partial", "--rounds", "1", "--out", "one"]
    assert thalweg(*words, "--set", "forecast=bayesian").returncode == 0
    done = thalweg("gap", "one")
    assert done.returncode == 0, done.stderr
    for word in ("gap", "oracle error", "ideal", "achieved", "effective budget", "min", "mean"):
        assert word in done.stdout
    found = json.loads(thalweg("gap", "one", "--json").stdout)
    assert found["gap"] == pytest.approx(abs(found["achieved"] - found["ideal"]))
    assert found["oracle_error"] > 0
    assert set(found["effective_budget"]) == {"min", "mean", "max"}
    done = thalweg("gap", "nowhere")
    assert done.returncode == 2
    assert "not a run folder" in done.stderr


def test_states_prints_one_line_per_cluster_and_draws_a_figure(thalweg, tmp_path):
    done = thalweg("states", "--on", "digits-partial", "--out", "a.png")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert re.search(r"^ +0\.05 +6 ", done.stdout, re.MULTILINE)
    assert (tmp_path / "a.png").stat().st_size > 10_000
    found = json.loads(thalweg("states", "fedavg", "--on", "digits-partial", "--json").stdout)
    assert set(found["ratios"][0]) == {0.5}
    done = thalweg("states", "--on", "gaussian-mixture")
    assert done.returncode == 2
    assert "no known latent states" in done.stderr


def test_explain_lists_what_was_monitored_and_the_events(thalweg):
    sets = ["--set", "alarm=page-hinkley", "--rounds", "32"]
    done = thalweg("run", "fedavg", "--on", "alarms-digits", *sets, "--out", "watched")
    assert "monitors   the error of each client on arriving samples (alarm" in done.stdout
    text = thalweg("explain", "watched").stdout
    assert "monitored: the error of each client on arriving samples (alarm" in text
    assert "Round 31: Alarms at clients 2, 5, 6 and 7: the error" in text  # the drift
    assert max(map(len, text.splitlines())) <= 80
    found = json.loads(thalweg("explain", "watched", "--json").stdout)
    assert (found["rounds"], found["decisions"]) == (32, [])


def test_gap_and_variability_reject_a_folder_without_a_run(thalweg):
    for command in ("gap", "variability", "explain"):
        done = thalweg(command, "nowhere")
        assert done.returncode == 2
        assert "nowhere" in done.stderr


def test_variability_prints_the_effective_number_of_samples(thalweg):
    words = ["run", "stream-ours", "--on", "streams-synthetic", "--rounds", "1", "--out", "one"]
    assert thalweg(*words).returncode == 0
    text = thalweg("variability", "one").stdout
    assert max(map(len, text.splitlines())) <= 80
    found = json.loads(thalweg("variability", "one", "--json", "--rounds", "1").stdout)
    assert found["folder"] == "one"
    assert found["rounds"] == 1
    assert 0 < found["effective_samples"] <= found["num_samples"]
    assert f"samples               {found['num_samples']} " in text


def test_compare_prints_json_per_run_and_reuses_finished_runs(thalweg):
    words = ["compare", "fedavg", "--on", "digits-partial", "--seeds", "4,8", "--rounds", "1"]
    words += ["--workers", "1"]
    rows = [json.loads(line) for line in thalweg(*words, "--json").stdout.splitlines()]
    runs = [row for row in rows if "status" in row]
    assert [(row["seed"], row["status"], row["final"]["round"]) for row in runs] == [
        (4, "done", 1),
        (8, "done", 1),
    ]
    again = " ".join(thalweg(*words).stdout.split())
    assert "2 runs (1 recipes x 2 seeds), 2 of them already in runs/" in again


def test_compare_without_a_scenario_is_an_error(thalweg):
    done = thalweg("compare", "fedavg")
    assert done.returncode == 2
    assert "add --on SCENARIO" in done.stderr


def test_flower_app_writes_a_project_and_prints_how_to_start_it(thalweg, tmp_path):
    pytest.importorskip("flwr", reason="the flower extra is not installed")
    done = thalweg("flower-app", "app", "fedavg", "--on", "digits-partial", "--rounds", "3")
    assert done.returncode == 0, done.stderr
    assert "flwr run app SUPERLINK" in done.stdout
    assert (tmp_path / "app/pyproject.toml").exists()
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\ndef Net():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    words = ("flower-app", "with-model", "fedavg", "--on", "digits-partial")
    done = thalweg(*words, "--model", "net.py:Net")
    assert done.returncode == 0, done.stderr
    assert "with-model/thalweg_app/model.py" in done.stdout
    done = thalweg("flower-app", "other", "majority", "--on", "gaussian-mixture")
    assert done.returncode == 2
    assert "expected a recipe, got the baseline majority" in done.stderr


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_fits_80_columns_and_has_an_example(thalweg, command):
    done = thalweg(*([command] if command else []), "--help")
    assert done.returncode == 0, done.stderr
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "…" not in done.stdout, "a text is cut"
    assert command in (None, "list") or f"thalweg {command} " in done.stdout.split("Options")[0]


@pytest.mark.parametrize("command", app.registered_commands)
def test_paragraphs_of_help_have_no_line_that_is_wrapped_again(command):
    """Typer keeps the line breaks of all paragraphs but the first one."""
    text = inspect.cleandoc(command.callback.__doc__).replace("[bold]", "").replace("[/bold]", "")
    paragraphs = [paragraph.splitlines() for paragraph in text.split("\n\n")[1:]]
    lines = [line for paragraph in paragraphs if len(paragraph) > 1 for line in paragraph]
    assert [line for line in lines if len(line) > 78] == []


def test_explain_says_which_folders_it_expects(thalweg, tmp_path):
    assert "nothing: expected the folder of a run" in thalweg("explain", "nothing").stderr
    assert "there is no such folder" in thalweg("explain", "nothing").stderr
    for seed in (0, 1):
        (tmp_path / "compared" / "auto" / f"seed-{seed}").mkdir(parents=True)
        (tmp_path / "compared" / "auto" / f"seed-{seed}" / "plan.toml").touch()
    done = thalweg("explain", "compared")
    assert done.returncode == 2
    assert "it contains 2 runs of a comparison. Name one: compared/auto/seed-0" in done.stderr


def test_explain_names_the_clients_of_a_table(thalweg, tmp_path):
    """The labels of the clients north and west change after two thirds of the rows."""
    lines = ["x,site,y,when"]
    for row in range(900):
        x, site = row * 7919 % 1000 / 500 - 1, ("north", "south", "west")[row % 3]
        is_other = row > 480 and site != "south"
        lines.append(f"{x},{site},{'low' if (x < 0) != is_other else 'high'},{row}")
    (tmp_path / "sites.csv").write_text("\n".join(lines) + "\n")
    columns = ["data.label=y", "data.client=site", "data.time=when"]
    sets = [word for column in columns for word in ("--set", column)]
    done = thalweg("run", "auto", "--on", "sites.csv", *sets, "--out", "changed")
    assert done.returncode == 0, done.stderr
    text = " ".join(thalweg("explain", "changed").stdout.split())
    alarms = re.findall(r"Alarms? at clients? ([\w ]+): more arriving samples", text)
    found = {site for alarm in alarms for site in re.findall("north|south|west", alarm)}
    assert found == {"north", "west"}, text
