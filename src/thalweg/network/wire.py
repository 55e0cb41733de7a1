"""Encodes messages as bytes, decodes them, and validates every field.

The encoding is that of checkpoints (`core.trees`): plain values and arrays, no code, no pickle.
Both sides have the same `MessageSchema`. A message that does not match it is rejected with a
`BadMessage`, at the sender and at the receiver. Messages are neither encrypted nor signed here;
the network does both.

A new message needs its class, its reader and its row in `EXCHANGES` here, a method that sends it
(`RemoteFederation`), and a handler at the client (`RemoteNode.execute`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from thalweg.aggregation import Reports
from thalweg.bank import SplitsSamples, find_max_jobs
from thalweg.core.capabilities import Surveys
from thalweg.core.config import UPPER_BOUNDS
from thalweg.core.errors import BadMessage, Diverged, ShapeMismatch
from thalweg.core.trees import tree_from_bytes, tree_to_bytes
from thalweg.core.types import Floats, Floats32, Ints, Supply
from thalweg.federation import (
    Hello,
    Octets,
    SurveyRequest,
    SurveyResponse,
    SurveyStage,
    TrainRequest,
    TrainResponse,
)
from thalweg.federation.extensions.alarms import list_messages
from thalweg.federation.serving import AVERAGES
from thalweg.federation.serving import STAGE as PER_MODEL
from thalweg.network.fields import MAX_INT, FieldReader
from thalweg.recipes.base import Recipe, list_predictors
from thalweg.recipes.compatibility import find_uploading_stages, iter_server_parts
from thalweg.sample_weights import AssignsWeights
from thalweg.serving import AVERAGED
from thalweg.theory.masked_sums import (
    KEY_BYTES,
    NODE_KEY_BYTES,
    SEALED_SHARES_BYTES,
    SHARE_BYTES,
    SIGNATURE_BYTES,
)

FORMAT = 5  # changes with the fields of the messages
MAX_HEADER_BYTES = 1 << 20  # for everything but arrays
MAX_MODEL = (
    int(UPPER_BOUNDS["MODELS"]) - 1
)  # largest number of a model; clients keep values by number
MAX_ROUND = int(UPPER_BOUNDS["COUNT"])  # larger than in any plan
NO_MASKING = "the recipe does not mask updates."
NO_NUMBERS = "the targets of the run are class labels."
MASK_KEY_FIELDS = {
    "mask_keys": KEY_BYTES,
    "channel_keys": KEY_BYTES,
    "commitments": KEY_BYTES,
    "node_keys": NODE_KEY_BYTES,
    "signatures": SIGNATURE_BYTES,
}
MASK_REQUEST_FIELDS = {  # bytes per row; one row per member
    "keys": {},
    "shares": MASK_KEY_FIELDS,
    "sign": {"statuses": 1, "weights": 8},
    "open": {"signatures": SIGNATURE_BYTES, "encrypted_shares": SEALED_SHARES_BYTES},
}
MASK_RESPONSE_FIELDS = {  # bytes per row; keys and sign have one row, the others one per member
    "keys": MASK_KEY_FIELDS,
    "shares": {"encrypted_shares": SEALED_SHARES_BYTES},
    "sign": {"signatures": SIGNATURE_BYTES},
    "open": {"shares": SHARE_BYTES},
}

MaskStep = Literal["keys", "shares", "sign", "open"]


@dataclass(frozen=True, eq=False)
class MaskRequest:
    """Asks for one part of a masked sum: public keys, shares of secrets, a signature, some shares.

    From the shares on, the members are the same and in the same order, because shares are
    identified by their positions.
    """

    rnd: int
    client: int
    step: MaskStep
    members: Ints  # (n,) ascending
    probe_round: int = 0
    values: Mapping[str, Octets] = field(default_factory=dict)  # (n, E) by name

    @property
    def deletes_secrets(self) -> bool:
        """Whether the client deletes secrets of this or of an earlier round at this step."""
        return self.step in ("keys", "open")


@dataclass(frozen=True, eq=False)
class MaskResponse:
    """One client's part of a masked sum."""

    rnd: int
    client: int
    step: MaskStep
    probe_round: int = 0
    values: Mapping[str, Octets] = field(default_factory=dict)  # (n, E) by name


