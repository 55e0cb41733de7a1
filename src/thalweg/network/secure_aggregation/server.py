"""The server's part of a masked sum: it hands on keys and closed letters, and takes the masks off the sum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thalweg.core.errors import BadMessage
from thalweg.core.types import Ints, Rejection
from thalweg.federation import (
    MaskRequest,
    MaskResponse,
    MaskStep,
    Octets,
    TrainRequest,
    TrainResponse,
)
from thalweg.federation.extensions.secure_aggregation import own_weight, repeat_mean
from thalweg.network.secure_aggregation.client import (
    DROPPED,
    NOT_ASKED,
    RECEIVED,
    SECRET_BYTES,
    Words,
    derive_public_key,
    derive_shared_key,
    expand_seed,
    make_mask_group,
    make_pairwise_mask,
)
from thalweg.recipes.base import Recipe
from thalweg.theory import recover_secret

SendMaskRequests = Callable[
    [Mapping[int, MaskRequest]], dict[int, MaskResponse]
]  # what is given, by client
SendTrainRequests = Callable[[Mapping[int, TrainRequest]], dict[int, TrainResponse]]
INVALID_KEYS = "its public keys are none."
MASK_NOT_REMOVABLE = "its mask cannot be taken off the sum: shares do not fit."


@dataclass(frozen=True)
class MaskedRoundResult:
    """What came of the replies of a round."""

    replies: Sequence[TrainResponse]  # everybody's update is the mean; none: there is no sum
    metric: str = ""  # too_few, or spoilt: the numbers in it were nobody's
    rejections: Sequence[Rejection] = ()  # whose keys are none, or whose mask stays on


@dataclass(frozen=True)
class KeyDirectory:
    """Those who have said their keys: their places count the shares."""

    members: Ints  # (n,) ascending
    tokens: Mapping[int, MaskResponse]

    def mask_key(self, client: int) -> bytes:
        return bytes(self.tokens[client].values["mask_keys"][0])

    def commitment(self, client: int) -> bytes:
        return bytes(self.tokens[client].values["commitments"][0])

    @property
    def channel_keys(self) -> Octets:
        return np.concatenate(
            [self.tokens[client].values["channel_keys"][:1] for client in self.members.tolist()]
        )


def run_masked_round(
    recipe: Recipe,
    orders: Mapping[int, TrainRequest],
    call: SendMaskRequests,
    order: SendTrainRequests,
) -> MaskedRoundResult:
    """Keys, shares, updates, openings: four times to the clients and back.

    Whoever is missing at one step has no part in those after it. Too few at any step: there is no sum, and the
    round goes by.
    """
    secure_aggregation, first = recipe.secure_aggregation, next(iter(orders.values()))
    assert secure_aggregation is not None
    needed, rnd, probe_round = (
        secure_aggregation.required_clients(len(orders)),
        first.rnd,
        first.probe_round,
    )

    def asked(
        step: MaskStep, clients: Sequence[int], members: Ints, **values: Octets
    ) -> dict[int, MaskResponse]:
        return call(
            {who: MaskRequest(rnd, who, step, members, probe_round, values) for who in clients}
        )

    came = _with_row_count(asked("keys", [*orders], _ids(orders)), {1})
    tokens = {who: token for who, token in came.items() if _has_keys(token)}
    rejections = [Rejection(who, INVALID_KEYS) for who in sorted(came.keys() - tokens.keys())]
    if len(tokens) < needed:
        return MaskedRoundResult((), "too_few", rejections)
    known = KeyDirectory(_ids(tokens), tokens)
    number = len(known.members)
    writers = known.members.tolist()
    encrypted_shares = _with_row_count(
        asked("shares", writers, known.members, channel_keys=known.channel_keys), {number}
    )
    if len(encrypted_shares) < needed:
        return MaskedRoundResult((), "too_few", rejections)
    mask_group = make_mask_group(
        sorted(encrypted_shares), [known.mask_key(client) for client in sorted(encrypted_shares)]
    )
    replies = order(
        {
            client: replace(orders[client], mask_group=mask_group)
            for client in sorted(encrypted_shares)
        }
    )
    if len(replies) < needed:
        return MaskedRoundResult((), "too_few", rejections)
    to_open = _make_open_requests(first, known, encrypted_shares, replies)
    opened = _with_row_count(call(to_open), {number})
    if len(opened) < secure_aggregation.required_clients(number):
        return MaskedRoundResult((), "too_few", rejections)
    secrets = {
        member: _recover_secret(
            member, known, opened, secure_aggregation.required_clients(number), member in replies
        )
        for member in mask_group.members.tolist()
    }
    open_ones = {member: secret for member, secret in secrets.items() if secret is not None}
    if len(open_ones) < len(secrets):
        rejections += [
            Rejection(who, MASK_NOT_REMOVABLE) for who in sorted(secrets.keys() - open_ones.keys())
        ]
        return MaskedRoundResult((), "invalid_sum", rejections)
    total = _unmask(replies, known, open_ones, f"{rnd} {probe_round}")
    return replace(_mean(recipe, replies, total), rejections=rejections)


def _make_open_requests(
    order: TrainRequest,
    known: KeyDirectory,
    encrypted_shares: Mapping[int, MaskResponse],
    replies: Mapping[int, TrainResponse],
) -> dict[int, MaskRequest]:
    """To everybody who was heard: what has become of the members, and the letters that they wrote to it."""
    members = known.members.tolist()
    statuses = [
        RECEIVED if who in replies else DROPPED if who in encrypted_shares else NOT_ASKED
        for who in members
    ]
    values = {
        "channel_keys": known.channel_keys,
        "statuses": np.array(statuses, dtype=np.uint8)[:, None],
    }
    calls = {}
    for place, reader in enumerate(members):
        if reader in replies:
            own = {**values, "encrypted_shares": _shares_for(place, known, encrypted_shares)}
            calls[reader] = MaskRequest(
                order.rnd, reader, "open", known.members, order.probe_round, own
            )
    return calls


def _mean(recipe: Recipe, replies: Mapping[int, TrainResponse], total: Words) -> MaskedRoundResult:
    """Everybody's update is the mean; none if nobody can have sent what is in it."""
    assert recipe.secure_aggregation is not None
    weight = sum(
        own_weight(recipe, reply.num_samples, int(reply.num_steps[0])) for reply in replies.values()
    )
    mean = recipe.secure_aggregation.decode_mean(total.view(np.int64), weight)
    if mean is None:
        return MaskedRoundResult((), "invalid_sum")
    rows = repeat_mean(mean, 1)
    return MaskedRoundResult(
        [replace(replies[who], deltas=rows, masked=None) for who in sorted(replies)]
    )


