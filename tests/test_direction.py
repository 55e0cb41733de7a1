"""Imports point down, and the stages do not know one another."""

from __future__ import annotations

import ast
from pathlib import Path

import thalweg

SRC = Path(thalweg.__file__).parent
LAYERS = (
    {"core"},
    {"theory"},
    {
        "data",
        "nets",
        "streams",
        "memory",
        "sample_weights",
        "selection",
        "local",
        "aggregation",
        "bank",
        "sessions",
        "forecast",
        "drift",
        "evaluation",
    },
    {"recipes", "scenarios", "baselines"},
    {"federation"},
    {"engine"},
    {"analysis", "report", "network"},
    {"cli"},
)
DEPTH = {name: depth for depth, names in enumerate(LAYERS) for name in names}
# What ``from thalweg import ...`` gives that is not a package, and where it really lives.
HOMES = {name: home.split(".")[1] for name, home in thalweg._LAZY_IMPORTS.items()}
OF_THE_PACKAGE = {"__version__"}


def packages_imported_by(source: str, package: str) -> set[str]:
    """Our second-level packages that a file imports, such as ``{"core", "memory"}``."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # Relative: one dot is the package itself, two are thalweg.
            inside = package if node.level == 1 else None
            names |= {
                ".".join(filter(None, ("thalweg", inside, node.module, alias.name)))
                for alias in node.names
            }
    ours = {name.split(".")[1] for name in names if name.startswith("thalweg.")}
    return {HOMES.get(name, name) for name in ours - OF_THE_PACKAGE}


def sideways_or_upward(source: str, here: str) -> list[str]:
    """Packages that a file of the package `here` must not import, but does."""
    return [
        there
        for there in sorted(packages_imported_by(source, here) - {here})
        if DEPTH.get(there, len(LAYERS)) >= DEPTH[here]
    ]


def test_every_package_has_its_place_in_the_layers() -> None:
    packages = {path.name for path in SRC.iterdir() if any(path.glob("*.py"))}
    assert packages <= set(DEPTH)


def test_arrows_point_down() -> None:
    wrong = [
        f"{file.relative_to(SRC)} -> {there}"
        for file in sorted(SRC.glob("*/**/*.py"))
        for there in sideways_or_upward(file.read_text(), file.relative_to(SRC).parts[0])
    ]
    assert wrong == []


def test_only_the_network_and_the_command_line_import_the_network() -> None:
    importers = {
        file.relative_to(SRC).parts[0]
        for file in SRC.glob("*/**/*.py")
        if "network" in packages_imported_by(file.read_text(), file.relative_to(SRC).parts[0])
    }
    assert importers <= {"network", "cli"}


def test_no_public_class_name_is_defined_twice() -> None:
    defined: dict[str, list[str]] = {}
    for file in sorted(SRC.glob("**/*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(str(file.relative_to(SRC)))
    assert {name: files for name, files in defined.items() if len(files) > 1} == {}


def test_an_arrow_that_points_up_or_sideways_is_found() -> None:
    for line in (
        "import thalweg.engine.loop",
        "from thalweg.engine.loop import run",
        "from thalweg import engine",
        "from thalweg import run",
        "from .. import engine",
        "from ..engine.loop import run",
        "def later():\n    from thalweg import engine",
    ):
        assert sideways_or_upward(line, "memory") == ["engine"]
    assert sideways_or_upward("from thalweg.streams import World", "memory") == ["streams"]
    assert sideways_or_upward("from thalweg.recipes import sfedpo", "scenarios") == ["recipes"]
    assert sideways_or_upward("from thalweg.nowhere import x", "cli") == ["nowhere"]


def test_an_arrow_that_points_down_is_fine() -> None:
    for line in (
        "from thalweg.core.rng import Draw",
        "from thalweg import theory",
        "from thalweg import __version__",
        "from thalweg.memory.base import renew",
        "from .base import renew",
        "from . import base",
        "import numpy",
    ):
        assert sideways_or_upward(line, "memory") == []
