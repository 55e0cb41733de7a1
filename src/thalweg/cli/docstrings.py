"""Docstrings as plain text for a terminal: formulas in Unicode, paragraphs wrapped to its width."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator

COMMANDS = {
    **{name: chr(code) for name, code in {
        "alpha": 0x3B1, "beta": 0x3B2, "gamma": 0x3B3, "delta": 0x3B4, "varepsilon": 0x3B5,
        "epsilon": 0x3B5, "zeta": 0x3B6, "eta": 0x3B7, "theta": 0x3B8, "kappa": 0x3BA,
        "lambda": 0x3BB, "mu": 0x3BC, "xi": 0x3BE, "pi": 0x3C0, "rho": 0x3C1, "sigma": 0x3C3,
        "tau": 0x3C4, "phi": 0x3C6, "varphi": 0x3C6, "chi": 0x3C7, "psi": 0x3C8, "omega": 0x3C9,
        "Gamma": 0x393, "Delta": 0x394, "Theta": 0x398, "Lambda": 0x39B, "Sigma": 0x3A3,
        "Phi": 0x3A6, "Psi": 0x3A8, "Omega": 0x3A9,
    }.items()},
    "sum": "Σ", "prod": "Π", "in": "∈", "sim": "~", "propto": "∝", "cdot": "·", "times": "×",
    "circ": "∘", "le": "≤", "ge": "≥", "ne": "≠", "approx": "≈", "leftarrow": "←", "to": "→",
    "infty": "∞", "ell": "ℓ", "jmath": "j", "top": "T", "neg": "¬", "nabla": "∇", "mid": "|",
    "ldots": "...", "lVert": "‖", "|": "‖", "langle": "⟨", "rangle": "⟩",
    "cup": "∪", "triangle": "△",
    "lceil": "⌈", "rceil": "⌉", "lfloor": "⌊", "rfloor": "⌋", "{": "{", "}": "}",
    **dict.fromkeys((",", ";", " ", "quad", "qquad"), " "),
    **dict.fromkeys(("!", "big", "Big", "bigl", "bigr", "left", "right"), ""),
    **dict.fromkeys(("textstyle", "displaystyle"), ""),
    **{name: name for name in (
        "max", "min", "log", "ln", "exp", "sin", "cos", "tanh", "mod", "arg", "det")},
}  # fmt: skip
OPENING = ("neg", "nabla", "lVert", "langle", "lceil", "lfloor")  # no space follows
TEXT = ("mathrm", "mathbf", "mathcal", "text", "operatorname")
ACCENTS = {"hat": "\u0302", "bar": "\u0304", "tilde": "\u0303"}
SUBSCRIPTS = str.maketrans("0123456789+-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ")
SUPERSCRIPTS = str.maketrans("0123456789+-=()iknptT", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁱᵏⁿᵖᵗᵀ")
TOKEN = re.compile(r"\\([a-zA-Z]+|.)|[_^{}]|\s+|.", re.DOTALL)


def tex_to_text(formula: str) -> str:
    r"""Convert a formula in TeX to one line of Unicode.

    Indices without Unicode characters stay as they are: ``x_c``, ``x^{a/b}``.

    >>> tex_to_text(r"\hat\pi_n \leftarrow \frac{a + c_{n,m}}{2 K} - \sqrt{v^2 + 1}")
    'π̂ₙ ← (a + c_{n,m})/(2 K) - √(v² + 1)'
    """
    tokens = [match[0] for match in TOKEN.finditer(formula.strip())]
    text = _convert(tokens)
    text = re.sub(r" +", " ", text)
    text = re.sub(r"(?<=[(\[⌈⌊⟨]) | (?=[)\],⌉⌋⟩])", "", text)
    return unicodedata.normalize("NFC", text.strip())


def _convert(tokens: list[str]) -> str:
    """Convert tokens and remove them from the list, up to a closing brace or the end."""
    text = ""
    while tokens and tokens[0] != "}":
        token = tokens[0]
        if token in "_^":
            tokens.pop(0)
            text += _to_index(token, _convert_argument(tokens))
        elif token == r"\rVert":
            tokens.pop(0)
            text = text.rstrip() + "‖"
        else:
            text += _convert_argument(tokens, in_sequence=True)
    return text


def _convert_argument(tokens: list[str], in_sequence: bool = False) -> str:
    """Convert and remove one character, command or group."""
    while not in_sequence and tokens and tokens[0].isspace():
        tokens.pop(0)
    if not tokens:
        return ""
    token = tokens.pop(0)
    if token == "{":
        text = _convert(tokens)
        tokens[:1] = []  # the closing brace
        return text
    if token.isspace():
        return " "
    if not token.startswith("\\"):
        return token
    name = token[1:]
    if name in ("frac", "tfrac"):
        above, below = _convert_argument(tokens), _convert_argument(tokens)
        space = " " if tokens[:1] and tokens[0] != "}" else ""
        if (above, below) == ("1", "2"):
            return f"½{space}"
        return f"{_group(above)}/{_group(below)}{space}"
    if name == "sqrt":
        return f"√{_group(_convert_argument(tokens))}"
    if name in ACCENTS:
        letter = _convert_argument(tokens)
        return letter[:1] + ACCENTS[name] + letter[1:]
    if name in TEXT:
        return _convert_argument(tokens)
    if name in OPENING or COMMANDS.get(name) == "":
        while tokens and tokens[0].isspace():
            tokens.pop(0)
    if name == "arg" and tokens[:1] == [r"\min"]:
        return "arg "
    return COMMANDS.get(name, token)


def _group(text: str) -> str:
    """Add parentheses if the text is more than one factor."""
    text = text.strip()
    is_factor = not re.search(r"[\s/+]|(?<=.)-", re.sub(r"\([^()]*\)|\{[^{}]*\}", "", text))
    return text if is_factor else f"({text})"


def _to_index(kind: str, text: str) -> str:
    """Return a subscript or superscript, in Unicode characters if there are any.

    >>> _to_index("_", "n"), _to_index("_", "new"), _to_index("^", "-a/b")
    ('ₙ', '_new', '^{-a/b}')
    """
    table = SUBSCRIPTS if kind == "_" else SUPERSCRIPTS
    text = text.strip()
    if text in "*'+" or (len(text) <= 3 and all(ord(each) in table for each in text)):
        return text if text in "*'" else text.translate(table)
    return f"{kind}{text}" if text.isalnum() else f"{kind}{{{text}}}"


def convert_inline(text: str) -> str:
    """Convert the formulas and the literals in a line or a paragraph.

    >>> convert_inline(r"``lr`` is :math:`\\eta_g`.")
    '`lr` is η_g.'
    """
    text = re.sub(r":math:`([^`]*)`", lambda match: tex_to_text(match[1]), text)
    return text.replace("``", "`")


def format_docstring(doc: str, width: int) -> str:
    """Return a docstring as text: paragraphs, lists and formulas at most `width` columns wide."""
    return "\n\n".join(_format_block(block, width) for block in _split_blocks(doc))


def _split_blocks(doc: str) -> Iterator[str]:
    """Yield the blocks between empty lines; a formula is one block, even with empty lines."""
    block: list[str] = []
    for line in doc.splitlines():
        in_formula = bool(block) and block[0].startswith(".. math::")
        if block and (not line or (in_formula and not line.startswith(" "))):
            if in_formula and not line:
                block.append(line)
                continue
            yield "\n".join(block)
            block = []
        if line:
            block.append(line)
    if block:
        yield "\n".join(block)


def _format_block(block: str, width: int) -> str:
    if block.startswith(">>>"):
        return block
    if block.startswith(".. math::"):
        parts = re.split(r",\s*\\q?quad|\n\n", block.removeprefix(".. math::"))
        formulas = [tex_to_text(part) for part in parts if part.strip()]
        return "\n".join(_fill(formula, width, "    ", "        ") for formula in formulas)
    lines = block.splitlines()
    return "\n".join(
        text
        for is_list, group in _group_lines(lines)
        for text in (_format_entries(group, width) if is_list else _format_paragraph(group, width))
    )


def _group_lines(lines: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """Yield groups of lines: paragraphs, and lists of indented entries."""
    group: list[str] = []
    is_list = False
    for line in lines:
        if group and line.startswith("    ") != is_list:
            yield is_list, group
            group = []
        is_list = line.startswith("    ")
        group.append(line)
    yield is_list, group


def _format_paragraph(lines: list[str], width: int) -> list[str]:
    """Wrap a paragraph, or each item of a list with bullets."""
    items = re.split(r"\n(?=- )", "\n".join(line.strip() for line in lines))
    return [_fill(convert_inline(item), width, "", "  " * item.startswith("- ")) for item in items]


def _format_entries(lines: list[str], width: int) -> list[str]:
    """Align entries such as ``symbol -> field``; lines with a larger indent continue an entry."""
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    entries: list[str] = []
    for line in lines:
        if entries and line[indent] == " ":
            entries[-1] += " " + line.strip()
        else:
            entries.append(line.strip())
    cells = [_split_entry(convert_inline(entry)) for entry in entries]
    start = min(max(_width(first) for first, rest in cells), width // 2)
    return [
        _fill(
            f"{first}{' ' * (start - _width(first))}  {rest}" if rest else first,
            width,
            "    ",
            " " * (start + (9 if rest.startswith("->") else 6)) if rest else "      ",
        )
        for first, rest in cells
    ]


def _split_entry(entry: str) -> tuple[str, str]:
    """Split an entry into its two columns; the second may be empty.

    >>> _split_entry("n -> num_clients"), _split_entry("t   time -> rnd"), _split_entry("a b")
    (('n', '-> num_clients'), ('t', 'time -> rnd'), ('a b', ''))
    """
    first, *rest = re.split(r"\s{2,}| (?=-> )", entry, maxsplit=1)
    return first, re.sub(r"\s+", " ", "".join(rest))


def _fill(text: str, width: int, first: str, others: str) -> str:
    """Wrap at spaces only. Runs of spaces, which align columns, are kept."""
    return textwrap.fill(
        re.sub(r"\s*\n\s*", " ", text),
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _width(text: str) -> int:
    """Return the number of columns; combining characters have none."""
    return sum(not unicodedata.combining(each) for each in text)
