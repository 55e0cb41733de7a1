"""The server's part of secure aggregation: forwards keys and shares, and unmasks the sum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thalweg.core.errors import BadMessage
from thalweg.core.types import Ints, Rejection
from thalweg.federation import Octets, TrainRequest, TrainResponse
from thalweg.federation.extensions.secure_aggregation import own_weight, repeat_mean
from thalweg.network.secure_aggregation.client import (
    DROPPED,
    NOT_ASKED,
    RECEIVED,
    SECRET_BYTES,
    MaskVector,
    derive_public_key,
    derive_shared_key,
    expand_seed,
    make_mask_group,
    make_pairwise_mask,
)
from thalweg.network.wire import MaskRequest, MaskResponse, MaskStep
from thalweg.recipes.base import Recipe
from thalweg.theory import recover_secret

SendMaskRequests = Callable[[Mapping[int, MaskRequest]], dict[int, MaskResponse]]  # by client
SendTrainRequests = Callable[[Mapping[int, TrainRequest]], dict[int, TrainResponse]]
INVALID_KEYS = "MaskResponse: its public keys are not valid."
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
    responses: Mapping[int, MaskResponse]

    def mask_key(self, client: int) -> bytes:
        return bytes(self.responses[client].values["mask_keys"][0])

    def commitment(self, client: int) -> bytes:
        return bytes(self.responses[client].values["commitments"][0])

    @property
    def channel_keys(self) -> Octets:
        return np.concatenate(
            [self.responses[client].values["channel_keys"][:1] for client in self.members.tolist()]
        )

    def index(self, client: int) -> int:
        return int(np.searchsorted(self.members, client))


def run_masked_round(
    recipe: Recipe,
    requests: Mapping[int, TrainRequest],
    send_mask_requests: SendMaskRequests,
    send_train_requests: SendTrainRequests,
) -> MaskedRoundResult:
    """Run the four exchanges of a round: keys, encrypted shares, updates, opened shares.

    A client that is missing in one exchange takes no part in the next ones. If too few clients are
    left, the round has no sum.
    """
    secure_aggregation, first = recipe.secure_aggregation, next(iter(requests.values()))
    assert secure_aggregation is not None
    needed = secure_aggregation.required_clients(len(requests))

    def send(step: MaskStep, members: Ints, **values: Octets) -> dict[int, MaskResponse]:
        return send_mask_requests(
            {
                client: MaskRequest(first.rnd, client, step, members, first.probe_round, values)
                for client in members.tolist()
            }
        )

    received = _with_row_count(send("keys", _sorted_ids(requests)), 1)
    valid = {client: each for client, each in received.items() if _has_valid_keys(each)}
    rejections = [Rejection(client, INVALID_KEYS) for client in sorted(received.keys() - valid)]
    if len(valid) < needed:
        return MaskedRoundResult((), "too_few", rejections)
    keys = KeyDirectory(_sorted_ids(valid), valid)
    number = len(keys.members)
    encrypted = _with_row_count(
        send("shares", keys.members, channel_keys=keys.channel_keys), number
    )
    if len(encrypted) < needed:
        return MaskedRoundResult((), "too_few", rejections)
    members = sorted(encrypted)
    mask_group = make_mask_group(members, [keys.mask_key(client) for client in members])
    responses = send_train_requests(
        {client: replace(requests[client], mask_group=mask_group) for client in members}
    )
    if len(responses) < needed:
        return MaskedRoundResult((), "too_few", rejections)
    open_requests = _make_open_requests(first, keys, encrypted, responses)
    opened = _with_row_count(send_mask_requests(open_requests), number)
    threshold = secure_aggregation.required_clients(number)
    if len(opened) < threshold:
        return MaskedRoundResult((), "too_few", rejections)
    secrets: dict[int, bytes] = {}
    for member in members:
        secret = _recover_secret(member, keys, opened, threshold, member in responses)
        if secret is None:
            rejections.append(Rejection(member, MASK_NOT_REMOVABLE))
        else:
            secrets[member] = secret
    if len(secrets) < len(members):
        return MaskedRoundResult((), "invalid_sum", rejections)
    total = _unmask(responses, keys, secrets, f"{first.rnd} {first.probe_round}")
    return replace(_decode_mean(recipe, responses, total), rejections=rejections)


def _make_open_requests(
    request: TrainRequest,
    keys: KeyDirectory,
    encrypted: Mapping[int, MaskResponse],
    responses: Mapping[int, TrainResponse],
) -> dict[int, MaskRequest]:
    """Requests for shares, to the clients whose update was received."""
    members = keys.members.tolist()
    statuses = [
        RECEIVED if client in responses else DROPPED if client in encrypted else NOT_ASKED
        for client in members
    ]
    values = {
        "channel_keys": keys.channel_keys,
        "statuses": np.array(statuses, dtype=np.uint8)[:, None],
    }
    open_requests = {}
    for index, client in enumerate(members):
        if client in responses:
            own = {**values, "encrypted_shares": _shares_for(index, keys, encrypted)}
            open_requests[client] = MaskRequest(
                request.rnd, client, "open", keys.members, request.probe_round, own
            )
    return open_requests


def _decode_mean(
    recipe: Recipe, responses: Mapping[int, TrainResponse], total: MaskVector
) -> MaskedRoundResult:
    """Set every update to the mean; no responses if the sum is out of range."""
    assert recipe.secure_aggregation is not None
    weight = sum(
        own_weight(recipe, response.num_samples, int(response.num_steps[0]))
        for response in responses.values()
    )
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
    round_label: str,
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
                secret, keys.mask_key(other), member, other, round_label, len(total)
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
        secret = recover_secret(shares, SECRET_BYTES)
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


def _has_valid_keys(response: MaskResponse) -> bool:
    """Whether other clients can derive shared keys with both public keys."""
    try:
        for name in ("mask_keys", "channel_keys"):
            derive_shared_key(bytes(range(1, 33)), bytes(response.values[name][0]), "trial")
    except BadMessage:
        return False
    return True


def _shares_for(index: int, keys: KeyDirectory, encrypted: Mapping[int, MaskResponse]) -> Octets:
    """(n, E) the encrypted shares of all members for one member; zeros where missing."""
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


def _sorted_ids(by_client: Mapping[int, object]) -> Ints:
    return np.array(sorted(by_client), dtype=np.int64)
