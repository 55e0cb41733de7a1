"""Files, links and names on the pages exist; the package table agrees with the import layers."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import thalweg
from documentation.pages import PAGES, ROOT, prose, spans
from test_direction import DEPTH
from thalweg.cli.catalogue import PARTS
from thalweg.local import LocalTraining
from thalweg.selection import COUNTERS

SRC = ROOT / "src/thalweg"
DOTTED = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+(\(.*\))?$")
FILES = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.(?:py|md|css))(?![\w/])")
# Files that the reader writes, or that a command writes.
YOURS = {
    "./mine.py",
    "mine.py",
    "memory.py",  # these three are written by thalweg init
    "net.py",
    "run.py",
    "model.py",  # the copy of a user's module in a Flower project
    "thalweg_app/model.py",
    "src/thalweg/memory/newest_per_class.py",
    "table.md",
    "tests/memory/test_newest_per_class.py",
}
SUFFIXES = (
    ".mat",
    *(
        ".csv",
        ".parquet",
        ".npy",
        ".npz",
        ".json",
        ".jsonl",
        ".toml",
        ".html",
        ".png",
        ".txt",
        ".gz",
    ),
    ".safetensors",
    ".db",
)
# Parts that can be set and have no table of their own.
SET = {"local": [LocalTraining], "counter": [*COUNTERS.values()]}
REJECTED = {"update.delta"}  # decision 1 names a rejected alternative
OPTIONS = {"local.optimizer.eps"}  # of a class of torch.optim

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def is_file(name: str, page: Path) -> bool:
    """Return whether a file exists next to the page, below the root or in the package."""
    if any((place / name).exists() for place in (page.parent, ROOT, SRC)):
        return True
    return "/" not in name and any(SRC.rglob(name))


@each_page
def test_files_on_a_page_exist(page: Path) -> None:
    missing = [
        name
        for span in spans(page)
        for name in FILES.findall(span.partition(":")[0])
        if name not in YOURS and not is_file(name, page)
    ]
    assert missing == []


@each_page
def test_links_on_a_page_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", prose(page))  # also with a line break
    local = [link for link in links if not re.match(r"\w+:", link[0])]
    targets = [(page.parent / name if name else page, anchor) for name, anchor in local]
    assert [str(target) for target, _ in targets if not target.exists()] == []
    missing = [
        f"{target.name}#{anchor}"
        for target, anchor in targets
        if anchor and target.suffix == ".md" and anchor not in list_anchors(target)
    ]
    assert missing == []


@cache
def list_anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    texts = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-") for text in texts}


@each_page
def test_dotted_names_on_a_page_exist(page: Path) -> None:
    names = [span for span in spans(page) if DOTTED.match(span) and not span.endswith(SUFFIXES)]
    names = [name for name in names if not FILES.fullmatch(name) and name not in REJECTED | OPTIONS]
    assert [name for name in names if not exists(name)] == []


def test_package_table_agrees_with_the_import_layers() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d) \|", page, re.MULTILINE)
    assert sorted((package, int(layer)) for package, layer in rows) == sorted(DEPTH.items())


def test_glossary_is_short_and_sorted() -> None:
    page = (ROOT / "docs/glossary.md").read_text()
    terms = re.findall(r"^\| \*\*([^*]+)\*\*", page, re.MULTILINE)
    assert len(terms) <= 40
    assert terms == sorted(terms)


def test_names_on_the_architecture_page_are_defined() -> None:
    words = [span for span in spans(ROOT / "docs/architecture.md") if span.isidentifier()]
    packages = {path.name for path in SRC.iterdir()}
    assert len(words) > 40
    assert [word for word in words if word not in defined() | packages] == []


def test_unknown_names_are_found() -> None:
    for name in (
        *("Dds.budget", "memory.budget", "theory.dds_ratios", "thalweg.run", "World.mixes"),
        *(
            "ClientPool.states",
            "roster.known",
            "aggregation.weigh",
            "dataclasses.replace",
            "local.lr",
        ),
    ):
        assert exists(name), name
    for name in (
        *("Dds.budgets", "memory.budgets", "theory.dds_ratio", "thalweg.runs", "World.mixtures"),
        *(
            "ClientPool.moods",
            "roster.unknown",
            "aggregation.guess",
            "dataclasses.deplace",
            "no.such",
        ),
    ):
        assert not exists(name), name
    assert "run_server_round" in defined()
    assert "run_server_rounds" not in defined()


def exists(name: str) -> bool:
    """Return whether a dotted name is one of ours, a setting, or can be imported."""
    parts = name.partition("(")[0].split(".")
    if any(has(owner, parts[1:]) for owner in owners(parts[0])):
        return True
    for cut in range(len(parts), 0, -1):
        try:
            return has(importlib.import_module(".".join(parts[:cut])), parts[cut:])
        except ImportError:
            continue
    return False


def owners(first: str) -> Iterator[Any]:
    """Yield the objects that the first part of a dotted name may stand for."""
    yield from classes().get(first, [])
    yield from classes().get(first.title(), [])  # roster.known: of a Roster
    yield from PARTS.get(first, {}).values()  # memory.budget, as --set has it
    yield from SET.get(first, [])
    for name, module in modules().items():
        if name.rpartition(".")[2] == first:
            yield module
            yield from (thing for thing in vars(module).values() if inspect.isclass(thing))


def has(thing: Any, path: list[str]) -> bool:
    """Return whether a path of attributes exists; attributes of instances count, too."""
    for name in path:
        if inspect.isclass(thing) and name in of_instances(thing):
            return name == path[-1]
        if not hasattr(thing, name):
            return False
        thing = getattr(thing, name)
    return True


@cache
def of_instances(cls: type) -> set[str]:
    """Return the fields of a class and the attributes that its methods assign."""
    names = {name for each in cls.__mro__ for name in getattr(each, "__annotations__", {})}
    if cls.__module__.startswith("thalweg."):
        names |= set(re.findall(r"self\.(\w+)(?:: [^=\n]+|, [^=\n]+)? =", inspect.getsource(cls)))
    return names


@cache
def modules() -> dict[str, Any]:
    found = pkgutil.walk_packages(thalweg.__path__, "thalweg.")
    names = [info.name for info in found if not info.name.endswith("__main__")]
    return {name: importlib.import_module(name) for name in ("thalweg", *names)}


@cache
def classes() -> dict[str, list[type]]:
    """Return the classes of the package by name."""
    found: dict[str, list[type]] = {}
    for module in modules().values():
        for name, thing in vars(module).items():
            if inspect.isclass(thing) and thing.__module__.startswith("thalweg."):
                found.setdefault(name, []).append(thing)
    return found


@cache
def defined() -> set[str]:
    """Return all names in the sources: functions, classes, methods, fields, metrics."""
    names = set()
    for file in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)
    return names
