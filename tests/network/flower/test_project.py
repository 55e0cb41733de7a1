"""Flower projects that `write_project` and `write_app` generate."""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from nets import user_modules
from network.flower.fake_grid import FakeGrid, devices_in
from network.flower.runs import run_simulated, tiny_plan
from thalweg.core.errors import ConfigError
from thalweg.engine.plan import make_plan, read_plan
from thalweg.nets import Module
from thalweg.network.edge.device_client import DeviceOptions
from thalweg.network.flower.project import PACKAGE, ProjectOptions, write_app, write_project
from thalweg.network.flower.server_app import run_project


@pytest.fixture(autouse=True)
def remove_imported_projects() -> Iterator[None]:
    """Remove the packages of projects, which have the same name in all tests, before and after."""
    _remove_imported_projects()
    yield
    _remove_imported_projects()


def _remove_imported_projects() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


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
        "share": 0.9,
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


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's own
def test_project_with_a_module_contains_its_file_and_equals_the_simulated_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flwr.cli.build import build_fab_from_disk

    file = tmp_path / "own" / "net.py"
    file.parent.mkdir()
    file.write_text(Path(user_modules.__file__).read_text())
    plan = tiny_plan("fedavg", "digits-partial", 2, "net=module", f"net.path={file}:DigitMlp")
    simulated = run_simulated(plan)
    app, run = tmp_path / "app", tmp_path / "run"
    write_project(app, plan, ProjectOptions(run, min_clients=5))
    copy = app / "thalweg_app" / "model.py"
    file.unlink()  # the project does not need it
    assert b"class DigitMlp" in copy.read_bytes()
    assert b"class DigitMlp" in build_fab_from_disk(app)
    assert read_plan(app / "thalweg_app/plan.toml").scenario.net == Module(
        "thalweg_app.model:DigitMlp"
    )
    assert "--model thalweg_app/model.py:DigitMlp" in (app / "README.md").read_text()
    monkeypatch.syspath_prepend(app)  # as Flower does for a ServerApp
    config = {"thalweg-run": str(run), "min-clients": 5}
    with devices_in(tmp_path, 5, DeviceOptions(model=f"{copy}:DigitMlp")) as devices:
        run_project(FakeGrid(devices), config, app / "thalweg_app" / "plan.toml")
    saved = load_file(run / "model.safetensors")
    for name, value in simulated.net.named_parameters(simulated.model).items():
        assert np.array_equal(saved[name], value), name


@pytest.mark.parametrize(
    "line, imported",
    [("from blocks import Block", "blocks"), ("from .blocks import Block", "a relative module")],
)
def test_module_that_imports_files_of_its_folder_is_rejected(
    line: str, imported: str, tmp_path: Path
) -> None:
    (tmp_path / "blocks.py").write_text("Block = 3\n")
    file = tmp_path / "net.py"
    text = f"import torch\n\ndef make():\n    {line}\n    return torch.nn.Linear(64, 10)\n"
    file.write_text(text)
    plan = make_plan("fedavg", "digits-partial", overrides=["net=module", f"net.path={file}:make"])
    with pytest.raises(ConfigError, match=f"it imports {imported} from its folder.*one file"):
        write_project(tmp_path / "app", plan, ProjectOptions(Path("runs/x")))
    assert not (tmp_path / "app").exists()


def test_project_with_a_module_of_a_package_names_the_package(tmp_path: Path) -> None:
    settings = ["net=module", "net.path=nets.user_modules:DigitMlp"]
    plan = make_plan("fedavg", "digits-partial", overrides=settings)
    files = write_project(tmp_path / "app", plan, ProjectOptions(Path("runs/x")))
    assert "model.py" not in {file.name for file in files}
    assert read_plan(tmp_path / "app/thalweg_app/plan.toml") == plan
    assert "--model nets.user_modules:DigitMlp" in (tmp_path / "app/README.md").read_text()


@pytest.mark.parametrize("setting", ["loss=mine.py:f", "metrics=gain=mine.py:f:higher"])
def test_other_files_than_that_of_the_model_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    (tmp_path / "mine.py").write_text("def f(a, b):\n    return (a - b).abs()\n")
    monkeypatch.chdir(tmp_path)
    plan = make_plan("fedavg", "digits-partial", overrides=[setting])
    with pytest.raises(ConfigError, match=r"the plan uses mine.py .* package.module:NAME"):
        write_project(tmp_path / "app", plan, ProjectOptions(Path("runs/x")))
    assert not (tmp_path / "app").exists()


def test_invalid_options_are_rejected() -> None:
    with pytest.raises(ConfigError, match="deadline must be positive"):
        ProjectOptions(Path("runs/x"), deadline_s=float("inf"))