Request = TrainRequest | SurveyRequest | MaskRequest
Response = TrainResponse | SurveyResponse | MaskResponse
Message = Hello | Request | Response

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class MessageSchema:
    """Shapes and names of the messages of a run, known to both sides."""

    recipe: Recipe
    num_params: int  # P
    is_regression: bool = False
    """Whether targets are numbers: then train responses have error sums, else none."""
    max_models: int = 32
    """A message has at most the size of this many models, and a megabyte."""

    @property
    def max_bytes(self) -> int:
        size = self.num_params * 4 * (1 + self.sends_averages)
        return self.max_models * size + MAX_HEADER_BYTES

    @property
    def sends_averages(self) -> bool:
        """Whether a train request has the average of each model in addition."""
        return AVERAGED in list_predictors(self.recipe)

    @cached_property
    def broadcast_stages(self) -> set[str]:
        """Stages that can send values from the server to clients."""
        stages = {stage for stage, _ in iter_server_parts(self.recipe)}
        sample_weights: object = self.recipe.sample_weights
        if isinstance(sample_weights, AssignsWeights):
            stages.add("sample_weights")
        bank: object = self.recipe.bank
        if isinstance(bank, SplitsSamples):
            stages.add("bank")
        if list_messages(self.recipe):
            stages.add("alarm")
        if self.sends_averages:
            stages.add(PER_MODEL)
        return stages

    @cached_property
    def upload_stages(self) -> set[str]:
        """Stages that can send values from clients to the server."""
        return find_uploading_stages(self.recipe)

    @cached_property
    def survey_policies(self) -> dict[SurveyStage, Surveys]:
        """Policies that can send survey requests, by stage."""
        stages = ((stage, getattr(self.recipe, stage)) for stage in get_args(SurveyStage))
        return {stage: policy for stage, policy in stages if isinstance(policy, Surveys)}

    @property
    def needs_reports(self) -> bool:
        """Whether clients send reports for the aggregation weights."""
        return isinstance(self.recipe.weights, Reports)


def to_bytes(message: Message, schema: MessageSchema) -> bytes:
    """Validate and encode a message.

    Responses with numbers that are not finite are sent nevertheless: the server decides about them.
    """
    plain = {name: _to_plain(value) for name, value in vars(message).items()}
    kind = type(message).__name__
    with suppress(*[Diverged] if isinstance(message, Response) else []):
        _read(kind, plain, schema)
    payload = tree_to_bytes({"thalweg": FORMAT, "kind": kind, "fields": plain})
    _check_size(payload, schema)
    return payload


def from_bytes(payload: bytes, schema: MessageSchema, kind: type[M]) -> M:
    """Decode and validate a message of the class `kind`."""
    message: M = _decode(payload, schema, [kind.__name__])
    return message


def read_request(payload: bytes, schema: MessageSchema) -> Request:
    """Decode and validate a message from the server to a client."""
    kinds = [exchange.request.__name__ for exchange in EXCHANGES]
    request: Request = _decode(payload, schema, kinds)
    return request


def read_response(payload: bytes, schema: MessageSchema) -> Response:
    """Decode and validate a client's response to a request."""
    kinds = [exchange.response.__name__ for exchange in EXCHANGES]
    response: Response = _decode(payload, schema, kinds)
    return response


