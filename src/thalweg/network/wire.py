"""Messages as bytes. Whatever arrives is checked before anybody uses it.

The form is that of checkpoints (`core.trees`): plain values and arrays, no code, nothing pickled. Both sides
hold the same `MessageSchema`, and a message that does not keep to them is refused, where it is sent and where it
arrives, with a `BadMessage` that says what was expected and what came. A message is not secret and not signed:
who may send it, and to whom, is the network's business.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from thalweg.aggregation import Reports
from thalweg.bank import SplitsSamples
from thalweg.core.capabilities import Surveys
from thalweg.core.errors import BadMessage, Diverged, ShapeMismatch
from thalweg.core.trees import tree_from_bytes, tree_to_bytes
from thalweg.core.types import Floats32, Ints, Supply
from thalweg.federation import (
    Hello,
    MaskGroup,
    MaskRequest,
    MaskResponse,
    MaskStep,
    Message,
    Request,
    Response,
    SurveyRequest,
    SurveyResponse,
    SurveyStage,
    TrainRequest,
    TrainResponse,
)
from thalweg.network.fields import FieldReader
from thalweg.recipes.base import Recipe
from thalweg.recipes.compatibility import find_uploading_stages, iter_server_halves
from thalweg.sample_weights import AssignsWeights
from thalweg.theory.masked_sums import KEY_BYTES, SEALED_SHARES_BYTES, SHARE_BYTES

FORMAT = 4  # a message of another number is of another version of this file
MAX_HEADER_BYTES = 1 << 20  # bytes for all that is not an array
NO_MASKING = "nobody masks updates in this recipe."
MASK_REQUEST_FIELDS = {  # what comes with a call, a row per member
    "keys": {},
    "shares": {"channel_keys": KEY_BYTES},
    "open": {"channel_keys": KEY_BYTES, "encrypted_shares": SEALED_SHARES_BYTES, "statuses": 1},
}
MASK_RESPONSE_FIELDS = {  # what is given; keys in one row, the rest in a row per member
    "keys": {"mask_keys": KEY_BYTES, "channel_keys": KEY_BYTES, "commitments": KEY_BYTES},
    "shares": {"encrypted_shares": SEALED_SHARES_BYTES},
    "open": {"shares": SHARE_BYTES},
}

T = TypeVar("T", bound=Message)


@dataclass(frozen=True)
class MessageSchema:
    """What both sides know beforehand."""

    recipe: Recipe
    num_params: int  # P
    max_models: int = 32
    """No message weighs more than so many models, and a megabyte."""

    @property
    def max_bytes(self) -> int:
        return self.max_models * self.num_params * 4 + MAX_HEADER_BYTES

    @cached_property
    def broadcast_stages(self) -> set[str]:
        """Whose half at the server may tell clients something."""
        sample_weights: object = self.recipe.sample_weights
        assigning = {"sample_weights"} if isinstance(sample_weights, AssignsWeights) else set()
        bank: object = self.recipe.bank
        dividing = {"bank"} if isinstance(bank, SplitsSamples) else set()
        effect = self.recipe.effect
        acting = {"alarm"} if effect.keep < 1 or effect.opens_state else set()
        return (
            {stage for stage, _ in iter_server_halves(self.recipe)} | assigning | dividing | acting
        )

    @cached_property
    def upload_stages(self) -> set[str]:
        """Whose half at the client may have something to say."""
        return find_uploading_stages(self.recipe)

    @cached_property
    def survey_policies(self) -> dict[SurveyStage, Surveys]:
        """The policies that may ask clients something, by stage."""
        stages = ((stage, getattr(self.recipe, stage)) for stage in get_args(SurveyStage))
        return {stage: policy for stage, policy in stages if isinstance(policy, Surveys)}

    @property
    def needs_reports(self) -> bool:
        return isinstance(self.recipe.weights, Reports)


def to_bytes(message: Message, schema: MessageSchema) -> bytes:
    """A message, checked and packed. If a client's numbers are not finite, the server shall know of it."""
    plain = dict(vars(message))
    if isinstance(message, Hello):
        plain |= plain.pop("supply")._asdict()
    if isinstance(message, TrainRequest) and message.mask_group is not None:
        plain["mask_group"] = dict(vars(message.mask_group))
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in plain.items()}
    kind = type(message).__name__
    with suppress(*[Diverged] if isinstance(message, TrainResponse | SurveyResponse) else []):
        _read(kind, plain, schema)
    payload = tree_to_bytes({"thalweg": FORMAT, "kind": kind, "fields": plain})
    _check_size(payload, schema)
    return payload


def from_bytes(payload: bytes, schema: MessageSchema, kind: type[T]) -> T:
    """A message of a certain kind, unpacked and checked."""
    message: T = _unpack(payload, schema, kind.__name__)
    return message


def read_request(payload: bytes, schema: MessageSchema) -> Request:
    """What a client may be sent."""
    message: Request = _unpack(payload, schema, "TrainRequest", "SurveyRequest", "MaskRequest")
    return message


