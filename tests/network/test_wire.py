"""Any bytes are decoded to a valid message or raise an error of the library."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save

from thalweg.aggregation import Averaged, ShiftAware
from thalweg.bank import FedDrift, FedRc
from thalweg.core.errors import BadMessage, Diverged, ShapeMismatch, ThalwegError
from thalweg.core.trees import tree_from_bytes, tree_to_bytes
from thalweg.core.types import Supply
from thalweg.drift import Action, DropOutdated, OpenState, PageHinkley, RecordOnly, Shrink
from thalweg.federation import Hello, SurveyRequest, SurveyResponse, TrainRequest, TrainResponse
from thalweg.local import Curvature
from thalweg.memory import Fifo, Ode
from thalweg.network.wire import (
    FORMAT,
    Message,
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
from thalweg.serving import BestRecent

P = 3
FULL_RECIPE = Recipe(
    name="all stages",
    memory=Ode(),
    sample_weights=OldAndNew(),
    selection=Dpcs(),
    objective=Curvature(),
    weights=ShiftAware(),
    bank=FedDrift(),
)
SCHEMA = MessageSchema(FULL_RECIPE, P)
PLAIN_SCHEMA = MessageSchema(Recipe(name="plain", memory=Fifo()), P)


def f4(*values: float) -> Any:
    return np.array(values, dtype=np.float32)


HELLO = Hello(4, Supply(total=120.5, is_historical=True, rounds=10.0))
TRAIN_REQUEST = TrainRequest(
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
TRAIN_RESPONSE = TrainResponse(
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
SURVEY_REQUEST = SurveyRequest(7, 4, "bank", np.arange(6, dtype=np.float32).reshape(2, 3))
SURVEY_RESPONSE = SurveyResponse(
    7, 4, "bank", {"model_costs": np.array([0.5, np.nan]), "samples": np.array([8.0])}
)
MESSAGES = [HELLO, TRAIN_REQUEST, TRAIN_RESPONSE, SURVEY_REQUEST, SURVEY_RESPONSE]
NAMES = [type(message).__name__ for message in MESSAGES]


def same(a: Any, b: Any) -> bool:
    """Equal in every field and every bit."""
    return bool(tree_to_bytes(to_plain(a)) == tree_to_bytes(to_plain(b)))


def to_plain(message: Message) -> dict[str, Any]:
    return dict(vars(message))


def round_trip(message: Any) -> Any:
    return from_bytes(to_bytes(message, SCHEMA), SCHEMA, type(message))


AVERAGING = MessageSchema(
    Recipe(name="averages", memory=Fifo(), server=Averaged(), serving=BestRecent()), P
)


def test_averaged_models_have_the_size_of_the_models() -> None:
    request = replace(TRAIN_REQUEST, broadcast={"serving": {"averages": f4(1, 2, 3)}})
    back = from_bytes(to_bytes(request, AVERAGING), AVERAGING, TrainRequest)
    assert same(back, request)
    for values, message in (
        ({"averages": f4(1, 2)}, r"averages has shape \(2,\), expected \(3,\)"),
        ({"averages": f4(1, 2, 3), "more": f4(1)}, "more"),
        ({"averages": f4(1, 2, np.nan)}, "averages"),
    ):
        with pytest.raises((BadMessage, Diverged), match=message):
            to_bytes(replace(request, broadcast={"serving": values}), AVERAGING)
    with pytest.raises(BadMessage, match="serving"):
        to_bytes(request, PLAIN_SCHEMA)


@pytest.mark.parametrize(
    ("action", "serving", "valid", "invalid"),
    [
        (RecordOnly(), BestRecent(), {"serving": 1.0}, {"shrink": 0.0}),
        (Shrink(keep=0.3), None, {"shrink": 0.3}, {"shrink": 0.0}),
        (DropOutdated(), None, {"drop": 0.0}, {"drop": 0.5}),
        (OpenState(), None, {"open": 1.0}, {"drop": 1.0}),
    ],
)
def test_a_server_requests_only_what_the_alarm_of_the_recipe_does(
    action: Action, serving: Any, valid: dict[str, float], invalid: dict[str, float]
) -> None:
    recipe = replace(PLAIN_SCHEMA.recipe, alarm=PageHinkley(action=action), serving=serving)
    schema = MessageSchema(recipe, P)
    for values, is_valid in ((valid, True), (invalid, False)):
        alarm = {name: f4(value) for name, value in values.items()}
        request = replace(TRAIN_REQUEST, broadcast={"alarm": alarm})
        if is_valid:
            assert same(from_bytes(to_bytes(request, schema), schema, TrainRequest), request)
        else:
            with pytest.raises(BadMessage, match=r"is not known|sends (0|1) or (1|0\.3)\."):
                to_bytes(request, schema)


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_messages_round_trip_bit_by_bit(message: Message) -> None:
    back = round_trip(message)
    assert type(back) is type(message)
    assert same(back, message)


def test_loss_and_reports_may_be_nan_without_a_step() -> None:
    idle = replace(
        TRAIN_RESPONSE,
        num_steps=np.array([0]),
        losses=np.array([np.nan]),
        reports={"shift_score": np.array([np.nan])},
    )
    assert same(round_trip(idle), idle)


def test_survey_request_has_models_only_if_the_policy_sends_them() -> None:
    request = SurveyRequest(7, 4, "selection", np.empty((0, P), dtype=np.float32))
    assert round_trip(request).bank.shape == (0, P)
    with pytest.raises(ShapeMismatch, match=r"expected no models in .* Dpcs, got 2"):
        to_bytes(replace(request, bank=np.zeros((2, P), dtype=np.float32)), SCHEMA)
    with pytest.raises(ShapeMismatch, match=r"expected models in .* FedDrift, got 0"):
        to_bytes(replace(request, stage="bank"), SCHEMA)


def test_decoded_arrays_are_writable_copies() -> None:
    request = round_trip(TRAIN_REQUEST)
    request.params[0, 0] = 9
    assert TRAIN_REQUEST.params[0, 0] == 1


# --- rejected, each with its reason ---

INVALID: dict[str, tuple[Message, type[ThalwegError], str]] = {
    "model of another size": (
        replace(TRAIN_REQUEST, params=f4(1, 2)[None]),
        ShapeMismatch,
        r"TrainRequest: params has shape \(1, 2\), expected \(1, 3\)\. Do both sides run the same",
    ),
    "update of another size": (
        replace(TRAIN_RESPONSE, deltas=np.zeros((2, 3), dtype=np.float32)),
        ShapeMismatch,
        r"TrainResponse: deltas has shape \(2, 3\), expected \(1, 3\)",
    ),
    "another dtype": (
        replace(TRAIN_RESPONSE, deltas=np.zeros((1, 3))),
        BadMessage,
        "TrainResponse: deltas must be an array of float32, got an array of float64",
    ),
    "bank of another size": (
        replace(SURVEY_REQUEST, bank=np.zeros((2, 4), dtype=np.float32)),
        ShapeMismatch,
        r"bank has shape \(2, 4\), expected \('any', 3\)",
    ),
    "a model that diverged": (
        replace(TRAIN_REQUEST, params=f4(1, np.inf, 0)[None]),
        Diverged,
        "TrainRequest: params is not finite",
    ),
    "an infinite learning-rate scale": (
        replace(TRAIN_REQUEST, lr_scales=np.array([np.inf])),
        Diverged,
        "lr_scales is not finite",
    ),
    "a negative learning-rate scale": (
        replace(TRAIN_REQUEST, lr_scales=np.array([-0.5])),
        BadMessage,
        "TrainRequest: lr_scales must be numbers of at least 0, got -0.5",
    ),
    "a negative round": (
        replace(TRAIN_REQUEST, rnd=-1),
        BadMessage,
        "TrainRequest: rnd must be an integer from 0 to .*, got -1",
    ),
    "more correct than tested": (
        replace(TRAIN_RESPONSE, num_correct=np.array([11])),
        BadMessage,
        r"num_correct must be integers from 0 to \[10\], got \[11\]",
    ),
    "no models": (
        replace(TRAIN_REQUEST, models=np.empty(0, dtype=np.int64)),
        BadMessage,
        "TrainRequest: models must be a list of one or more integers",
    ),
    "a model twice": (
        replace(
            TRAIN_REQUEST,
            models=np.array([1, 1]),
            lr_scales=np.ones(2),
            params=np.zeros((2, P), dtype=np.float32),
        ),
        BadMessage,
        r"TrainRequest: models must be ascending, got \[1, 1\]",
    ),
    "steps of more models than there are": (
        replace(TRAIN_RESPONSE, num_steps=np.array([6, 6])),
        BadMessage,
        "TrainResponse: num_steps must be a list of 1 integers",
    ),
    "values of a stage without uploads": (
        replace(TRAIN_RESPONSE, uploads={"weights.word": f4(1)[None]}),
        BadMessage,
        r"TrainResponse\.uploads: this recipe has no field 'weights.word'",
    ),
    "a stage without broadcasts": (
        replace(TRAIN_REQUEST, broadcast={"bank": {"word": f4(1)}}),
        BadMessage,
        r"TrainRequest\.broadcast: this recipe has no field 'bank'",
    ),
    "sample weights of two numbers": (
        replace(TRAIN_REQUEST, broadcast={"sample_weights": {"assigned": f4(1, 2)}}),
        ShapeMismatch,
        r"TrainRequest\.broadcast\.sample_weights: assigned has shape \(2,\), expected \(1,\)",
    ),
    "sample weights with another name": (
        replace(TRAIN_REQUEST, broadcast={"sample_weights": {"assigned": f4(1), "more": f4(1)}}),
        BadMessage,
        "the field 'more' is not known",
    ),
    "an alarm where there is none": (
        replace(TRAIN_REQUEST, broadcast={"alarm": {"shrink": f4(0)}}),
        BadMessage,
        r"TrainRequest\.broadcast: this recipe has no field 'alarm'",
    ),
    "a matrix of values": (
        replace(TRAIN_RESPONSE, uploads={"memory.gradient": np.zeros((2, 2), dtype=np.float32)}),
        ShapeMismatch,
        r"memory\.gradient has shape \(2, 2\), expected \(1, 'any'\)",
    ),
    "a strange name": (
        replace(SURVEY_RESPONSE, values={"a b": np.ones(1)}),
        BadMessage,
        "a name must be at most 64 letters, digits or _.-, got 'a b'",
    ),
    "too many names": (
        replace(SURVEY_RESPONSE, values={f"w{n}": np.ones(1) for n in range(65)}),
        BadMessage,
        "must be a dict of at most 64 fields",
    ),
    "a stage that does not exist": (
        replace(SURVEY_RESPONSE, stage="memory"),  # type: ignore[arg-type]
        BadMessage,
        "stage must be one of sample_weights, selection, bank, got 'memory'",
    ),
    "too long": (
        replace(SURVEY_RESPONSE, values={"long": np.zeros(200_000)}),
        BadMessage,
        "a message has 16.* bytes, at most .* are allowed: 32 models of 3 parameters",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_messages_are_rejected_by_the_sender(case: str) -> None:
    message, error, text = INVALID[case]
    with pytest.raises(error, match=text):
        to_bytes(message, SCHEMA)


def encode_unchecked(message: Message) -> bytes:
    """Encode a message without validating it."""
    fields = {"thalweg": FORMAT, "kind": type(message).__name__, "fields": vars(message)}
    return tree_to_bytes(fields)


@pytest.mark.parametrize("case", INVALID)
def test_invalid_messages_are_rejected_by_the_receiver(case: str) -> None:
    message, error, text = INVALID[case]
    with pytest.raises(error, match=text):
        from_bytes(encode_unchecked(message), SCHEMA, type(message))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_responses_that_are_not_finite_are_sent_and_rejected_by_the_receiver(bad: float) -> None:
    for broken in (
        replace(TRAIN_RESPONSE, deltas=f4(0, bad, 0)[None]),
        replace(TRAIN_RESPONSE, losses=np.array([bad])),
        replace(TRAIN_RESPONSE, reports={"shift_score": np.array([bad])}),
        replace(TRAIN_RESPONSE, uploads={"memory.gradient": f4(bad)[None]}),
    ):
        with pytest.raises(Diverged, match=r"is not finite\. Try a smaller learning rate"):
            from_bytes(to_bytes(broken, SCHEMA), SCHEMA, TrainResponse)


def test_values_that_the_recipe_does_not_use_are_rejected() -> None:
    minimal = replace(TRAIN_RESPONSE, reports={}, uploads={})
    assert same(from_bytes(to_bytes(minimal, PLAIN_SCHEMA), PLAIN_SCHEMA, TrainResponse), minimal)
    for extra in (
        replace(minimal, reports={"score": np.ones(1)}),
        replace(minimal, uploads=TRAIN_RESPONSE.uploads),
    ):
        with pytest.raises(BadMessage, match="this recipe has no field"):
            to_bytes(extra, PLAIN_SCHEMA)
    with pytest.raises(BadMessage, match="one of nothing, got 'bank'"):
        to_bytes(SURVEY_REQUEST, PLAIN_SCHEMA)


def test_messages_of_another_kind_are_rejected() -> None:
    with pytest.raises(BadMessage, match="kind must be one of TrainResponse, got 'TrainRequest'"):
        from_bytes(to_bytes(TRAIN_REQUEST, SCHEMA), SCHEMA, TrainResponse)
    with pytest.raises(
        BadMessage,
        match="kind must be one of TrainRequest, SurveyRequest, MaskRequest, got 'TrainResponse'",
    ):
        read_request(to_bytes(TRAIN_RESPONSE, SCHEMA), SCHEMA)
    assert isinstance(read_request(to_bytes(TRAIN_REQUEST, SCHEMA), SCHEMA), TrainRequest)
    assert isinstance(read_request(to_bytes(SURVEY_REQUEST, SCHEMA), SCHEMA), SurveyRequest)


def test_message_of_another_format_number_is_rejected() -> None:
    tree = tree_from_bytes(to_bytes(TRAIN_REQUEST, SCHEMA))
    with pytest.raises(
        BadMessage,
        match=rf"has format {FORMAT + 1}, expected {FORMAT}\. Do both sides run the same",
    ):
        from_bytes(tree_to_bytes({**tree, "thalweg": FORMAT + 1}), SCHEMA, TrainRequest)


@pytest.mark.parametrize(
    "change", [{"rnd": 6}, {"client": 5}, {"models": np.array([0])}, {"probe_round": 0}]
)
def test_train_response_must_match_its_request(change: dict[str, int]) -> None:
    check_matches_request(read_response(to_bytes(TRAIN_RESPONSE, SCHEMA), SCHEMA), TRAIN_REQUEST)
    (name,) = change
    with pytest.raises(
        BadMessage, match=f"{name} is .*, expected .*; the response is late, or from"
    ):
        check_matches_request(
            read_response(to_bytes(replace(TRAIN_RESPONSE, **change), SCHEMA), SCHEMA),
            TRAIN_REQUEST,
        )


def test_survey_response_must_match_its_request() -> None:
    check_matches_request(read_response(to_bytes(SURVEY_RESPONSE, SCHEMA), SCHEMA), SURVEY_REQUEST)
    for other in (replace(SURVEY_RESPONSE, rnd=8), replace(SURVEY_RESPONSE, stage="selection")):
        with pytest.raises(BadMessage, match="the response is late"):
            check_matches_request(other, SURVEY_REQUEST)


def test_response_of_another_kind_than_requested_is_rejected() -> None:
    with pytest.raises(BadMessage, match="TrainResponse of client 4: expected SurveyResponse"):
        check_matches_request(TRAIN_RESPONSE, SURVEY_REQUEST)
    with pytest.raises(BadMessage, match="SurveyResponse of client 4: expected TrainResponse"):
        check_matches_request(SURVEY_RESPONSE, TRAIN_REQUEST)


# --- arbitrary bytes ---


def decode_or_reject(payload: bytes) -> None:
    """Decoding gives a valid message or an error of the library."""
    for kind in (Hello, TrainRequest, TrainResponse, SurveyRequest, SurveyResponse):
        try:
            message = from_bytes(payload, SCHEMA, kind)
        except (BadMessage, Diverged):
            continue
        assert type(message) is kind
        to_bytes(message, SCHEMA)


@given(payload=st.binary(max_size=300))
def test_random_bytes_are_rejected(payload: bytes) -> None:
    decode_or_reject(payload)
    decode_or_reject(len(payload).to_bytes(8, "little") + payload)


@given(message=st.sampled_from(MESSAGES), share=st.floats(0, 1, exclude_max=True))
def test_truncated_messages_are_rejected(message: Message, share: float) -> None:
    payload = to_bytes(message, SCHEMA)
    with pytest.raises(BadMessage, match="not a tree of Thalweg, or are damaged"):
        from_bytes(payload[: int(share * len(payload))], SCHEMA, type(message))


@given(
    message=st.sampled_from(MESSAGES),
    flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_messages_with_flipped_bytes_are_rejected_or_valid(
    message: Message, flips: list[tuple[int, int]]
) -> None:
    payload = bytearray(to_bytes(message, SCHEMA))
    for place, bits in flips:
        payload[place % len(payload)] ^= bits
    decode_or_reject(bytes(payload))


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


@given(message=st.sampled_from(MESSAGES), data=st.data())
def test_messages_with_replaced_fields_are_rejected_or_valid(
    message: Message, data: st.DataObject
) -> None:
    tree = tree_from_bytes(to_bytes(message, SCHEMA))
    inside = data.draw(st.sampled_from([tree, tree["fields"]]))
    name = data.draw(st.sampled_from([*inside, "more"]))
    if data.draw(st.booleans()):
        inside.pop(name, None)
    else:
        inside[name] = data.draw(values)
    decode_or_reject(tree_to_bytes(tree))


@pytest.mark.parametrize("kind", NAMES)
def test_missing_and_additional_fields_are_rejected(kind: str) -> None:
    message = MESSAGES[NAMES.index(kind)]
    tree = tree_from_bytes(to_bytes(message, SCHEMA))
    for name in tree["fields"]:
        fields = {other: value for other, value in tree["fields"].items() if other != name}
        with pytest.raises(BadMessage, match=f"{kind}: the field '{name}' is missing"):
            from_bytes(tree_to_bytes({**tree, "fields": fields}), SCHEMA, type(message))
    more = {**tree["fields"], "extra": 1}
    with pytest.raises(BadMessage, match=f"{kind}: the field 'extra' is not known"):
        from_bytes(tree_to_bytes({**tree, "fields": more}), SCHEMA, type(message))


def forged(outline: Any, **tensors: Any) -> bytes:
    """A safetensors file with an arbitrary outline."""
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
    "a tensor that does not exist": forged({"$": ["int8", 0, 1]}, float32=MANY),
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
def test_false_sizes_are_rejected_without_allocating_memory(case: str) -> None:
    payload = BOMBS[case]
    schema = replace(SCHEMA, num_params=1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(BadMessage):
            from_bytes(payload, schema, TrainRequest)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(payload) + (1 << 20)


NUMBERS_SCHEMA = replace(SCHEMA, is_regression=True)
NUMBERS_RESPONSE = replace(TRAIN_RESPONSE, num_correct=np.array([0]), error_sums=np.array([12.5]))


def test_error_sums_of_a_regression_round_trip() -> None:
    payload = to_bytes(NUMBERS_RESPONSE, NUMBERS_SCHEMA)
    assert same(from_bytes(payload, NUMBERS_SCHEMA, TrainResponse), NUMBERS_RESPONSE)


@pytest.mark.parametrize(
    "schema, changes, error, why",
    [
        (
            SCHEMA,
            {"num_correct": np.array([0])},
            BadMessage,
            "error_sums must be empty: the targets",
        ),
        (
            NUMBERS_SCHEMA,
            {"error_sums": None},
            BadMessage,
            "error_sums must be an array of float64",
        ),
        (NUMBERS_SCHEMA, {"error_sums": np.array([1.0, 2.0])}, ShapeMismatch, r"shape \(2,\)"),
        (NUMBERS_SCHEMA, {"error_sums": np.array([-1.0])}, BadMessage, "numbers of at least 0"),
        (NUMBERS_SCHEMA, {"num_tested": np.array([0])}, BadMessage, "must be 0 where num_tested"),
        (NUMBERS_SCHEMA, {"num_correct": np.array([1])}, BadMessage, r"integers from 0 to \[0\]"),
    ],
)
def test_invalid_error_sums_are_rejected(
    schema: MessageSchema, changes: dict[str, Any], error: type[ThalwegError], why: str
) -> None:
    with pytest.raises(error, match=why):
        to_bytes(replace(NUMBERS_RESPONSE, **changes), schema)


def test_error_sum_that_is_not_finite_is_a_divergence() -> None:
    infinite = replace(NUMBERS_RESPONSE, error_sums=np.array([np.inf]))
    payload = to_bytes(infinite, NUMBERS_SCHEMA)
    with pytest.raises(Diverged, match="error_sums is not finite"):
        from_bytes(payload, NUMBERS_SCHEMA, TrainResponse)


def test_number_of_a_model_is_bounded() -> None:
    """A client keeps values for all models up to the largest number that it has received."""
    last = replace(TRAIN_REQUEST, models=np.array([999]), broadcast={})
    assert from_bytes(to_bytes(last, SCHEMA), SCHEMA, TrainRequest).models.tolist() == [999]
    with pytest.raises(BadMessage, match="models must be integers from 0 to 999, got"):
        to_bytes(replace(last, models=np.array([1000])), SCHEMA)


def test_request_for_more_models_than_a_client_trains_is_rejected() -> None:
    """The plain recipe has one model per client, FedRC all of its models."""
    two = replace(
        TRAIN_REQUEST,
        models=np.array([0, 1]),
        lr_scales=np.ones(2),
        params=np.zeros((2, P), dtype=np.float32),
        broadcast={},
    )
    with pytest.raises(BadMessage, match=r"has 2 models, .* client trains at most 1"):
        to_bytes(two, PLAIN_SCHEMA)
    several = MessageSchema(Recipe(name="several", memory=Fifo(), bank=FedRc(num_models=2)), P)
    assert isinstance(read_request(to_bytes(two, several), several), TrainRequest)