def check_matches_request(response: Response, request: Request) -> None:
    """Reject a response that does not belong to this request."""
    exchange = next(each for each in EXCHANGES if isinstance(request, each.request))
    where = f"{type(response).__name__} of client {response.client}"
    if not isinstance(response, exchange.response):
        raise BadMessage(f"{where}: expected {exchange.response.__name__}.")
    for name in ("rnd", "client", *exchange.repeated):
        got, expected = (_to_list(getattr(message, name)) for message in (response, request))
        if got != expected:
            raise BadMessage(
                f"{where}: {name} is {got!r}, expected {expected!r}; the response is late, or from "
                "another client."
            )


def _decode(payload: bytes, schema: MessageSchema, kinds: list[str]) -> Any:
    _check_size(payload, schema)
    tree = tree_from_bytes(payload, MAX_HEADER_BYTES)
    if not isinstance(tree, dict) or tree.keys() != {"thalweg", "kind", "fields"}:
        raise BadMessage("this is not a message: expected thalweg, kind and fields.")
    head = FieldReader("the message", {name: tree[name] for name in ("thalweg", "kind")})
    if (version := head.read_int("thalweg")) != FORMAT:
        raise BadMessage(
            f"this message has format {version}, expected {FORMAT}. Do both sides run the same "
            "version?"
        )
    return _read(head.read_choice("kind", kinds), tree["fields"], schema)


def _read(kind: str, plain: Any, schema: MessageSchema) -> Any:
    fields = FieldReader(kind, plain)
    message = READERS[kind](fields, schema)
    fields.check_empty()
    return message


def _to_plain(value: Any) -> Any:
    """Convert NumPy scalars, and dataclasses and named tuples inside a message."""
    if isinstance(value, np.generic):
        return value.item()
    if is_dataclass(value):
        return dict(vars(value))
    return value._asdict() if hasattr(value, "_asdict") else value


def _to_list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _check_size(payload: bytes, schema: MessageSchema) -> None:
    if len(payload) > schema.max_bytes:
        raise BadMessage(
            f"a message has {len(payload)} bytes, at most {schema.max_bytes} are allowed: "
            f"{schema.max_models} models of {schema.num_params} parameters and a megabyte."
        )


# --- one reader per message class, which reads and validates every field ---


def _read_hello(fields: FieldReader, schema: MessageSchema) -> Hello:
    group = fields.read_group("supply")
    supply = Supply(
        total=group.read_float("total", minimum=0),
        is_historical=group.read_bool("is_historical"),
        rounds=group.read_float("rounds", minimum=0),
    )
    group.check_empty()
    return Hello(client=fields.read_int("client"), supply=supply)


def _read_train_request(fields: FieldReader, schema: MessageSchema) -> TrainRequest:
    stages = fields.read_group("broadcast", is_known=schema.broadcast_stages.__contains__)
    models, most = _read_ascending(fields, "models", MAX_MODEL), find_max_jobs(schema.recipe.bank)
    if len(models) > most:
        raise BadMessage(
            f"{fields.where}: it has {len(models)} models, but with the bank of the recipe a "
            f"client trains at most {most}."
        )
    return TrainRequest(
        rnd=fields.read_int("rnd", MAX_ROUND),
        client=fields.read_int("client"),
        models=models,
        lr_scales=fields.read_array("lr_scales", np.float64, models.shape, minimum=0),
        params=fields.read_array("params", np.float32, (len(models), schema.num_params)),
        session=fields.read_int("session", MAX_ROUND),
        age=fields.read_int("age", MAX_ROUND),
        probe_round=fields.read_int("probe_round"),
        broadcast={
            stage: _read_broadcast(stage, stages.read_group(stage), len(models), schema)
            for stage in stages.remaining_names()
        },
        mask_group=_read_mask_group(fields, schema),
    )


def _read_mask_group(fields: FieldReader, schema: MessageSchema) -> Ints | None:
    """Read the members of the mask group: required if the recipe masks updates, else forbidden."""
    if schema.recipe.secure_aggregation is None:
        fields.require_none("mask_group", NO_MASKING)
        return None
    return _read_ascending(fields, "mask_group")


