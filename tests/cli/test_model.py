"""The option --model: a module of the user's file, in a run that is resumed and compared."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import nets.user_modules
from thalweg.cli import main
from thalweg.core.errors import ConfigError

SMALL = ["--on", "digits-partial", "--rounds", "2", "--set", "world.num_clients=5"]


def test_a_model_of_a_file_is_trained_and_resumed(thalweg: Any, tmp_path: Path) -> None:
    shutil.copy(nets.user_modules.__file__, tmp_path / "net.py")
    words = ["--model", "net.py:DigitMlp", "--set", "net.options.width=8", "--workers", "1"]
    done = thalweg("run", "fedavg", *SMALL, *words, "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "module(path=net.py:DigitMlp, options={'width': 8}, " in done.stdout
    assert "--set net=module --set net.path=net.py:DigitMlp" in done.stdout
    again = thalweg("run", "run", "--resume")
    assert again.returncode == 0, again.stderr
    with (tmp_path / "net.py").open("a") as file:
        file.write("# a change")
    changed = thalweg("run", "run", "--resume")
    assert changed.returncode != 0
    message = " ".join(changed.stderr.split())
    assert "net.py has changed since the plan was made: expected the digest" in message


def test_a_model_that_does_not_fit_is_reported_in_one_line(thalweg: Any, tmp_path: Path) -> None:
    shutil.copy(nets.user_modules.__file__, tmp_path / "net.py")
    done = thalweg("run", "fedavg", *SMALL, "--model", "net.py:WindowGru", "--out", "run")
    assert done.returncode != 0
    assert "the model WindowGru failed with" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words, message",
    [
        (["--model", "net.py:Net", "--set", "net=mlp"], "--model and --set net=mlp are the same"),
        (["--loss", "mae", "--set", "loss=mse"], "--loss and --set loss=mse are the same"),
        (["--optimizer", "adam", "--set", "optimizer=sgd"], "--optimizer and --set optimizer=sgd"),
        (["--metric", "f1", "--set", "metrics=auroc"], "--metric and --set metrics=auroc are"),
        (["--set", "model=net.py:Net"], "the setting is named net. Use --model"),
        (["--set", "net=thalweg.nets:NETS"], "given with --model thalweg.nets:NETS"),
    ],
)
def test_settings_that_contradict_an_option_are_rejected(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        main.app(["run", "fedavg", "--on", "digits-partial", *words], standalone_mode=False)
