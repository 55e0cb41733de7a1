"""Packages import only packages of lower layers; stages do not import one another."""

from __future__ import annotations

import ast
from pathlib import Path

import thalweg

SRC = Path(thalweg.__file__).parent
LAYERS = (
    {"core"},
    {"theory", "losses"},
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
        "serving",
        "evaluation",
    },
    {"recipes", "scenarios", "baselines", "native"},
    {"federation"},
    {"engine"},
    {"analysis", "report", "network"},
    {"cli"},
)
DEPTH = {name: depth for depth, names in enumerate(LAYERS) for name in names}
# Names of ``from thalweg import ...`` that are not packages, with the package that defines them.
HOMES = {name: home.split(".")[1] for name, home in thalweg._LAZY_IMPORTS.items()}
OF_THE_PACKAGE = {"__version__"}


def packages_imported_by(source: str, package: str) -> set[str]:
    """Return the packages of thalweg that a file imports, such as ``{"core", "memory"}``."""
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


def forbidden_imports(source: str, here: str) -> list[str]:
    """Return the imported packages that a file of the package `here` must not import."""
    return [
        there
        for there in sorted(packages_imported_by(source, here) - {here})
        if DEPTH.get(there, len(LAYERS)) >= DEPTH[here]
    ]


def test_each_package_belongs_to_a_layer() -> None:
    packages = {path.name for path in SRC.iterdir() if any(path.glob("*.py"))}
    assert packages <= set(DEPTH)


def test_packages_import_only_lower_layers() -> None:
    wrong = [
        f"{file.relative_to(SRC)} -> {there}"
        for file in sorted(SRC.glob("*/**/*.py"))
        for there in forbidden_imports(file.read_text(), file.relative_to(SRC).parts[0])
    ]
    assert wrong == []


def test_only_network_and_cli_import_the_network_package() -> None:
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


def test_import_of_the_same_or_a_higher_layer_is_found() -> None:
    for line in (
        "import thalweg.engine.loop",
        "from thalweg.engine.loop import run",
        "from thalweg import engine",
        "from thalweg import run",
        "from .. import engine",
        "from ..engine.loop import run",
        "def later():\n    from thalweg import engine",
    ):
        assert forbidden_imports(line, "memory") == ["engine"]
    assert forbidden_imports("from thalweg.streams import World", "memory") == ["streams"]
    assert forbidden_imports("from thalweg.recipes import sfedpo", "scenarios") == ["recipes"]
    assert forbidden_imports("from thalweg.nowhere import x", "cli") == ["nowhere"]


def test_import_of_a_lower_layer_is_allowed() -> None:
    for line in (
        "from thalweg.core.rng import Draw",
        "from thalweg import theory",
        "from thalweg import __version__",
        "from thalweg.memory.base import renew",
        "from .base import renew",
        "from . import base",
        "import numpy",
    ):
        assert forbidden_imports(line, "memory") == []