def _read_ascending(fields: FieldReader, name: str, maximum: int = MAX_INT) -> Ints:
    numbers = fields.read_counts(name, maximum=maximum)
    if (np.diff(numbers) <= 0).any():
        raise BadMessage(f"{fields.where}: {name} must be ascending, got {numbers.tolist()}.")
    return numbers


def _read_broadcast(
    stage: str, values: FieldReader, num_models: int, schema: MessageSchema
) -> dict[str, Floats32]:
    """Read the vectors of one stage.

    One number for sample weights and alarms, the parameters of averaged models, else any length.
    """
    messages = list_messages(schema.recipe) if stage == "alarm" else {}
    names, length = values.remaining_names(), None
    if stage == PER_MODEL:
        names, length = [AVERAGES], num_models * schema.num_params
    elif stage == "sample_weights":
        names, length = ["assigned"], 1
    elif stage == "alarm":
        names, length = [name for name in names if name in messages], 1
    broadcast = {name: values.read_array(name, np.float32, (length,)) for name in names}
    values.check_empty()
    for name, expected in messages.items():
        if name in broadcast and broadcast[name][0] not in np.array(expected, dtype=np.float32):
            raise BadMessage(
                f"{values.where}: {name} is {broadcast[name][0]:g}, but the alarm of the recipe "
                f"sends {expected[0]:g} or {expected[1]:g}."
            )
    return broadcast


def _read_train_response(fields: FieldReader, schema: MessageSchema) -> TrainResponse:
    models = _read_ascending(fields, "models")
    num = len(models)
    num_steps = fields.read_counts("num_steps", num)
    num_tested = fields.read_counts("num_tested", num)
    is_idle = num_steps == 0  # without a step, the loss is nan and reports may be
    reports = fields.read_group("reports", is_known=lambda _: schema.needs_reports)
    uploads = fields.read_group(
        "uploads", is_known=lambda name: name.partition(".")[0] in schema.upload_stages
    )
    masked = _read_masked_update(fields, schema)
    max_correct = num_tested * (not schema.is_regression)
    num_params = schema.num_params if masked is None else 0
    return TrainResponse(
        rnd=fields.read_int("rnd", MAX_ROUND),
        client=fields.read_int("client"),
        models=models,
        deltas=fields.read_array("deltas", np.float32, (num, num_params)),
        num_samples=fields.read_int("num_samples"),
        num_steps=num_steps,
        losses=fields.read_array("losses", np.float64, (num,), allow_nan=is_idle),
        num_tested=num_tested,
        num_correct=fields.read_counts("num_correct", num, maximum=max_correct),
        error_sums=_read_error_sums(fields, schema, num_tested),
        probe_round=fields.read_int("probe_round"),
        reports={
            name: reports.read_array(name, np.float64, (num,), allow_nan=is_idle)
            for name in reports.remaining_names()
        },
        uploads={
            name: uploads.read_array(name, np.float32, (num, None))
            for name in uploads.remaining_names()
        },
        masked=masked,
    )


def _read_error_sums(fields: FieldReader, schema: MessageSchema, num_tested: Ints) -> Floats | None:
    """Read the (J,) sums of absolute errors: required in a regression, else forbidden."""
    if not schema.is_regression:
        fields.require_none("error_sums", NO_NUMBERS)
        return None
    sums = fields.read_array("error_sums", np.float64, num_tested.shape, minimum=0.0)
    if (sums[num_tested == 0] > 0).any():
        raise BadMessage(
            f"{fields.where}: error_sums must be 0 where num_tested is 0, got {sums.tolist()} for "
            f"{num_tested.tolist()} samples."
        )
    return sums


def _read_masked_update(
    fields: FieldReader, schema: MessageSchema
) -> npt.NDArray[np.uint64] | None:
    """Read the (P,) masked update: required if the recipe masks updates, else forbidden."""
    if schema.recipe.secure_aggregation is None:
        fields.require_none("masked", NO_MASKING)
        return None
    return fields.read_raw_array("masked", np.uint64, (schema.num_params,))


