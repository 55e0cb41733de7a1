"""Write the API reference, HTML pages made from docstrings: ``make docs``.

    python docs/make_reference.py [FOLDER]          (default: build/reference)

A browser renders formulas with MathJax, which it downloads from the network; without a network the
pages show formulas as TeX. The pages are not committed.
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
from thalweg.core import types

HERE = Path(__file__).parent
EXCLUDED = {"cli"}  # thalweg --help is its reference
# The pages show the names of these types instead of their definitions.
ALIASES = {
    inspect.formatannotation(npt.ArrayLike): "ArrayLike",
    inspect.formatannotation(types.Floats): "Floats",
    inspect.formatannotation(types.Floats32): "Floats32",
    inspect.formatannotation(types.Ints): "Ints",
    "typing.Any": "Any",
}


@dataclass(frozen=True)
class AnnotationText:
    """An annotation whose repr is a given text."""

    text: str

    def __repr__(self) -> str:
        return self.text


def list_packages() -> list[str]:
    found = pkgutil.iter_modules(thalweg.__path__)
    return sorted(info.name for info in found if info.ispkg and info.name not in EXCLUDED)


def shorten(text: str) -> str:
    for long, short in ALIASES.items():
        text = text.replace(long, short)
    return text


def shorten_annotation(annotation: Any) -> Any:
    if annotation is inspect.Signature.empty:
        return annotation
    return AnnotationText(shorten(inspect.formatannotation(annotation)))


def join_formulas(docstring: str) -> str:
    """Put each formula on a line of its own, so that it is not parsed as a list."""
    inline = re.sub(r":math:`[^`]+`", lambda found: _to_one_line(found[0]), docstring)
    block = r"^( *)\.\. math::((?:.*\n?)(?:\1 +.*(?:\n|\Z)| *\n)*)"
    return re.sub(block, _split_formulas, inline, flags=re.MULTILINE)


def _split_formulas(found: re.Match[str]) -> str:
    """Return a directive for each formula of a block; empty lines separate formulas."""
    indent, body = found.groups()
    parts = [part for part in re.split(r"\n\s*\n", body) if part.strip()]
    return "".join(f"{indent}.. math:: {_to_one_line(part)}\n\n" for part in parts)


def _to_one_line(text: str) -> str:
    return " ".join(text.split())


def configure_pdoc() -> ModuleType:
    """Configure pdoc to show short type names and all formulas."""
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
            p.replace(annotation=shorten_annotation(p.annotation))
            for p in signature.parameters.values()
        ]
        short = signature.replace(
            parameters=parameters, return_annotation=shorten_annotation(signature.return_annotation)
        )
        return format_signature(short, colon)

    @pass_context
    def linkify_short(context: Any, code: str, **options: Any) -> Any:
        return linkify(context, shorten(code), **options)

    @pass_context
    def joined_to_markdown(context: Any, docstring: str) -> Any:
        return to_markdown(context, join_formulas(docstring))

    filters.update(
        format_signature=format_short, linkify=linkify_short, to_markdown=joined_to_markdown
    )
    pdoc.render.configure(
        docformat="restructuredtext", math=True, template_directory=HERE / "templates"
    )
    return pdoc


def main(folder: Path, *modules: str) -> None:
    """Write the pages of all modules, or of some."""
    # pdoc shows the names in __all__ that are attributes of the module. Therefore set lazily
    # imported names and add the packages.
    for name in thalweg.__all__:
        setattr(thalweg, name, getattr(thalweg, name))
    thalweg.__all__ = [*thalweg.__all__, *list_packages()]
    pdoc = configure_pdoc()
    with warnings.catch_warnings():
        # pdoc cannot evaluate the annotations of some named tuples and shows their source.
        warnings.filterwarnings("ignore", "Error parsing type annotation")
        pdoc.pdoc(*(modules or ["thalweg"]), output_directory=folder)
    print(f"reference  {folder}/thalweg.html")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/reference"))
