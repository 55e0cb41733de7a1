"""Flower projects: the one that `thalweg serve` submits, and a standalone one for ``flwr run``."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from thalweg import __version__
from thalweg.core.errors import ConfigError, RunError
from thalweg.engine.plan import Plan, plan_to_toml
from thalweg.engine.run_folder import compute_user_files
from thalweg.nets.module import Module
from thalweg.network.flower.serve_options import ServeOptions

SERVER = "thalweg.network.flower.server_app:app"
CLIENT = "thalweg.network.flower.client_app:app"
PACKAGE = "thalweg_app"  # package of a generated project


def write_app(folder: Path, run_folder: Path) -> None:
    """Write the project that `thalweg serve` submits: our apps, and the path of the run folder."""
    config = {"thalweg-run": str(run_folder.absolute())}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(_pyproject("thalweg-serve", SERVER, CLIENT, config))


@dataclass(frozen=True)
class ProjectOptions:
    """Run configuration of a generated project; ``flwr run --run-config`` can change it."""

    run_folder: Path
    min_clients: int = 1
    deadline_s: float = 600.0
    share: float = 0.9

    def __post_init__(self) -> None:
        ServeOptions(self.min_clients, self.deadline_s, self.share)  # reports wrong values


def write_project(folder: Path, plan: Plan, options: ProjectOptions) -> list[Path]:
    """Write a complete Flower project for one plan into a new or empty folder; return its files.

    A module in a user's file is copied into the project, and the plan names the copy.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; choose a new folder for the project.")
    plan, model = include_model(plan)
    if others := list(compute_user_files(plan)):
        raise ConfigError(
            f"the plan uses {others[0]} for a loss, a metric or a component, but a project "
            "contains the file of --model only. Put them into an installed package, and name them "
            "as package.module:NAME."
        )
    config: dict[str, str | int | float] = {
        "thalweg-run": str(options.run_folder),
        "min-clients": options.min_clients,
        "deadline-s": options.deadline_s,
        "share": options.share,
    }
    name = f"{plan.recipe.name}-{plan.scenario.name}".replace("+", "-").replace("_", "-")
    refs = (f"{PACKAGE}.server_app:app", f"{PACKAGE}.client_app:app")
    files = {
        "pyproject.toml": _pyproject(name.lower(), *refs, config, package=PACKAGE),
        "README.md": _make_readme(plan, options, model is not None),
        f"{PACKAGE}/__init__.py": f'"""{plan.title}, as a Flower app."""\n',
        f"{PACKAGE}/server_app.py": _SERVER_APP,
        f"{PACKAGE}/client_app.py": _CLIENT_APP,
        f"{PACKAGE}/plan.toml": plan_to_toml(plan),
    }
    if model is not None:
        files[f"{PACKAGE}/model.py"] = model
    try:
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}.") from error
    return [folder / path for path in files]


def include_model(plan: Plan) -> tuple[Plan, str | None]:
    """Return the plan for a project, and the contents of the file with its module.

    None if the plan trains a built-in net, or a module of an installed package.
    """
    net = plan.scenario.net
    if not isinstance(net, Module):
        return plan, None
    net.load()  # rejects a module that cannot be imported
    source, _, name = net.path.rpartition(":")
    if not source.endswith(".py"):
        return plan, None
    text = Path(source).read_text()
    for imported in _iter_imports(text):
        folder = Path(source).parent
        if not imported or (folder / imported).exists() or (folder / f"{imported}.py").exists():
            raise ConfigError(
                f"--model {net.path}: the project contains only this file, but it imports "
                f"{imported or 'a relative module'} from its folder. Put everything into one file, "
                "or into an installed package (--model package.module:NAME)."
            )
    net = replace(net, path=f"{PACKAGE}.model:{name}", digest="")  # now a module of a package
    return replace(plan, scenario=replace(plan.scenario, net=net)), text


def _iter_imports(text: str) -> Iterator[str]:
    """The top-level names that a file imports; empty for relative imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "" if node.level or node.module is None else node.module.partition(".")[0]


def _make_readme(plan: Plan, options: ProjectOptions, has_model_file: bool) -> str:
    net, join, about_model = plan.scenario.net, "", ""
    if isinstance(net, Module):
        path = f"{PACKAGE}/model.py:{net.name}" if has_model_file else net.path
        join = f" --model {path}"
        about_model = _ABOUT_MODEL.format(path=path)
    return _README.format(
        title=plan.title, run_folder=options.run_folder, join=join, about_model=about_model
    )


def _pyproject(
    name: str,
    server: str,
    client: str,
    config: Mapping[str, str | int | float],
    package: str | None = None,
) -> str:
    lines = [
        "[build-system]",
        'requires = ["hatchling"]',
        'build-backend = "hatchling.build"',
        "",
        "[project]",
        f"name = {json.dumps(name)}",
        f"version = {json.dumps(__version__)}",
        'description = "Streaming federated learning with thalweg."',
        'license = "Apache-2.0"',
        f'dependencies = ["thalweg[flower]=={__version__}"]',
        "",
    ]
    if package is not None:
        lines += ["[tool.hatch.build.targets.wheel]", f'packages = ["{package}"]', ""]
    lines += ["[tool.flwr.app]", 'publisher = "local"', ""]
    lines += ["[tool.flwr.app.components]", f'serverapp = "{server}"', f'clientapp = "{client}"']
    lines += ["", "[tool.flwr.app.config]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in config.items()]
    return "\n".join(lines) + "\n"


_SERVER_APP = '''"""The ServerApp: runs plan.toml."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from thalweg.network.flower.server_app import run_project

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    run_project(grid, context.run_config, Path(__file__).with_name("plan.toml"))
'''

_CLIENT_APP = '''"""The ClientApp: passes messages to the daemon that `thalweg join` starts."""

from thalweg.network.flower.client_app import app

__all__ = ["app"]
'''

_README = """# {title}

A Flower app that runs the plan `thalweg_app/plan.toml`. Metrics, checkpoints and the model are
written to `{run_folder}` on the server; a relative path starts at the working directory of its
SuperExec.

    flwr run . SUPERLINK                                     # start or continue the run
    flwr run . SUPERLINK --run-config 'min-clients=3'        # clients that a round needs
    thalweg join HOST:PORT --data replay --state client0{join}     # on each device

Flower's client processes are short-lived, and the client keeps its state in a daemon. A device
therefore needs `thalweg join`, or `python -m thalweg.network.edge` and a SuperNode with
`--node-config 'thalweg-socket="..."'`.
{about_model}"""

_ABOUT_MODEL = """
The run trains the module `{path}`. A device imports no path that it receives from the network: its
owner reads the file, copies it to the device and passes it with `--model`. The server compares the
names and shapes of its tensors.
"""