def read_response(payload: bytes, schema: MessageSchema) -> Response:
    """What a client may send when it has been asked something."""
    message: Response = _unpack(payload, schema, "TrainResponse", "SurveyResponse", "MaskResponse")
    return message


def _unpack(payload: bytes, schema: MessageSchema, *kinds: str) -> Any:
    _check_size(payload, schema)
    tree = tree_from_bytes(payload, MAX_HEADER_BYTES)
    if not isinstance(tree, dict) or tree.keys() != {"thalweg", "kind", "fields"}:
        raise BadMessage("this is not a message: expected thalweg, kind and fields.")
    head = FieldReader("the message", {name: tree[name] for name in ("thalweg", "kind")})
    if (version := head.read_int("thalweg")) != FORMAT:
        raise BadMessage(
            f"this message has format {version}, expected {FORMAT}. Do both sides run the same version?"
        )
    return _read(head.read_choice("kind", kinds), tree["fields"], schema)


def _read(kind: str, plain: Any, schema: MessageSchema) -> Any:
    fields = FieldReader(kind, plain)
    message = READERS[kind](fields, schema)
    fields.check_empty()
    return message


REQUEST_RESPONSE_PAIRS: tuple[tuple[type[Request], type[Response], tuple[str, ...]], ...] = (
    (TrainRequest, TrainResponse, ("models", "probe_round")),
    (SurveyRequest, SurveyResponse, ("stage",)),
    (MaskRequest, MaskResponse, ("step", "probe_round")),
)  # what answers what, and which fields it repeats


def check_matches_request(came: Response, asked: Request) -> None:
    """Refuse what is not the reply to this very order, or the answer to this very question."""
    kind, names = next(
        (kind, names) for of, kind, names in REQUEST_RESPONSE_PAIRS if isinstance(asked, of)
    )
    if not isinstance(came, kind):
        raise BadMessage(
            f"{type(came).__name__} of client {came.client}: it does not answer {type(asked).__name__}."
        )
    for name in ("rnd", "client", *names):
        uploads, wanted = (_plain(getattr(message, name)) for message in (came, asked))
        if uploads != wanted:
            raise BadMessage(
                f"{type(came).__name__} of client {came.client}: {name} is {uploads!r}, "
                f"asked was {wanted!r}; it came too late, or from somebody else."
            )


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _check_size(payload: bytes, schema: MessageSchema) -> None:
    if len(payload) > schema.max_bytes:
        raise BadMessage(
            f"a message of {len(payload)} bytes is too long: at most {schema.max_bytes}, that is "
            f"{schema.max_models} models of {schema.num_params} parameters and a megabyte."
        )


# --- one reader per kind: takes every field out and checks it ---


def _read_hello(fields: FieldReader, schema: MessageSchema) -> Hello:
    supply = Supply(
        total=fields.read_float("total", minimum=0),
        is_historical=fields.read_bool("is_historical"),
        rounds=fields.read_float("rounds", minimum=0),
    )
    return Hello(client=fields.read_int("client"), supply=supply)


def _read_train_request(fields: FieldReader, schema: MessageSchema) -> TrainRequest:
    stages = fields.read_group("broadcast", known=schema.broadcast_stages.__contains__)
    return TrainRequest(
        rnd=fields.read_int("rnd"),
        client=fields.read_int("client"),
        models=(models := _read_models(fields)),
        lr_scales=fields.read_array("lr_scales", np.float64, models.shape, minimum=0),
        params=fields.read_array("params", np.float32, (len(models), schema.num_params)),
        session=fields.read_int("session"),
        age=fields.read_int("age"),
        probe_round=fields.read_int("probe_round"),
        broadcast={
            stage: _read_broadcast(stage, stages.read_group(stage))
            for stage in stages.remaining_names()
        },
        mask_group=_read_mask_group(fields, schema),
    )


def _read_mask_group(fields: FieldReader, schema: MessageSchema) -> MaskGroup | None:
    """With whom an update is masked; if the recipe masks updates, always with somebody."""
    if schema.recipe.secure_aggregation is None:
        fields.require_none("mask_group", NO_MASKING)
        return None
    inside = fields.read_group("mask_group")
    members = _read_ascending(inside, "members")
    mask_group = MaskGroup(
        members, inside.read_raw_array("keys", np.uint8, (len(members), KEY_BYTES))
    )
    inside.check_empty()
    return mask_group


def _read_ascending(fields: FieldReader, name: str) -> Ints:
    numbers = fields.read_counts(name)
    if (np.diff(numbers) <= 0).any():
        raise BadMessage(f"{fields.where}: {name} must be ascending, got {numbers.tolist()}.")
    return numbers


def _read_models(fields: FieldReader) -> Ints:
    """Numbers of models in the bank, none twice."""
    return _read_ascending(fields, "models")