def _unmask(
    replies: Mapping[int, TrainResponse],
    known: KeyDirectory,
    secrets: Mapping[int, bytes],
    when: str,
) -> Words:
    """(P,) the sum without masks."""
    masked = [reply.masked for reply in replies.values() if reply.masked is not None]
    total = np.zeros_like(masked[0])
    for each in masked:
        total += each
    for member, secret in secrets.items():
        if member in replies:
            total -= expand_seed(secret, len(total))
            continue
        for other in replies:  # what they have added for it has lost its counterpart
            total += make_pairwise_mask(
                secret, known.mask_key(other), member, other, when, len(total)
            )
    return total


def _recover_secret(
    member: int,
    known: KeyDirectory,
    opened: Mapping[int, MaskResponse],
    threshold: int,
    is_heard: bool,
) -> bytes | None:
    """A member's seed, or its key: what it is must fit what the member has said at the beginning.

    One share that somebody has invented spoils those it is taken with, so several choices are tried: if one more
    than needed has opened, everybody is left out once.
    """
    place = int(np.searchsorted(known.members, member))
    holders = sorted(opened)
    for chosen in _choices(holders, threshold):
        shares = {
            int(np.searchsorted(known.members, holder)) + 1: bytes(
                opened[holder].values["shares"][place]
            )
            for holder in chosen
        }
        secret = recover_secret(shares, SECRET_BYTES)
        if secret is None:
            continue
        if is_heard and hashlib.sha256(secret).digest() == known.commitment(member):
            return secret
        if not is_heard and derive_public_key(secret) == known.mask_key(member):
            return secret
    return None


def _choices(holders: Sequence[int], number: int) -> Iterator[Sequence[int]]:
    """So many of them: the first ones, then without each of those in turn.

    >>> list(_choices([1, 2, 3], 2))
    [[1, 2], [2, 3], [1, 3]]
    """
    yield holders[:number]
    for without in holders[:number] if len(holders) > number else ():
        yield [holder for holder in holders if holder != without][:number]


def _has_keys(token: MaskResponse) -> bool:
    """Can others agree on something with it?"""
    try:
        for name in ("mask_keys", "channel_keys"):
            derive_shared_key(bytes(range(1, 33)), bytes(token.values[name][0]), "trial")
    except BadMessage:
        return False
    return True


def _shares_for(
    place: int, known: KeyDirectory, encrypted_shares: Mapping[int, MaskResponse]
) -> Octets:
    """(n, E) the letters of all members to the one at a place; zeros of those who wrote none."""
    example = next(iter(encrypted_shares.values())).values["encrypted_shares"]
    found = np.zeros_like(example)
    for at, member in enumerate(known.members.tolist()):
        if member in encrypted_shares:
            found[at] = encrypted_shares[member].values["encrypted_shares"][place]
    return found


def _with_row_count(tokens: dict[int, MaskResponse], rows: set[int]) -> dict[int, MaskResponse]:
    """Those with the right number of rows; others are as good as not heard."""
    return {
        client: token
        for client, token in sorted(tokens.items())
        if {len(values) for values in token.values.values()} == rows
    }


def _ids(of: Mapping[int, object]) -> Ints:
    return np.array(sorted(of), dtype=np.int64)
