"""Flower projects that `write_project` and `write_app` generate."""

import tomllib
from pathlib import Path

import pytest

from thalweg.core.errors import ConfigError
from thalweg.engine.plan import make_plan, read_plan
from thalweg.network.flower.project import ProjectOptions, write_app, write_project


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's own
def test_project_is_valid_for_flower_and_contains_the_plan(tmp_path: Path) -> None:
    from flwr.cli.build import build_fab_from_disk
    from flwr.cli.config_utils import load_and_validate

    plan = make_plan("sfedpo", "digits-partial", seed=3)
    write_project(tmp_path / "app", plan, ProjectOptions(Path("runs/x"), min_clients=2))
    config, warnings = load_and_validate(tmp_path / "app/pyproject.toml")
    assert warnings == []
    assert config["tool"]["flwr"]["app"]["config"] == {
        "thalweg-run": "runs/x",
        "min-clients": 2,
        "deadline-s": 600.0,
    }
    assert b"plan.toml" in build_fab_from_disk(tmp_path / "app")
    assert read_plan(tmp_path / "app/thalweg_app/plan.toml") == plan


def test_app_of_serve_contains_the_run_folder(tmp_path: Path) -> None:
    from flwr.cli.config_utils import load_and_validate

    write_app(tmp_path / "app", tmp_path / 'a "run"')
    config, _ = load_and_validate(tmp_path / "app/pyproject.toml")
    assert config["tool"]["flwr"]["app"]["config"]["thalweg-run"] == str(tmp_path / 'a "run"')
    plain = tomllib.loads((tmp_path / "app/pyproject.toml").read_text())
    assert plain["tool"]["flwr"]["app"]["components"] == {
        "serverapp": "thalweg.network.flower.server_app:app",
        "clientapp": "thalweg.network.flower.client_app:app",
    }


def test_project_is_not_written_to_a_nonempty_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(ConfigError, match="not empty"):
        write_project(
            tmp_path, make_plan("fedavg", "digits-partial"), ProjectOptions(Path("runs/x"))
        )