def _read_broadcast(stage: str, values: FieldReader) -> dict[str, Floats32]:
    """What one stage tells: vectors of any length, but for an emphasis and an alarm, which have one number."""
    names, length = values.remaining_names(), 1 if stage in ("sample_weights", "alarm") else None
    if stage == "sample_weights":
        names = ["assigned"]
    broadcast = {name: values.read_array(name, np.float32, (length,)) for name in names}
    values.check_empty()
    return broadcast


def _read_train_response(fields: FieldReader, schema: MessageSchema) -> TrainResponse:
    models = _read_models(fields)
    num = len(models)
    num_steps, num_tested = (
        fields.read_counts("num_steps", num),
        fields.read_counts("num_tested", num),
    )
    idle = num_steps == 0  # then there is no loss, and perhaps nothing to report
    reports = fields.read_group("reports", known=lambda _: schema.needs_reports)
    uploads = fields.read_group(
        "uploads", known=lambda name: name.partition(".")[0] in schema.upload_stages
    )
    masked = _read_masked_update(fields, schema)
    num_params = schema.num_params if masked is None else 0
    return TrainResponse(
        rnd=fields.read_int("rnd"),
        client=fields.read_int("client"),
        models=models,
        deltas=fields.read_array("deltas", np.float32, (num, num_params)),
        num_samples=fields.read_int("num_samples"),
        num_steps=num_steps,
        losses=fields.read_array("losses", np.float64, (num,), allow_nan=idle),
        num_tested=num_tested,
        num_correct=fields.read_counts("num_correct", num, maximum=num_tested),
        probe_round=fields.read_int("probe_round"),
        reports={
            name: reports.read_array(name, np.float64, (num,), allow_nan=idle)
            for name in reports.remaining_names()
        },
        uploads={
            name: uploads.read_array(name, np.float32, (num, None))
            for name in uploads.remaining_names()
        },
        masked=masked,
    )


def _read_masked_update(
    fields: FieldReader, schema: MessageSchema
) -> npt.NDArray[np.uint64] | None:
    """(P,) if the recipe masks updates; then nothing else will do."""
    if schema.recipe.secure_aggregation is None:
        fields.require_none("masked", NO_MASKING)
        return None
    return fields.read_raw_array("masked", np.uint64, (schema.num_params,))


def _read_survey_request(fields: FieldReader, schema: MessageSchema) -> SurveyRequest:
    stage = fields.read_choice("stage", schema.survey_policies)
    bank = fields.read_array("bank", np.float32, (None, schema.num_params))
    if (len(bank) > 0) != schema.survey_policies[stage].sends_models:
        raise ShapeMismatch(
            f"SurveyRequest: {len(bank)} models came with the question of the {stage} "
            f"{type(schema.survey_policies[stage]).__name__}, which shows "
            f"{'them' if schema.survey_policies[stage].sends_models else 'none'}."
        )
    return SurveyRequest(fields.read_int("rnd"), fields.read_int("client"), stage, bank)


def _read_survey_response(fields: FieldReader, schema: MessageSchema) -> SurveyResponse:
    values = fields.read_group("values")
    return SurveyResponse(
        rnd=fields.read_int("rnd"),
        client=fields.read_int("client"),
        stage=fields.read_choice("stage", schema.survey_policies),
        values={
            name: values.read_array(name, np.float64, (None,), allow_nan=True)
            for name in values.remaining_names()
        },
    )


def _read_mask_request(fields: FieldReader, schema: MessageSchema) -> MaskRequest:
    step = _read_mask_step(fields, schema)
    members, values = _read_ascending(fields, "members"), fields.read_group("values")
    return MaskRequest(
        rnd=fields.read_int("rnd"),
        client=fields.read_int("client"),
        step=step,
        members=members,
        probe_round=fields.read_int("probe_round"),
        values={
            name: values.read_raw_array(name, np.uint8, (len(members), size))
            for name, size in MASK_REQUEST_FIELDS[step].items()
        }
        | _check_no_more(values),
    )


def _read_mask_response(fields: FieldReader, schema: MessageSchema) -> MaskResponse:
    step, values = _read_mask_step(fields, schema), fields.read_group("values")
    return MaskResponse(
        rnd=fields.read_int("rnd"),
        client=fields.read_int("client"),
        step=step,
        probe_round=fields.read_int("probe_round"),
        values={
            name: values.read_raw_array(name, np.uint8, (None, size))
            for name, size in MASK_RESPONSE_FIELDS[step].items()
        }
        | _check_no_more(values),
    )


def _read_mask_step(fields: FieldReader, schema: MessageSchema) -> MaskStep:
    return fields.read_choice(
        "step", get_args(MaskStep) if schema.recipe.secure_aggregation is not None else ()
    )


def _check_no_more(values: FieldReader) -> dict[str, Any]:
    values.check_empty()
    return {}


READERS: dict[str, Callable[[FieldReader, MessageSchema], Any]] = {
    "Hello": _read_hello,
    "TrainRequest": _read_train_request,
    "TrainResponse": _read_train_response,
    "SurveyRequest": _read_survey_request,
    "SurveyResponse": _read_survey_response,
    "MaskRequest": _read_mask_request,
    "MaskResponse": _read_mask_response,
}
