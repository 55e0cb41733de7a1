"""The server's part of secure aggregation: forwards keys and shares, and unmasks the sum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thalweg.core.types import Ints, Rejection
from thalweg.federation import Octets, TrainRequest, TrainResponse
from thalweg.federation.extensions.secure_aggregation import own_weight, repeat_mean
from thalweg.network.secure_aggregation.client import DROPPED, NOT_ASKED, RECEIVED
from thalweg.network.secure_aggregation.keys import (
    KEY_FIELDS,
    MaskVector,
    compute_directory_digest,
    compute_keys_digest,
    compute_model_digest,
    derive_public_key,
    encode_weights,
    expand_seed,
    is_public_key,
    is_signed,
    make_pairwise_mask,
)
from thalweg.network.wire import MaskRequest, MaskResponse, MaskStep
from thalweg.recipes.base import Recipe
from thalweg.theory import recover_secret
from thalweg.theory.masked_sums import KEY_BYTES

SendMaskRequests = Callable[[Mapping[int, MaskRequest]], dict[int, MaskResponse]]  # by client
SendTrainRequests = Callable[[Mapping[int, TrainRequest]], dict[int, TrainResponse]]
INVALID_KEYS = "MaskResponse: its public keys are not valid, or not signed by its node key."
SAME_NODE_KEY = "MaskResponse: another client has the same node key."
MASK_NOT_REMOVABLE = "its mask cannot be removed from the sum: the shares are inconsistent."


@dataclass(frozen=True)
class MaskedRoundResult:
    """The responses of a masked round, each with the mean as its update."""

    responses: Sequence[TrainResponse]  # empty if there is no sum
    metric: str = ""  # why there is no sum: too_few clients, or invalid_sum
    rejections: Sequence[Rejection] = ()  # clients with invalid keys, or whose mask remains


@dataclass(frozen=True)
class KeyDirectory:
    """The clients that sent valid keys; shares are numbered by their index here, from 1."""

    members: Ints  # (n,) ascending
    values: Mapping[str, Octets]  # (n, E) by name
    digest: bytes

    def mask_key(self, client: int) -> bytes:
        return bytes(self.values["mask_keys"][self.index(client)])

    def commitment(self, client: int) -> bytes:
        return bytes(self.values["commitments"][self.index(client)])

    def index(self, client: int) -> int:
        return int(np.searchsorted(self.members, client))


def run_masked_round(
    recipe: Recipe,
    requests: Mapping[int, TrainRequest],
    send_mask_requests: SendMaskRequests,
    send_train_requests: SendTrainRequests,
    run: str = "",
) -> MaskedRoundResult:
    """Run the five exchanges of a round: keys, encrypted shares, updates, signatures, shares.

    A client that is missing in one exchange takes no part in the next ones. If too few clients are
    left, the round has no sum.
    """
    secure_aggregation, first = recipe.secure_aggregation, next(iter(requests.values()))
    assert secure_aggregation is not None
    needed = secure_aggregation.required_clients(len(requests))
    if len(requests) < needed:
        return MaskedRoundResult((), "too_few")

    def send(
        step: MaskStep,
        members: Ints,
        recipients: Sequence[int],
        make_values: Callable[[int], Mapping[str, Octets]] = lambda client: {},
    ) -> dict[int, MaskResponse]:
        return send_mask_requests(
            {
                client: MaskRequest(
                    first.rnd, client, step, members, first.probe_round, make_values(client)
                )
                for client in recipients
            }
        )

    asked = sorted(requests)
    received = _with_row_count(send("keys", _to_ints(asked), asked), 1)
    keys, rejections = _make_directory(received, run, first)
    number = len(keys.members)
    if number < needed:
        return MaskedRoundResult((), "too_few", rejections)
    encrypted = _with_row_count(
        send("shares", keys.members, keys.members.tolist(), lambda client: keys.values), number
    )
    if len(encrypted) < needed:
        return MaskedRoundResult((), "too_few", rejections)
    group = sorted(encrypted)
    responses = send_train_requests(
        {client: replace(requests[client], mask_group=_to_ints(group)) for client in group}
    )
    weights = {client: _weight_of(recipe, response) for client, response in responses.items()}
    contributors = sum(weight > 0 for weight in weights.values())
    if len(responses) < needed or contributors < secure_aggregation.min_clients:
        return MaskedRoundResult((), "too_few", rejections)
    statement = {
        "statuses": _make_statuses(keys.members, group, responses),
        "weights": encode_weights(_to_ints([weights.get(each, 0) for each in keys.members])),
    }
    signed = _with_row_count(
        send("sign", keys.members, sorted(responses), lambda client: statement), 1
    )
    threshold = secure_aggregation.required_clients(number)
    if len(signed) < threshold:
        return MaskedRoundResult((), "too_few", rejections)
    signatures = _collect_signatures(keys, signed)
    opened = _with_row_count(
        send(
            "open",
            keys.members,
            sorted(signed),
            lambda client: {
                "signatures": signatures,
                "encrypted_shares": _shares_for(client, keys, encrypted),
            },
        ),
        number,
    )
    if len(opened) < threshold:
        return MaskedRoundResult((), "too_few", rejections)
    secrets: dict[int, bytes] = {}
    for member in group:
        secret = _recover_secret(member, keys, opened, threshold, member in responses)
        if secret is None:
            rejections.append(Rejection(member, MASK_NOT_REMOVABLE))
        else:
            secrets[member] = secret
    if len(secrets) < len(group):
        return MaskedRoundResult((), "invalid_sum", rejections)
    total = _unmask(responses, keys, secrets, compute_model_digest(first))
    result = _decode_mean(recipe, responses, total, sum(weights.values()))
    return replace(result, rejections=rejections)


def _make_directory(
    received: Mapping[int, MaskResponse], run: str, request: TrainRequest
) -> tuple[KeyDirectory, list[Rejection]]:
    """The directory of the clients with valid keys, and the rejections of the others."""
    valid: dict[int, Mapping[str, Octets]] = {}
    rejections: list[Rejection] = []
    node_keys: set[bytes] = set()
    for client, response in sorted(received.items()):
        values = response.values
        node_key = values["node_keys"][0].tobytes()
        if not _has_valid_keys(client, values, run, request):
            rejections.append(Rejection(client, INVALID_KEYS))
        elif node_key in node_keys:
            rejections.append(Rejection(client, SAME_NODE_KEY))
        else:
            valid[client] = values
            node_keys.add(node_key)
    members = _to_ints(list(valid))
    values = {
        name: np.concatenate([each[name] for each in valid.values()])
        for name in ((*KEY_FIELDS, "signatures") if valid else ())
    }
    if not valid:
        return KeyDirectory(members, values, b""), rejections
    digest = compute_directory_digest(run, request.rnd, request.probe_round, members, values)
    return KeyDirectory(members, values, digest), rejections


def _has_valid_keys(
    client: int, values: Mapping[str, Octets], run: str, request: TrainRequest
) -> bool:
    """Whether other clients will accept the keys of a client, unless they do not trust it."""
    mask_key, channel_key, commitment, node_key, signature = (
        values[name][0].tobytes() for name in (*KEY_FIELDS, "signatures")
    )
    digest = compute_keys_digest(
        run, request.rnd, request.probe_round, client, mask_key, channel_key, commitment
    )
    return (
        is_public_key(mask_key)
        and is_public_key(channel_key)
        and is_signed(node_key, digest, signature)
    )


def _make_statuses(
    members: Ints, group: Sequence[int], responses: Mapping[int, TrainResponse]
) -> Octets:
    """(n, 1) whether the update of each member was received, dropped or not asked for."""
    statuses = [
        RECEIVED if client in responses else DROPPED if client in group else NOT_ASKED
        for client in members.tolist()
    ]
    return np.array(statuses, dtype=np.uint8)[:, None]


def _collect_signatures(keys: KeyDirectory, signed: Mapping[int, MaskResponse]) -> Octets:
    """(n, 96) the signatures of all members; zeros where missing."""
    signatures = np.zeros_like(keys.values["signatures"])
    for client, response in signed.items():
        signatures[keys.index(client)] = response.values["signatures"][0]
    return signatures


def _weight_of(recipe: Recipe, response: TrainResponse) -> int:
    return own_weight(recipe, response.num_samples, int(response.num_steps[0]))


def _decode_mean(
    recipe: Recipe, responses: Mapping[int, TrainResponse], total: MaskVector, weight: int
) -> MaskedRoundResult:
    """Set every update to the mean; no responses if the sum is out of range."""
    assert recipe.secure_aggregation is not None
    mean = recipe.secure_aggregation.decode_mean(total.view(np.int64), weight)
    if mean is None:
        return MaskedRoundResult((), "invalid_sum")
    rows = repeat_mean(mean, 1)
    return MaskedRoundResult(
        [replace(responses[client], deltas=rows, masked=None) for client in sorted(responses)]
    )


def _unmask(
    responses: Mapping[int, TrainResponse],
    keys: KeyDirectory,
    secrets: Mapping[int, bytes],
    model: bytes,
) -> MaskVector:
    """(P,) the sum of the updates, without masks."""
    masked = [response.masked for response in responses.values() if response.masked is not None]
    total = np.zeros_like(masked[0])
    for each in masked:
        total += each
    for member, secret in secrets.items():
        if member in responses:
            total -= expand_seed(secret, len(total))
            continue
        for other in responses:  # the pairwise masks with a missing client do not cancel
            total += make_pairwise_mask(
                secret, keys.mask_key(other), member, other, keys.digest, model, len(total)
            )
    return total


def _recover_secret(
    member: int,
    keys: KeyDirectory,
    opened: Mapping[int, MaskResponse],
    threshold: int,
    is_received: bool,
) -> bytes | None:
    """Recover a member's seed if its update was received, else its key; None if shares are wrong.

    The secret is checked against the member's commitment or public key. As a single forged share
    makes the result wrong, each holder is left out once if there are more shares than needed.
    """
    row = keys.index(member)
    for chosen in _choose_holders(sorted(opened), threshold):
        shares = {
            keys.index(holder) + 1: bytes(opened[holder].values["shares"][row]) for holder in chosen
        }
        secret = recover_secret(shares, KEY_BYTES)
        if secret is None:
            continue
        if is_received and hashlib.sha256(secret).digest() == keys.commitment(member):
            return secret
        if not is_received and derive_public_key(secret) == keys.mask_key(member):
            return secret
    return None


def _choose_holders(holders: Sequence[int], number: int) -> Iterator[Sequence[int]]:
    """Yield selections of `number` holders: the first ones, then without each of these in turn.

    >>> list(_choose_holders([1, 2, 3], 2))
    [[1, 2], [2, 3], [1, 3]]
    """
    yield holders[:number]
    for left_out in holders[:number] if len(holders) > number else ():
        yield [holder for holder in holders if holder != left_out][:number]


def _shares_for(client: int, keys: KeyDirectory, encrypted: Mapping[int, MaskResponse]) -> Octets:
    """(n, E) the encrypted shares of all members for one member; zeros where missing."""
    index = keys.index(client)
    example = next(iter(encrypted.values())).values["encrypted_shares"]
    shares = np.zeros_like(example)
    for row, member in enumerate(keys.members.tolist()):
        if member in encrypted:
            shares[row] = encrypted[member].values["encrypted_shares"][index]
    return shares


def _with_row_count(responses: dict[int, MaskResponse], count: int) -> dict[int, MaskResponse]:
    """Keep the responses whose arrays all have `count` rows."""
    return {
        client: response
        for client, response in sorted(responses.items())
        if {len(values) for values in response.values.values()} == {count}
    }


def _to_ints(numbers: Sequence[int]) -> Ints:
    return np.array(numbers, dtype=np.int64)
