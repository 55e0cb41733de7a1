"""Shell completion of recipes, scenarios, studies and settings.

The names are read from `names.json`, which ``python tools/catalogue.py`` writes, because importing
the registries takes seconds.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

NAMES = Path(__file__).with_name("names.json")
DATA_SUFFIXES = (".csv", ".parquet", ".npz")
TRACKER_NAMES = ("tensorboard", "mlflow", "wandb", "trackio")


@cache
def read_names() -> dict[str, Any]:
    """Return the names of components, by kind."""
    found: dict[str, Any] = json.loads(NAMES.read_text(encoding="utf-8"))
    return found


def complete_recipe(incomplete: str) -> list[str]:
    """Complete a recipe, a combination (``fedprox+sfedpo``) or a variant (``sfedpo,memory=fifo``).

    >>> complete_recipe("fedprox+sfed")
    ['fedprox+sfedpo']
    """
    if "," in incomplete:
        before, _, last = incomplete.rpartition(",")
        return [f"{before},{each}" for each in complete_setting(last)]
    before, plus, last = incomplete.rpartition("+")
    return [f"{before}{plus}{each}" for each in read_names()["recipes"] if each.startswith(last)]


def complete_scenario(incomplete: str) -> list[str]:
    """Complete the name of a scenario or the path of a data file.

    >>> complete_scenario("digits-pa")
    ['digits-partial']
    """
    names = [each for each in read_names()["scenarios"] if each.startswith(incomplete)]
    folder, _, start = incomplete.rpartition("/")
    place = Path(folder + "/" if incomplete.startswith("/") else folder or ".")
    files = sorted(place.iterdir()) if place.is_dir() else []
    prefix = incomplete[: len(incomplete) - len(start)]
    return names + [
        prefix + file.name
        for file in files
        if file.suffix in DATA_SUFFIXES and file.name.startswith(start)
    ]


def complete_study(incomplete: str) -> list[str]:
    """Complete the name of a study."""
    return [each for each in read_names()["studies"] if each.startswith(incomplete)]


def complete_tracker(incomplete: str) -> list[str]:
    """Complete the name of a tracker.

    >>> complete_tracker("t")
    ['tensorboard', 'trackio']
    """
    return [each for each in TRACKER_NAMES if each.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    """Complete a setting: first the part, then its choices (``memory=``) and fields (``memory.``).

    Fields are followed by their default. ``memory.kind=`` is the long form of ``memory=``.

    >>> complete_setting("memory=f")
    ['memory=fifo']
    >>> complete_setting("memory.kind=f")
    ['memory.kind=fifo']
    >>> complete_setting("memory.bud")
    ['memory.budget=0.5']
    """
    part, is_long, start = incomplete.partition(".kind=")
    if is_long:
        return [each.replace("=", ".kind=", 1) for each in complete_setting(f"{part}={start}")]
    settings = read_names()["settings"]
    if "=" in incomplete or "." in incomplete:
        return [each for each in settings if each.startswith(incomplete)]
    parts = dict.fromkeys(each.partition("=")[0].partition(".")[0] + "=" for each in settings)
    matches = [part for part in parts if part.startswith(incomplete)]
    if len(matches) > 1:
        return matches
    return [each for each in settings for part in matches if each.startswith((part, part[:-1]))]


def complete_name(incomplete: str) -> list[str]:
    """Complete anything that ``thalweg show`` explains."""
    names = read_names()
    known = [*names["recipes"], *names["scenarios"], *names["choices"]]
    return [each for each in dict.fromkeys(known) if each.startswith(incomplete)]


def complete_in_bash(run: Callable[[], None]) -> None:
    """Print the completions of ``run`` for a bash that splits words at ``=``.

    Bash passes ``memory=d`` as three words (COMP_WORDBREAKS) and replaces only the last one. The
    words are joined before `run`, which prints whole values, and the part before the last word is
    removed from them.
    """
    words = os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]
    joined = join_words(words)
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = "\n".join(joined), str(len(joined) - 1)
    output = io.StringIO()
    try:
        with redirect_stdout(output):
            run()
    finally:
        before = get_part_before(joined[-1])
        values = output.getvalue().splitlines()
        sys.stdout.write("".join(f"{each.removeprefix(before)}\n" for each in values))


def join_words(words: Sequence[str]) -> list[str]:
    """Join words that bash has split at ``=``. An empty last word follows a space.

    >>> join_words(["--set", "memory", "=", "d"]), join_words(["--set", "memory", "="])
    (['--set', 'memory=d'], ['--set', 'memory='])
    >>> join_words(["--set", "memory", "=", "dds", ""])
    ['--set', 'memory=dds', '']
    """
    joined: list[str] = []
    for word in words:
        if joined and (word == "=" or (joined[-1].endswith("=") and word)):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def get_part_before(word: str) -> str:
    """The part of a word that bash does not replace, without the name of an option.

    >>> get_part_before("memory=d"), get_part_before("--set=memory=d"), get_part_before("--on=d")
    ('memory=', 'memory=', '')
    """
    value = word.partition("=")[2] if word.startswith("--") else word
    before, equals, _ = value.rpartition("=")
    return before + equals
