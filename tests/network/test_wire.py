"""Bytes from outside may be anything; what comes out is a message that fits, or an error of ours."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save

from thalweg.aggregation import ShiftAware
from thalweg.bank import FedDrift
from thalweg.core.errors import BadMessage, Diverged, ShapeMismatch, ThalwegError
from thalweg.core.trees import tree_from_bytes, tree_to_bytes
from thalweg.core.types import Supply
from thalweg.federation import (
    Hello,
    Message,
    SurveyRequest,
    SurveyResponse,
    TrainRequest,
    TrainResponse,
)
from thalweg.local import Curvature
from thalweg.memory import Fifo, Ode
from thalweg.network.wire import (
    FORMAT,
    MessageSchema,
    check_matches_request,
    from_bytes,
    read_request,
    read_response,
    to_bytes,
)
from thalweg.recipes import Recipe
from thalweg.sample_weights import OldAndNew
from thalweg.selection import Dpcs

P = 3
TALKATIVE = Recipe(
    name="everything at once",
    memory=Ode(),
    sample_weights=OldAndNew(),
    selection=Dpcs(),
    objective=Curvature(),
    weights=ShiftAware(),
    bank=FedDrift(),
)
TERMS = MessageSchema(TALKATIVE, P)
SILENT = MessageSchema(Recipe(name="plain", memory=Fifo()), P)


def f4(*values: float) -> Any:
    return np.array(values, dtype=np.float32)


HELLO = Hello(4, Supply(total=120.5, is_historical=True, rounds=10.0))
ORDER = TrainRequest(
    rnd=7,
    client=4,
    models=np.array([1]),
    lr_scales=np.array([0.5]),
    params=f4(1, 2, 3)[None],
    session=3,
    age=9,
    probe_round=2,
    broadcast={
        "memory": {"gradient": f4(0.5, 0.25)},
        "objective": {"others_fisher": f4(1, 1, 1), "others_fisher_params": f4(2, 2, 2)},
        "sample_weights": {"assigned": f4(0.125)},
    },
)
REPLY = TrainResponse(
    rnd=7,
    client=4,
    models=np.array([1]),
    deltas=f4(-1, 0, 1)[None],
    num_samples=24,
    num_steps=np.array([6]),
    losses=np.array([0.1]),
    num_tested=np.array([10]),
    num_correct=np.array([9]),
    probe_round=2,
    reports={"shift_score": np.array([0.3])},
    uploads={"memory.gradient": f4()[None], "objective.fisher": f4(1, 2, 3)[None]},
)
QUESTION = SurveyRequest(7, 4, "bank", np.arange(6, dtype=np.float32).reshape(2, 3))
ANSWER = SurveyResponse(
    7, 4, "bank", {"model_costs": np.array([0.5, np.nan]), "samples": np.array([8.0])}
)
MESSAGES = [HELLO, ORDER, REPLY, QUESTION, ANSWER]
NAMES = [type(message).__name__ for message in MESSAGES]


def same(a: Any, b: Any) -> bool:
    """Equal in every field and every bit."""
    return bool(tree_to_bytes(_plain(a)) == tree_to_bytes(_plain(b)))


def _plain(message: Message) -> dict[str, Any]:
    return dict(vars(message))


def there_and_back(message: Any) -> Any:
    return from_bytes(to_bytes(message, TERMS), TERMS, type(message))


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_every_message_comes_back_bit_by_bit(message: Message) -> None:
    back = there_and_back(message)
    assert type(back) is type(message)
    assert same(back, message)


def test_a_client_that_took_no_step_has_no_loss() -> None:
    idle = replace(
        REPLY,
        num_steps=np.array([0]),
        losses=np.array([np.nan]),
        reports={"shift_score": np.array([np.nan])},
    )
    assert same(there_and_back(idle), idle)


def test_a_question_that_shows_no_models_carries_none() -> None:
    question = SurveyRequest(7, 4, "selection", np.empty((0, P), dtype=np.float32))
    assert there_and_back(question).bank.shape == (0, P)
    with pytest.raises(ShapeMismatch, match=r"2 models came with .* Dpcs, which shows none"):
        to_bytes(replace(question, bank=np.zeros((2, P), dtype=np.float32)), TERMS)
    with pytest.raises(ShapeMismatch, match=r"0 models came with .* FedDrift, which shows them"):
        to_bytes(replace(question, stage="bank"), TERMS)


def test_what_arrives_is_ours_to_change() -> None:
    order = there_and_back(ORDER)
    order.params[0, 0] = 9
    assert ORDER.params[0, 0] == 1


# --- refused, each with its reason ---

WRONG: dict[str, tuple[Message, type[ThalwegError], str]] = {
    "model of another size": (
        replace(ORDER, params=f4(1, 2)[None]),
        ShapeMismatch,
        r"TrainRequest: params has shape \(1, 2\), expected \(1, 3\)\. Do both sides run the same",
    ),
    "update of another size": (
        replace(REPLY, deltas=np.zeros((2, 3), dtype=np.float32)),
        ShapeMismatch,
        r"TrainResponse: deltas has shape \(2, 3\), expected \(1, 3\)",
    ),
    "other numbers": (
        replace(REPLY, deltas=np.zeros((1, 3))),
        BadMessage,
        "TrainResponse: deltas must be an array of float32, got an array of float64",
    ),
    "bank of another size": (
        replace(QUESTION, bank=np.zeros((2, 4), dtype=np.float32)),
        ShapeMismatch,
        r"bank has shape \(2, 4\), expected \('any', 3\)",
    ),
    "a model that diverged": (
        replace(ORDER, params=f4(1, np.inf, 0)[None]),
        Diverged,
        "TrainRequest: params is not finite",
    ),
    "an endless pace": (
        replace(ORDER, lr_scales=np.array([np.inf])),
        Diverged,
        "lr_scales is not finite",
    ),
    "a negative pace": (
        replace(ORDER, lr_scales=np.array([-0.5])),
        BadMessage,
        "TrainRequest: lr_scales must be numbers of at least 0, got -0.5",
    ),
    "a negative round": (
        replace(ORDER, rnd=-1),
        BadMessage,
        "TrainRequest: rnd must be a whole number from 0 to .*, got -1",
    ),
    "more right than tested": (
        replace(REPLY, num_correct=np.array([11])),
        BadMessage,
        r"num_correct must be whole numbers from 0 to what is possible, got \[11\]",
    ),
    "no models": (
        replace(ORDER, models=np.empty(0, dtype=np.int64)),
        BadMessage,
        "TrainRequest: models must be a list of one or more whole numbers",
    ),
    "a model twice": (
        replace(
            ORDER,
            models=np.array([1, 1]),
            lr_scales=np.ones(2),
            params=np.zeros((2, P), dtype=np.float32),
        ),
        BadMessage,
        r"TrainRequest: models must be ascending, got \[1, 1\]",
    ),
    "steps of more models than there are": (
        replace(REPLY, num_steps=np.array([6, 6])),
        BadMessage,
        "TrainResponse: num_steps must be a list of 1 whole numbers",
    ),
    "values of a stage that is silent": (
        replace(REPLY, uploads={"weights.word": f4(1)[None]}),
        BadMessage,
        r"TrainResponse\.uploads: nobody knows 'weights.word' in this recipe",
    ),
    "a stage that tells nothing": (
        replace(ORDER, broadcast={"bank": {"word": f4(1)}}),
        BadMessage,
        r"TrainRequest\.broadcast: nobody knows 'bank' in this recipe",
    ),
    "an sample_weights of two numbers": (
        replace(ORDER, broadcast={"sample_weights": {"assigned": f4(1, 2)}}),
        ShapeMismatch,
        r"TrainRequest\.broadcast\.sample_weights: assigned has shape \(2,\), expected \(1,\)",
    ),
    "an sample_weights with another name": (
        replace(ORDER, broadcast={"sample_weights": {"assigned": f4(1), "more": f4(1)}}),
        BadMessage,
        "nobody knows the field 'more'",
    ),
    "an alarm where there is none": (
        replace(ORDER, broadcast={"alarm": {"shrink": f4(0)}}),
        BadMessage,
        r"TrainRequest\.broadcast: nobody knows 'alarm' in this recipe",
    ),
    "a matrix of values": (
        replace(REPLY, uploads={"memory.gradient": np.zeros((2, 2), dtype=np.float32)}),
        ShapeMismatch,
        r"memory\.gradient has shape \(2, 2\), expected \(1, 'any'\)",
    ),
    "a strange name": (
        replace(ANSWER, values={"a b": np.ones(1)}),
        BadMessage,
        "a name must be at most 64 letters, digits and _.-, got 'a b'",
    ),
    "too many names": (
        replace(ANSWER, values={f"w{n}": np.ones(1) for n in range(65)}),
        BadMessage,
        "must be at most 64 values by name",
    ),
    "a stage that does not exist": (
        replace(ANSWER, stage="memory"),  # type: ignore[arg-type]
        BadMessage,
        "stage must be one of sample_weights, selection, bank, got 'memory'",
    ),
    "more than agreed": (
        replace(ANSWER, values={"long": np.zeros(200_000)}),
        BadMessage,
        "a message of 16.* bytes is too long: at most .*, that is 32 models of 3 parameters",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_keep_to_the_terms_is_refused_before_it_is_sent(case: str) -> None:
    message, error, text = WRONG[case]
    with pytest.raises(error, match=text):
        to_bytes(message, TERMS)


def unchecked(message: Message) -> bytes:
    """The bytes of somebody who does not check what is sent."""
    fields = {"thalweg": FORMAT, "kind": type(message).__name__, "fields": vars(message)}
    return tree_to_bytes(fields)


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_keep_to_the_terms_is_refused_where_it_arrives(case: str) -> None:
    message, error, text = WRONG[case]
    with pytest.raises(error, match=text):
        from_bytes(unchecked(message), TERMS, type(message))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_client_that_diverged_may_say_so_and_the_server_judges(bad: float) -> None:
    for broken in (
        replace(REPLY, deltas=f4(0, bad, 0)[None]),
        replace(REPLY, losses=np.array([bad])),
        replace(REPLY, reports={"shift_score": np.array([bad])}),
        replace(REPLY, uploads={"memory.gradient": f4(bad)[None]}),
    ):
        with pytest.raises(Diverged, match=r"is not finite\. Try a smaller learning rate"):
            from_bytes(to_bytes(broken, TERMS), TERMS, TrainResponse)


def test_a_recipe_that_says_nothing_gets_nothing() -> None:
    quiet = replace(REPLY, reports={}, uploads={})
    assert same(from_bytes(to_bytes(quiet, SILENT), SILENT, TrainResponse), quiet)
    for loud in (
        replace(quiet, reports={"score": np.ones(1)}),
        replace(quiet, uploads=REPLY.uploads),
    ):
        with pytest.raises(BadMessage, match="nobody knows"):
            to_bytes(loud, SILENT)
    with pytest.raises(BadMessage, match="one of nothing, got 'bank'"):
        to_bytes(QUESTION, SILENT)


def test_only_the_kinds_that_are_expected_come_in() -> None:
    with pytest.raises(BadMessage, match="kind must be one of TrainResponse, got 'TrainRequest'"):
        from_bytes(to_bytes(ORDER, TERMS), TERMS, TrainResponse)
    with pytest.raises(
        BadMessage,
        match="kind must be one of TrainRequest, SurveyRequest, MaskRequest, got 'TrainResponse'",
    ):
        read_request(to_bytes(REPLY, TERMS), TERMS)
    assert isinstance(read_request(to_bytes(ORDER, TERMS), TERMS), TrainRequest)
    assert isinstance(read_request(to_bytes(QUESTION, TERMS), TERMS), SurveyRequest)


def test_a_message_of_another_version_is_named_as_such() -> None:
    tree = tree_from_bytes(to_bytes(ORDER, TERMS))
    with pytest.raises(BadMessage, match=r"has format 5, expected 4\. Do both sides run the same"):
        from_bytes(tree_to_bytes({**tree, "thalweg": 5}), TERMS, TrainRequest)


@pytest.mark.parametrize(
    "change", [{"rnd": 6}, {"client": 5}, {"models": np.array([0])}, {"probe_round": 0}]
)
def test_a_reply_must_be_to_this_very_order(change: dict[str, int]) -> None:
    check_matches_request(read_response(to_bytes(REPLY, TERMS), TERMS), ORDER)
    (name,) = change
    with pytest.raises(BadMessage, match=f"{name} is .*, asked was .*; it came too late, or from"):
        check_matches_request(
            read_response(to_bytes(replace(REPLY, **change), TERMS), TERMS), ORDER
        )


def test_an_answer_must_be_to_this_very_question() -> None:
    check_matches_request(read_response(to_bytes(ANSWER, TERMS), TERMS), QUESTION)
    for other in (replace(ANSWER, rnd=8), replace(ANSWER, stage="selection")):
        with pytest.raises(BadMessage, match="it came too late"):
            check_matches_request(other, QUESTION)


def test_a_reply_answers_no_question_and_an_answer_no_order() -> None:
    with pytest.raises(
        BadMessage, match="TrainResponse of client 4: it does not answer SurveyRequest"
    ):
        check_matches_request(REPLY, QUESTION)
    with pytest.raises(
        BadMessage, match="SurveyResponse of client 4: it does not answer TrainRequest"
    ):
        check_matches_request(ANSWER, ORDER)


# --- anything at all ---


def read_or_refuse(payload: bytes) -> None:
    """No error but ours, and what comes in fits."""
    for kind in (Hello, TrainRequest, TrainResponse, SurveyRequest, SurveyResponse):
        try:
            message = from_bytes(payload, TERMS, kind)
        except (BadMessage, Diverged):
            continue
        assert type(message) is kind
        to_bytes(message, TERMS)


@given(payload=st.binary(max_size=300))
def test_noise_is_refused(payload: bytes) -> None:
    read_or_refuse(payload)
    read_or_refuse(len(payload).to_bytes(8, "little") + payload)


@given(message=st.sampled_from(MESSAGES), share=st.floats(0, 1, exclude_max=True))
def test_a_message_that_was_cut_off_is_refused(message: Message, share: float) -> None:
    payload = to_bytes(message, TERMS)
    with pytest.raises(BadMessage, match="not a tree of Thalweg, or are damaged"):
        from_bytes(payload[: int(share * len(payload))], TERMS, type(message))


@settings(max_examples=400)
@given(
    message=st.sampled_from(MESSAGES),
    flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_flipped_bytes_are_refused_or_harmless(
    message: Message, flips: list[tuple[int, int]]
) -> None:
    payload = bytearray(to_bytes(message, TERMS))
    for place, bits in flips:
        payload[place % len(payload)] ^= bits
    read_or_refuse(bytes(payload))


arrays = hnp.arrays(
    dtype=st.sampled_from([np.bool_, np.uint8, np.int64, np.float16, np.float32, np.float64]),
    shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | arrays
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=300)
@given(message=st.sampled_from(MESSAGES), data=st.data())
def test_fields_of_any_other_kind_are_refused_or_fit(message: Message, data: st.DataObject) -> None:
    tree = tree_from_bytes(to_bytes(message, TERMS))
    inside = data.draw(st.sampled_from([tree, tree["fields"]]))
    name = data.draw(st.sampled_from([*inside, "more"]))
    if data.draw(st.booleans()):
        inside.pop(name, None)
    else:
        inside[name] = data.draw(values)
    read_or_refuse(tree_to_bytes(tree))


@pytest.mark.parametrize("kind", NAMES)
def test_every_field_is_needed_and_no_other(kind: str) -> None:
    message = MESSAGES[NAMES.index(kind)]
    tree = tree_from_bytes(to_bytes(message, TERMS))
    for name in tree["fields"]:
        fields = {other: value for other, value in tree["fields"].items() if other != name}
        with pytest.raises(BadMessage, match=f"{kind}: the field '{name}' is missing"):
            from_bytes(tree_to_bytes({**tree, "fields": fields}), TERMS, type(message))
    more = {**tree["fields"], "extra": 1}
    with pytest.raises(BadMessage, match=f"{kind}: nobody knows the field 'extra'"):
        from_bytes(tree_to_bytes({**tree, "fields": more}), TERMS, type(message))


def forged(outline: Any, **tensors: Any) -> bytes:
    """A safetensors file whose outline says what it likes."""
    text = outline if isinstance(outline, str) else json.dumps(outline)
    return bytes(save(tensors, metadata={"outline": text}))


MANY = np.zeros(1000, dtype=np.float32)
BOMBS = {
    "a huge shape": forged({"$": ["float32", 0, 10**9, 10**9]}, float32=MANY),
    "a huge shape of nothing": forged({"$": ["float32", 0, 0, 10**30]}, float32=MANY[:0]),
    "a negative shape": forged({"$": ["float32", 0, -1, -1000]}, float32=MANY),
    "a shape that is a text": forged({"$": ["float32", 0, "a", 10**9]}, float32=MANY),
    "a shape that is a list": forged({"$": ["float32", 0, [1], 10**9]}, float32=MANY),
    "the same numbers many times": forged([{"$": ["float32", 0, 1000]}] * 1000, float32=MANY),
    "numbers from the middle": forged({"$": ["float32", 500, 500]}, float32=MANY),
    "numbers left over": forged({"$": ["float32", 0, 500]}, float32=MANY),
    "another type than it says": forged({"$": ["float64", 0, 1000]}, float64=MANY),
    "a tensor that nobody has": forged({"$": ["int8", 0, 1]}, float32=MANY),
    "a table of tensors": forged({"$": ["float32", 0, 1000]}, float32=MANY.reshape(10, 100)),
    "no outline": save({"float32": MANY}),
    "an unknown tag": forged({"!": 1}),
    "two tags": forged({"{": {}, "$": []}),
    "no dict where one should be": forged({"{": 3}),
    "no list where one should be": forged({"$": 3}),
    "a deep hole": forged("[" * 100_000 + "]" * 100_000),
    "an endless number": forged("1" * 100_000),
    "an outline that is too long": forged([0] * 1_000_000),
    "a header that is longer than the message": (1 << 60).to_bytes(8, "little") + b"{}",
}


@pytest.mark.parametrize("case", BOMBS)
def test_claims_that_bytes_cannot_keep_cost_nothing(case: str) -> None:
    payload = BOMBS[case]
    terms = replace(TERMS, num_params=1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(BadMessage):
            from_bytes(payload, terms, TrainRequest)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(payload) + (1 << 20)
