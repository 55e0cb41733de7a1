"""Write the API reference, pages made of docstrings, into a folder: ``make docs``.

    python docs/make_reference.py [FOLDER]          (build/reference unless you say otherwise)

Formulas are drawn by MathJax, which a browser fetches when it shows them; without a network they are read
as TeX. The pages are never committed.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy.typing as npt

import thalweg
from thalweg import recipes
from thalweg.core import types

HERE = Path(__file__).parent
NOT_FOR_PYTHON = {"cli"}  # thalweg --help is its reference
TWO_HALVES = ["base", "client", "federation", "inquiry", "server"]  # of a round
# Types are shown by the names under which they are written, not as what these stand for.
ALIASES = {
    inspect.formatannotation(npt.ArrayLike): "ArrayLike",
    inspect.formatannotation(types.Floats): "Floats",
    inspect.formatannotation(types.Floats32): "Floats32",
    inspect.formatannotation(types.Ints): "Ints",
    "typing.Any": "Any",
}


@dataclass(frozen=True)
class Shown:
    """An annotation that looks like this."""

    text: str

    def __repr__(self) -> str:
        return self.text


def packages() -> list[str]:
    found = pkgutil.iter_modules(thalweg.__path__)
    return sorted(info.name for info in found if info.ispkg and info.name not in NOT_FOR_PYTHON)


def shortened(text: str) -> str:
    for long, short in ALIASES.items():
        text = text.replace(long, short)
    return text


def shown(annotation: Any) -> Any:
    if annotation is inspect.Signature.empty:
        return annotation
    return Shown(shortened(inspect.formatannotation(annotation)))


def unbroken(docstring: str) -> str:
    """The docstring with every formula on a line of its own, where nothing takes it for a list."""
    inline = re.sub(r":math:`[^`]+`", lambda found: _one_line(found[0]), docstring)
    block = r"^( *)\.\. math::((?:.*\n?)(?:\1 +.*(?:\n|\Z)| *\n)*)"
    return re.sub(block, _formulas, inline, flags=re.MULTILINE)


def _formulas(found: re.Match[str]) -> str:
    """A directive for each formula of a block; an empty line is between two of them."""
    indent, body = found.groups()
    parts = [part for part in re.split(r"\n\s*\n", body) if part.strip()]
    return "".join(f"{indent}.. math:: {_one_line(part)}\n\n" for part in parts)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def taught_pdoc() -> ModuleType:
    """pdoc, which then shows our types by their names and all of our formulas."""
    try:
        import pdoc
        from jinja2 import pass_context
    except ImportError as error:
        raise SystemExit("the reference is made by pdoc: pip install 'thalweg[dev]'") from error
    filters = pdoc.render.env.filters
    format_signature, linkify = filters["format_signature"], filters["linkify"]
    to_markdown = filters["to_markdown"]

    def format_short(signature: inspect.Signature, colon: bool) -> Any:
        parameters = [
            p.replace(annotation=shown(p.annotation)) for p in signature.parameters.values()
        ]
        short = signature.replace(
            parameters=parameters, return_annotation=shown(signature.return_annotation)
        )
        return format_signature(short, colon)

    @pass_context
    def linkify_short(context: Any, code: str, **options: Any) -> Any:
        return linkify(context, shortened(code), **options)

    @pass_context
    def unbroken_to_markdown(context: Any, docstring: str) -> Any:
        return to_markdown(context, unbroken(docstring))

    filters.update(
        format_signature=format_short, linkify=linkify_short, to_markdown=unbroken_to_markdown
    )
    pdoc.render.configure(
        docformat="restructuredtext", math=True, template_directory=HERE / "templates"
    )
    return pdoc


def main(folder: Path, *modules: str) -> None:
    """All of it, or some modules."""
    # pdoc shows what __all__ names and what is there: not what is imported only when it is asked for,
    # nor packages, which are found by their address.
    for name in thalweg.__all__:
        setattr(thalweg, name, getattr(thalweg, name))
    thalweg.__all__ = [*thalweg.__all__, *packages()]
    recipes.__all__ = [*recipes.__all__, *TWO_HALVES]
    pdoc = taught_pdoc()
    with warnings.catch_warnings():
        # Types of named tuples are shown as they are written.
        warnings.filterwarnings("ignore", "Error parsing type annotation")
        pdoc.pdoc(*(modules or ["thalweg"]), output_directory=folder)
    print(f"reference  {folder}/thalweg.html")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/reference"))
