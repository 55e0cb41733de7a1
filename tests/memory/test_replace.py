from __future__ import annotations

import numpy as np
import pytest

from contracts.examples import some_memory_context
from thalweg.memory import Replace


@pytest.mark.parametrize(
    ("held", "num_new", "kept"),
    [
        (4, 4, [4, 5, 6, 7]),
        (4, 2, [4, 5]),  # few arrivals leave a small memory
        (0, 3, [0, 1, 2]),
        (4, 6, [6, 7, 8, 9]),  # the newest
        (3, 0, [0, 1, 2]),  # a tick without arrivals
    ],
)
def test_only_the_newest_arrivals_are_kept(held: int, num_new: int, kept: list[int]) -> None:
    context = some_memory_context(4, held, num_new)
    assert Replace().keep(None, context, np.random.default_rng(0))[1].tolist() == kept


def test_the_predicted_renewal_is_one_unless_nothing_arrives() -> None:
    assert Replace().predict_renewal(None, some_memory_context(4, 4, 2)).tolist() == [1.0] * 3
    assert Replace().predict_renewal(None, some_memory_context(4, 4, 0)).tolist() == [0.0] * 3
