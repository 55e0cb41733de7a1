from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import to_comparable
from thalweg.core.errors import ConfigError
from thalweg.federation import (
    TrainResponse,
    build_updates,
    drop_odd_lengths,
    select_uniform_responses,
    split_updates,
    stack_uploads,
    tabulate_responses,
)


def response(
    client: int,
    reports: dict[str, float] | None = None,
    uploads: dict[str, Sequence[float]] | None = None,
) -> TrainResponse:
    return TrainResponse(
        rnd=1,
        client=client,
        models=np.array([client % 2]),
        deltas=np.full((1, 2), client, dtype=np.float32),
        num_samples=10 + client,
        num_steps=np.array([3]),
        losses=np.array([0.5 * client]),
        num_tested=np.array([8]),
        num_correct=np.array([client]),
        reports={name: np.array([x]) for name, x in (reports or {}).items()},
        uploads={name: np.array([x], dtype=np.float32) for name, x in (uploads or {}).items()},
    )


def test_rows_are_converted_back_to_responses() -> None:
    responses = [response(n, {"score": 0.25 * n}, {"memory.word": [1.0, n]}) for n in (1, 4)]
    updates = build_updates(responses, num_params=2)
    assert to_comparable(vars(build_updates(split_updates(updates, 1), 2))) == to_comparable(
        vars(updates)
    )
    assert [to_comparable(vars(each)) for each in split_updates(updates, 1)] == [
        to_comparable(vars(each)) for each in responses
    ]


def test_client_has_a_row_for_each_of_its_models() -> None:
    both = replace(
        response(3),
        models=np.array([0, 2]),
        deltas=np.array([[1, 1], [2, 2]], dtype=np.float32),
        num_steps=np.array([3, 0]),
        losses=np.array([0.5, np.nan]),
        num_tested=np.array([0, 8]),
        num_correct=np.array([0, 6]),
    )
    updates = build_updates([response(1), both], num_params=2)
    assert updates.clients.tolist() == [1, 3, 3]
    assert updates.models.tolist() == [1, 0, 2]
    assert updates.num_samples.tolist() == [11, 13, 13]
    assert updates.deltas[:, 0].tolist() == [1, 1, 2]
    assert updates.is_newest.tolist() == [True, False, True]
    assert to_comparable(vars(build_updates(split_updates(updates, 1), 2))) == to_comparable(
        vars(updates)
    )


def test_responses_of_earlier_rounds_are_marked() -> None:
    responses = [replace(response(1), rnd=3), response(4)]
    updates = build_updates(responses, 2, rnd=3)
    assert updates.trained_in is not None
    assert updates.trained_in.tolist() == [3, 1]
    assert build_updates(responses[:1], 2, rnd=3).trained_in is None
    assert build_updates(responses, 2).trained_in is None, "the round is not given"


def test_each_response_becomes_a_row() -> None:
    score = {"score": 0.25}
    uploads = {"memory.word": [1.0, 2.0]}
    updates = build_updates(
        [response(1, score, uploads), response(4, score, uploads)], num_params=2
    )
    assert updates.clients.tolist() == [1, 4]
    assert updates.models.tolist() == [1, 0]
    assert updates.deltas.tolist() == [[1, 1], [4, 4]]
    assert updates.deltas.dtype == np.float32
    assert updates.num_samples.tolist() == [11, 14]
    assert updates.losses.tolist() == [0.5, 2.0]
    assert (updates.num_tested.tolist(), updates.num_correct.tolist()) == ([8, 8], [1, 4])
    assert updates.reports["score"].tolist() == [0.25, 0.25]
    assert updates.uploads["memory.word"].tolist() == [[1, 2], [1, 2]]


def test_no_responses_give_updates_without_rows() -> None:
    updates = build_updates([], num_params=5)
    assert len(updates) == 0
    assert updates.deltas.shape == (0, 5)
    assert updates.reports == updates.uploads == {}


def test_uploads_become_a_matrix_and_empty_ones_zeros() -> None:
    words: list[dict[str, Any]] = [
        {"w": np.array([1, 2], dtype="f4")},
        {"w": np.empty(0, dtype="f4")},
    ]
    assert stack_uploads(words)["w"].tolist() == [[1.0, 2.0], [0.0, 0.0]]
    assert stack_uploads([{}, {}]) == stack_uploads([]) == {}


def test_vectors_of_different_lengths_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"Rule\.answer_survey must return vectors of one length"):
        tabulate_responses([{"a": np.ones(2)}, {"a": np.ones(3)}], "Rule")


def kept(responses: list[TrainResponse]) -> list[int]:
    return [each.client for each in select_uniform_responses(responses)]


def test_responses_with_unusual_report_names_are_dropped() -> None:
    a, b = {"score": 1.0}, {"other": 1.0}
    assert kept([response(0, a), response(1, b), response(2, a), response(3)]) == [0, 2]
    assert kept([response(0, b), response(1, a)]) == [0], "the first of two forms"
    assert kept([]) == []


def test_responses_with_uploads_of_unusual_length_are_dropped() -> None:
    two, three = {"memory.word": [1, 2]}, {"memory.word": [1, 2, 3]}
    nothing: dict[str, Sequence[float]] = {"memory.word": []}
    responses = [
        response(0, uploads=three),
        response(1, uploads=two),
        response(2, uploads=nothing),
        response(3, uploads=two),
    ]
    assert kept(responses) == [1, 2, 3], "an empty vector fits any length"
    assert build_updates(select_uniform_responses(responses), 2).uploads[
        "memory.word"
    ].tolist() == [
        [1, 2],
        [0, 0],
        [1, 2],
    ]
    assert kept([response(0, uploads=nothing), response(1, uploads=nothing)]) == [0, 1]


def test_survey_responses_of_unusual_length_are_dropped() -> None:
    words = [{"a": np.ones(2), "b": np.ones(1)}, {"a": np.ones(3)}, {"a": np.zeros(2)}, {}]
    tables = tabulate_responses(drop_odd_lengths(words), "Rule")
    assert tables["a"][[0, 2]].tolist() == [[1, 1], [0, 0]]
    assert np.isnan(tables["a"][[1, 3]]).all()
    assert tables["b"][0].tolist() == [1]