def _read_survey_request(fields: FieldReader, schema: MessageSchema) -> SurveyRequest:
    stage = fields.read_choice("stage", schema.survey_policies)
    bank = fields.read_array("bank", np.float32, (None, schema.num_params))
    policy = schema.survey_policies[stage]
    if (len(bank) > 0) != policy.sends_models:
        raise ShapeMismatch(
            f"SurveyRequest: expected {'models' if policy.sends_models else 'no models'} in the "
            f"request of the {stage} policy {type(policy).__name__}, got {len(bank)}."
        )
    return SurveyRequest(fields.read_int("rnd", MAX_ROUND), fields.read_int("client"), stage, bank)


def _read_survey_response(fields: FieldReader, schema: MessageSchema) -> SurveyResponse:
    values = fields.read_group("values")
    return SurveyResponse(
        rnd=fields.read_int("rnd", MAX_ROUND),
        client=fields.read_int("client"),
        stage=fields.read_choice("stage", schema.survey_policies),
        values={
            name: values.read_array(name, np.float64, (None,), allow_nan=True)
            for name in values.remaining_names()
        },
    )


def _read_mask_request(fields: FieldReader, schema: MessageSchema) -> MaskRequest:
    step = _read_mask_step(fields, schema)
    members = _read_ascending(fields, "members")
    return MaskRequest(
        rnd=fields.read_int("rnd", MAX_ROUND),
        client=fields.read_int("client"),
        step=step,
        members=members,
        probe_round=fields.read_int("probe_round"),
        values=_read_mask_values(fields, len(members), MASK_REQUEST_FIELDS[step]),
    )


def _read_mask_response(fields: FieldReader, schema: MessageSchema) -> MaskResponse:
    step = _read_mask_step(fields, schema)
    return MaskResponse(
        rnd=fields.read_int("rnd", MAX_ROUND),
        client=fields.read_int("client"),
        step=step,
        probe_round=fields.read_int("probe_round"),
        values=_read_mask_values(fields, None, MASK_RESPONSE_FIELDS[step]),
    )


def _read_mask_step(fields: FieldReader, schema: MessageSchema) -> MaskStep:
    return fields.read_choice(
        "step", get_args(MaskStep) if schema.recipe.secure_aggregation is not None else ()
    )


def _read_mask_values(
    fields: FieldReader, num_rows: int | None, sizes: Mapping[str, int]
) -> dict[str, Octets]:
    """Read one (rows, size) array of bytes for each name in `sizes`."""
    group = fields.read_group("values")
    values = {
        name: group.read_raw_array(name, np.uint8, (num_rows, size)) for name, size in sizes.items()
    }
    group.check_empty()
    return values


Reader = Callable[[FieldReader, MessageSchema], Any]


class Exchange(NamedTuple):
    """A request of the server, a client's response to it, and the readers of both."""

    request: type[Request]
    response: type[Response]
    repeated: tuple[str, ...]  # fields of the request, besides rnd and client, that must match
    read_request: Reader
    read_response: Reader


EXCHANGES = (
    Exchange(
        TrainRequest,
        TrainResponse,
        ("models", "probe_round"),
        _read_train_request,
        _read_train_response,
    ),
    Exchange(
        SurveyRequest, SurveyResponse, ("stage",), _read_survey_request, _read_survey_response
    ),
    Exchange(
        MaskRequest, MaskResponse, ("step", "probe_round"), _read_mask_request, _read_mask_response
    ),
)
READERS: dict[str, Reader] = {"Hello": _read_hello}
READERS |= {exchange.request.__name__: exchange.read_request for exchange in EXCHANGES}
READERS |= {exchange.response.__name__: exchange.read_response for exchange in EXCHANGES}
