"""Messages in lines of limited length, without control characters."""

from __future__ import annotations

import re
import textwrap

# Commands are copied from the terminal, so that no line break may be in them.
COMMAND = re.compile(
    r"`[^`\n]+`"
    r"|--set \S+"
    r"|\bpip install (?:'[^']+'|[\w-]+)"
    r"|\bpython -c \"[^\"\n]*\""
    r"|(?<=: )thalweg [a-z-]+ [^\n]*"
    r"|\bthalweg (?:run|compare|tune|serve|join|predict|export|show) (?:[^\s(),;]|, (?=-))+"
)
SPACE = "\x00"  # a space that is not a line break


def wrap_message(text: str, width: int) -> str:
    """Wrap lines between words; paths and commands remain whole.

    >>> print(wrap_message("thalweg: the file has no label: thalweg run fedavg --on a.csv", 30))
    thalweg: the file has no
    label:
    thalweg run fedavg --on a.csv
    """
    return "\n".join(
        line
        if len(line) <= width
        else textwrap.fill(
            COMMAND.sub(lambda found: found.group().replace(" ", SPACE), line),
            width,
            break_long_words=False,
            break_on_hyphens=False,
            subsequent_indent=" " * (len(line) - len(line.lstrip())),
        ).replace(SPACE, " ")
        for line in text.split("\n")
    )


def make_printable(text: str) -> str:
    r"""Return a text that may contain values of others without control characters.

    >>> make_printable("\x1b[2Jready")
    '?[2Jready'
    """
    return "".join(each if each.isprintable() or each == "\n" else "?" for each in text)
