from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thalweg.data.words import MAX_WORDS, PADDING, UNKNOWN, build_vocabulary, encode, split

WORDS = st.lists(st.lists(st.sampled_from("abcdefg"), max_size=8), max_size=8)


def test_words_are_lower_case_and_punctuation_is_separate() -> None:
    assert split("Dow's UP,\t2.5%\\again\n") == [
        *("dow", "'", "s", "up", ",", "2", ".", "5", "%", "\\", "again"),
    ]
    assert split("Zürich ÉCOLE") == ["zürich", "école"]
    assert split(" \n") == []


def test_word_codes_are_ordered_by_frequency_then_alphabet() -> None:
    texts = [["b", "a", "c"], ["c", "b"], ["a", "d"]]
    assert build_vocabulary(texts, num_words=9, min_count=1) == {"a": 2, "b": 3, "c": 4, "d": 5}
    assert build_vocabulary(texts, num_words=9, min_count=2) == {"a": 2, "b": 3, "c": 4}
    assert build_vocabulary(texts, num_words=2, min_count=2) == {"a": 2, "b": 3}
    assert build_vocabulary([], num_words=2, min_count=1) == {}


def test_long_texts_are_truncated_and_short_texts_padded() -> None:
    x = encode([["a", "b", "a", "b"], ["new", "b"], []], {"a": 2, "b": 3}, length=3)
    assert x.tolist() == [[2, 3, 2], [UNKNOWN, 3, PADDING], [PADDING] * 3]
    assert x.dtype == np.uint16


def test_largest_word_code_fits_uint16() -> None:
    assert encode([["z"]], {"z": MAX_WORDS + 1}, length=1).tolist() == [[2**16 - 1]]


@given(texts=WORDS, fewer=st.integers(1, 7), min_count=st.integers(1, 3))
def test_smaller_vocabulary_keeps_the_codes_of_its_words(
    texts: list[list[str]], fewer: int, min_count: int
) -> None:
    large = build_vocabulary(texts, 7, min_count)
    small = build_vocabulary(texts, fewer, min_count)
    assert small.items() <= large.items()
    assert sorted(small.values()) == list(range(2, 2 + min(fewer, len(large))))
    both = encode(texts, large, 8), encode(texts, small, 8)
    kept = both[1] != UNKNOWN
    np.testing.assert_array_equal(both[0][kept], both[1][kept])
    assert (both[1] != PADDING).sum(1).tolist() == [len(text) for text in texts]
