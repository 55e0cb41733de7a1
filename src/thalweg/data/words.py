"""Texts as rows of integers: tokens coded by frequency."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

PADDING, UNKNOWN = 0, 1  # code after the end of a text, and code of unknown words
MAX_WORDS = 2**16 - 2  # maximum for uint16 besides these two codes

WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")

Codes = npt.NDArray[np.uint16]


def split(text: str) -> list[str]:
    """The words of a text in lower case; every other character is a separate token.

    >>> split("Oil's up 3%... again")
    ['oil', "'", 's', 'up', '3', '%', '.', '.', '.', 'again']
    """
    return WORD_OR_SIGN.findall(text.lower())


def build_vocabulary(
    texts: Iterable[Sequence[str]], num_words: int, min_count: int
) -> dict[str, int]:
    """Codes 2, 3, ... of the most frequent words; ties are in alphabetical order.

    A smaller `num_words` drops the last words and keeps the codes of the others.

    >>> build_vocabulary([["to", "be"], ["or"], ["not", "to", "be", "?"], ["to"]], 3, min_count=1)
    {'to': 2, 'be': 3, '?': 4}
    """
    counts = Counter(word for text in texts for word in text)
    often = [(-count, word) for word, count in counts.items() if count >= min_count]
    return {word: code for code, (_, word) in enumerate(sorted(often)[:num_words], UNKNOWN + 1)}


def encode(texts: Sequence[Sequence[str]], codes: Mapping[str, int], length: int) -> Codes:
    """The first `length` words of each text, (n, length); shorter texts end in padding.

    >>> encode([["to", "be", "or"], ["be"]], {"to": 2, "be": 3}, length=3).tolist()
    [[2, 3, 1], [3, 0, 0]]
    """
    x: Codes = np.full((len(texts), length), PADDING, dtype=np.uint16)
    for row, text in zip(x, texts, strict=True):
        mine = [codes.get(word, UNKNOWN) for word in text[:length]]
        row[: len(mine)] = mine
    return x
