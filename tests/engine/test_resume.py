"""A run that is killed at any moment and resumed has the same bits."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import nets.user_modules

WINDOW_MODELS = ("WindowCnn", "WindowGru")

KILL_AND_RESUME = """
    import json, os, random, signal, sys, time
    from pathlib import Path

    import thalweg.engine.fast, thalweg.engine.reference, thalweg.engine.workers
    import thalweg.nets.layers
    from thalweg.engine.loop import run_plan
    from thalweg.engine.plan import make_plan

    out, engine, overrides = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    plan = make_plan("sfedpo", "digits-partial", seed=11, rounds=30, engine=engine,
                     overrides=["forecast=bayesian", "capacity=16", "local.passes=1", *overrides])
    data = plan.scenario.data.load(None, plan.seed)
    child = os.fork()
    if child == 0:
        run_plan(plan, out=out.with_name("whole"), data=data, workers=1)
        os._exit(0)
    os.waitpid(child, 0)
    chance = random.Random(5)
    kills, progress, metrics = 0, [0], out / "metrics.jsonl"

    def count_rounds():
        return metrics.read_text().count("\\n") if metrics.exists() else 0

    while True:
        child = os.fork()
        if child == 0:
            run_plan(plan, out=out, resume=True, data=data, workers=1)
            os._exit(0)
        enough = progress[-1] + chance.randint(0, 4) if kills < 12 else 1e9
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and count_rounds() < enough:
            time.sleep(0.0005)
        if ended == (0, 0):
            time.sleep(chance.uniform(0.0, 0.01))
            ended = os.waitpid(child, os.WNOHANG)
        if ended != (0, 0):
            assert os.waitstatus_to_exitcode(ended[1]) == 0
            break
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
        progress.append(count_rounds())
    print(json.dumps({"kills": kills, "progress": progress}))
"""


KILL_ONCE = """
    import os, signal, sys, time
    from pathlib import Path

    import thalweg.engine.fast, thalweg.engine.workers, thalweg.nets.module_net
    from thalweg.engine.loop import run_plan
    from thalweg.engine.plan import make_plan

    out, on, model = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    plan = make_plan("fedavg", on, model=model, seed=3, rounds=6, engine="fast",
                     overrides=["capacity=16", "ticks=2", "local.momentum=0.5"])
    data = plan.scenario.data.load(None, plan.seed)

    def wait(*words):
        time.sleep(0.2)

    def start(name, **options):
        child = os.fork()
        if child == 0:
            run_plan(plan, out=out / name, data=data, workers=1, **options)
            os._exit(0)
        return child

    assert os.waitpid(start("whole"), 0)[1] == 0
    child, metrics = start("killed", watch=wait), out / "killed" / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count("\\n") < 2:
        time.sleep(0.01)
    time.sleep(0.15)
    os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    print(metrics.read_text().count("\\n"))
    assert os.waitpid(start("killed", resume=True), 0)[1] == 0
"""


def metrics_without_times(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


CHURN = ("sessions=random-churn", "sessions.join=0.2", "sessions.leave=0.2")


@pytest.mark.parametrize(
    ("engine", "overrides"),
    [
        ("fast", CHURN),
        pytest.param("reference", ("world.absent=frozen",), marks=pytest.mark.slow),
        pytest.param("fast", ("world.absent=frozen",), marks=pytest.mark.slow),
        pytest.param("fast", ("world.absent=collecting",), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_run_that_is_killed_many_times_has_the_same_bits(tmp_path, engine, overrides):
    script = tmp_path / "kill.py"
    script.write_text(textwrap.dedent(KILL_AND_RESUME))
    killed = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path / "killed"), engine, *overrides],
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == 0, killed.stderr
    told = json.loads(killed.stdout)
    assert told["kills"] >= 5, "the machine was too fast: nothing was interrupted"
    assert len(set(told["progress"])) >= 3, "all kills hit the same round"

    assert metrics_without_times(tmp_path / "killed") == metrics_without_times(tmp_path / "whole")
    assert (tmp_path / "killed/model.safetensors").read_bytes() == (
        tmp_path / "whole/model.safetensors"
    ).read_bytes()
    assert len(metrics_without_times(tmp_path / "whole")) == 30


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "batch_norm_resnet",
        "DropoutMlp",
        "group_norm_resnet",
        "digit_transformer",
        *WINDOW_MODELS,
    ],
)
def test_a_run_of_a_module_that_is_killed_has_the_same_bits(tmp_path, name):
    if name == "digit_transformer":
        pytest.importorskip("transformers", reason="install it with pip install '.[dev]'")
    on = "digits-partial"
    if name in WINDOW_MODELS:
        rng, on = np.random.default_rng(0), str(tmp_path / "windows.npz")
        x, y = rng.normal(size=(300, 12, 3)), rng.integers(4, size=300)
        np.savez(on, x=x, y=y, client=np.arange(300) % 6, time=np.arange(300.0))
    script = tmp_path / "kill.py"
    script.write_text(textwrap.dedent(KILL_ONCE))
    model = f"{nets.user_modules.__file__}:{name}"
    killed = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path), on, model],
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == 0, killed.stderr
    assert 2 <= int(killed.stdout) < 6, "the run was not interrupted"
    assert metrics_without_times(tmp_path / "killed") == metrics_without_times(tmp_path / "whole")
    whole, resumed = (tmp_path / each / "model.safetensors" for each in ("whole", "killed"))
    assert whole.read_bytes() == resumed.read_bytes()
