"""Docstrings as text for a terminal."""

from __future__ import annotations

import textwrap

import pytest

from thalweg.cli.catalogue import BASELINES, PARTS, RECIPES, SCENARIOS, doc_of
from thalweg.cli.docstrings import convert_inline, format_docstring, tex_to_text


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        (r"\alpha_m \le 1", "αₘ ≤ 1"),
        (r"\frac{1-\alpha}{\alpha}\hat\pi_m", "(1-α)/α π̂ₘ"),
        (r"\tfrac12 \lVert y \rVert_p^2", "½ ‖y‖ₚ²"),
        (r"\sqrt v + \sqrt{a / b}", "√v + √(a / b)"),
        (r"w_{s-1}^{last}", "wₛ₋₁^last"),
        (r"\sum_{k \ne j} \Phi_k", "Σ_{k ≠ j} Φₖ"),
        (r"e^{-f_c(i)} / A_{y_i,c}", "e^{-f_c(i)} / A_{yᵢ,c}"),
        (r"p_n = N_n \big/ \textstyle\sum_{j} N_j", "pₙ = Nₙ / Σⱼ Nⱼ"),
        (r"\hat\jmath_i = \arg\min_j F_i", "ĵᵢ = arg minⱼ Fᵢ"),
        (r"\text{if } B \ge b: \quad x \leftarrow 0", "if B ≥ b: x ← 0"),
        (r"1 / |\{i : y_i = r\}|", "1 / |{i : yᵢ = r}|"),
    ],
)
def test_formulas_become_unicode(formula: str, expected: str) -> None:
    assert tex_to_text(formula) == expected


def test_inline_formulas_and_literals_are_converted() -> None:
    assert convert_inline(r"``lr`` is :math:`\eta_g`, not :math:`\tau`.") == "`lr` is η_g, not τ."


def test_blocks_of_a_docstring_are_formatted_to_the_width() -> None:
    doc = textwrap.dedent(r"""
        A rule with a summary that does not fit in one line of forty columns.

        .. math::
            m \leftarrow \beta m + g, \qquad
            x \leftarrow x + m

            y = 1

        Symbols -> here
            :math:`\beta`  -> momentum
            m, g      the moving average and the gradient -> state

        - First item of a list, which is longer than one line.
        - Second item.

        >>> a_doctest_line_is_never_wrapped_whatever_its_length
    """).strip()
    assert format_docstring(doc, width=40).splitlines() == [
        "A rule with a summary that does not fit",
        "in one line of forty columns.",
        "",
        "    m ← β m + g",
        "    x ← x + m",
        "    y = 1",
        "",
        "Symbols -> here",
        "    β     -> momentum",
        "    m, g  the moving average and the",
        "          gradient -> state",
        "",
        "- First item of a list, which is longer",
        "  than one line.",
        "- Second item.",
        "",
        ">>> a_doctest_line_is_never_wrapped_whatever_its_length",
    ]


def test_no_component_shows_tex() -> None:
    tables = (RECIPES, BASELINES, SCENARIOS, *PARTS.values())
    for name, thing in ((name, thing) for table in tables for name, thing in table.items()):
        text = format_docstring(doc_of(thing), width=80)
        prose = [line for line in text.splitlines() if not line.startswith((">>>", "..."))]
        assert not any(mark in line for mark in ("\\", ":math:", "``") for line in prose), name
