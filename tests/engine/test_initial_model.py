"""The first model of a run: drawn from the seed, or read from a file."""

import numpy as np
import pytest

import thalweg
from contracts.runs import Interruption, check_same_bits, interrupt_after
from thalweg.core.errors import ConfigError, DataError
from thalweg.core.rng import Draw, rng_for
from thalweg.engine.builders import make_initial_model
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import make_plan, plan_from_toml, plan_to_toml
from thalweg.nets import Mlp

NET = Mlp(hidden=(64,)).build((1, 8, 8), 10)


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """A run and the file of its model."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    result = thalweg.run("fedavg", "digits-partial", seed=3, rounds=2, out=folder)
    return result, folder / "model.safetensors"


def test_without_a_file_the_model_is_drawn_from_the_seed():
    plan = make_plan("fedavg", "digits-partial", seed=5)
    expected = NET.init(rng_for(5, Draw.NET))
    assert np.array_equal(make_initial_model(plan, NET, None), expected)


def test_a_run_can_start_from_the_model_of_another_run(left):
    before, file = left
    plan = make_plan("fedavg", "digits-partial", seed=8, overrides=[f"start_from={file}"])
    assert np.array_equal(make_initial_model(plan, before.net, None), before.model)
    # With steps of no length the model of the end is that of the beginning.
    after = thalweg.run(
        "fedavg",
        "digits-partial",
        rounds=1,
        overrides=[f"start_from={file}", "local.lr=1e-30", "local.momentum=0"],
    )
    assert np.array_equal(after.model, before.model)


def test_a_model_file_is_found_in_the_data_folder_or_the_working_directory(left, monkeypatch):
    before, file = left
    plan = make_plan("fedavg", "digits-partial", overrides=["start_from=first/model.safetensors"])
    folder = file.parents[1]
    assert np.array_equal(make_initial_model(plan, before.net, folder), before.model)
    monkeypatch.chdir(folder)
    assert np.array_equal(make_initial_model(plan, before.net, None), before.model)


def test_the_model_file_is_written_to_the_plan():
    plan = make_plan("fedavg", "digits-partial", overrides=["start_from=a/model.safetensors"])
    assert plan.scenario.start_from == "a/model.safetensors"
    assert plan_from_toml(plan_to_toml(plan), "here") == plan
    plain = make_plan("fedavg", "digits-partial", overrides=["start_from=none"])
    assert plain.scenario.start_from is None
    assert plain == make_plan("fedavg", "digits-partial")


def test_a_plan_without_a_model_file_starts_at_random():
    plan = make_plan("fedavg", "digits-partial")
    old = plan_to_toml(plan).replace('start_from = "none"\n', "")
    assert "start_from" not in old
    assert plan_from_toml(old, "here") == plan


@pytest.mark.parametrize(
    "overrides, kind, message",
    [
        (
            ["net=mlp", "net.hidden=[7]"],
            ConfigError,
            r"model.safetensors belongs to another net: fc1.weight has",
        ),
        (["start_from=nowhere.safetensors"], DataError, "there is no file 'nowhere.safetensors'"),
        (["start_from={folder}"], DataError, "is a folder; expected one file"),
        (["start_from={folder}/plan.toml"], DataError, "plan.toml is not a readable safetensors"),
    ],
)
def test_an_unsuitable_model_file_is_rejected_before_a_folder_is_created(
    left, tmp_path, overrides, kind, message
):
    _, file = left
    sets = [f"start_from={file}", *(text.format(folder=file.parent) for text in overrides)]
    with pytest.raises(kind, match=message):
        thalweg.run("fedavg", "digits-partial", rounds=1, overrides=sets, out=tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_a_run_that_started_from_a_file_can_be_resumed_to_the_same_bits(left, tmp_path):
    _, file = left
    plan = make_plan("fedavg", "digits-partial", rounds=4, overrides=[f"start_from={file}"])
    whole = run_plan(plan)
    with pytest.raises(Interruption):
        run_plan(plan, out=tmp_path / "cut", watch=interrupt_after(2))
    check_same_bits(whole, run_plan(plan, out=tmp_path / "cut", resume=True))
    at_random = run_plan(make_plan("fedavg", "digits-partial", rounds=4))
    assert not np.array_equal(whole.model, at_random.model)
