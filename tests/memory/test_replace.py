from __future__ import annotations

import numpy as np
import pytest

from contracts.examples import some_memory_context
from thalweg.memory import Replace


@pytest.mark.parametrize(
    ("held", "num_new", "kept"),
    [
        (4, 4, [4, 5, 6, 7]),
        (4, 2, [4, 5]),  # a small arrival leaves a small memory
        (0, 3, [0, 1, 2]),
        (4, 6, [6, 7, 8, 9]),  # the newest
        (3, 0, [0, 1, 2]),  # a quiet tick
    ],
)
def test_only_what_has_just_arrived_stays(held: int, num_new: int, kept: list[int]) -> None:
    intake = some_memory_context(4, held, num_new)
    assert Replace().keep(None, intake, np.random.default_rng(0))[1].tolist() == kept


def test_everything_is_renewed_unless_nothing_arrives() -> None:
    assert Replace().predict_renewal(None, some_memory_context(4, 4, 2)).tolist() == [1.0] * 3
    assert Replace().predict_renewal(None, some_memory_context(4, 4, 0)).tolist() == [0.0] * 3
