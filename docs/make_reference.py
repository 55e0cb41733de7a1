"""Write the API reference, HTML pages made from docstrings: ``make docs``.

    python docs/make_reference.py [FOLDER]          (default: build/reference)

Formulas are written as MathML, which browsers show without a script, so the pages need no network.
The pages are not committed.
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


class Formulas:
    """Replaces the formulas of docstrings by placeholders, and placeholders by MathML.

    The placeholders are plain words, so that the conversion to HTML in between does not change
    formulas.

    >>> formulas = Formulas()
    >>> formulas.hide("The mean :math:`a / n`.")
    'The mean formula0x.'
    >>> formulas.show("<p>The mean formula0x.</p>")[:30]
    '<p>The mean <math xmlns="http:'
    """

    _INLINE = re.compile(r":math:`([^`]+)`")
    _BLOCK = re.compile(r"^( *)\.\. math::((?:.*\n?)(?:\1 +.*(?:\n|\Z)| *\n)*)", re.MULTILINE)

    def __init__(self) -> None:
        self._mathml: list[str] = []

    def hide(self, docstring: str) -> str:
        """Return the docstring with a placeholder for each formula."""
        inline = self._INLINE.sub(lambda found: self._add(found[1], "inline"), docstring)
        return self._BLOCK.sub(self._hide_block, inline)

    def show(self, html: str) -> str:
        """Return the HTML with MathML in place of placeholders."""
        return re.sub(r"\bformula(\d+)x\b", lambda found: self._mathml[int(found[1])], html)

    def _hide_block(self, found: re.Match[str]) -> str:
        """Return a paragraph for each formula of a block; empty lines separate formulas."""
        indent, body = found.groups()
        parts = [part for part in re.split(r"\n\s*\n", body) if part.strip()]
        return "".join(f"{indent}{self._add(part, 'block')}\n\n" for part in parts)

    def _add(self, tex: str, display: str) -> str:
        from latex2mathml.converter import convert

        tex = " ".join(tex.split())
        # Two commands that latex2mathml does not convert: large norm bars and \arg.
        tex = re.sub(r"(\\[bB]igg?[lr]?)\\(?:\||[lr]?Vert\b)", r"\1‖", tex)
        tex = re.sub(r"\\arg\b", r"\\operatorname{arg}", tex)
        self._mathml.append(convert(tex, display=display))
        return f"formula{len(self._mathml) - 1}x"


def configure_pdoc() -> ModuleType:
    """Configure pdoc to show short type names, and formulas as MathML."""
    try:
        import latex2mathml  # noqa: F401
        import pdoc
        from jinja2 import pass_context
        from markupsafe import Markup
    except ImportError as error:
        raise SystemExit(
            "the reference is made by pdoc and latex2mathml: pip install 'thalweg[dev]'"
        ) from error
    formulas = Formulas()
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
        # The last filter of a docstring; to_html must return pdoc's own type.
        return Markup(formulas.show(linkify(context, shorten(code), **options)))

    @pass_context
    def to_markdown_without_formulas(context: Any, docstring: str) -> Any:
        return to_markdown(context, formulas.hide(docstring))

    filters.update(
        format_signature=format_short,
        linkify=linkify_short,
        to_markdown=to_markdown_without_formulas,
    )
    pdoc.render.configure(docformat="restructuredtext", template_directory=HERE / "templates")
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
