"""The client's part of secure aggregation: keys of a round, secret shares, and masked updates.

A round has five steps: keys, shares, update, sign and open. Secrets are drawn for each round, are
stored until its last step so that a client that is killed can continue, and are then deleted. In
each round a client reveals, for every other client, either the share of its seed or the share of
its key. Both together would reveal that client's update.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from thalweg.aggregation import Masked
from thalweg.aggregation.secure_aggregation import MAX_CLIENTS
from thalweg.core.errors import BadMessage
from thalweg.core.types import Ints
from thalweg.federation import Octets, TrainRequest, TrainResponse
from thalweg.federation.extensions.secure_aggregation import own_weight
from thalweg.network.rejections import Rejected, RejectionCode
from thalweg.network.secure_aggregation.keys import (
    NodeKey,
    compute_directory_digest,
    compute_keys_digest,
    compute_model_digest,
    compute_statement_digest,
    decode_weights,
    decrypt_share,
    derive_public_key,
    draw_coefficient,
    encrypt_share,
    expand_seed,
    format_node_key,
    get_public_node_key,
    is_signed,
    make_node_key,
    make_pairwise_mask,
    restore_node_key,
    sign,
)
from thalweg.network.wire import MaskRequest, MaskResponse
from thalweg.recipes.base import Recipe
from thalweg.theory import split_secret
from thalweg.theory.masked_sums import KEY_BYTES, NODE_KEY_BYTES, SHARE_BYTES

# Status of a member: its update was received, was requested but is missing, was not requested.
RECEIVED, DROPPED, NOT_ASKED = 2, 1, 0
FINAL = 1 << 30  # orders the round after its probe rounds
MIN_PARTICIPANTS = 3  # of a device whose owner has not chosen another number
NO_OCTETS: Octets = np.empty(0, dtype=np.uint8)
NO_KEYS: Octets = np.empty((0, KEY_BYTES), dtype=np.uint8)
NO_NODE_KEYS: Octets = np.empty((0, NODE_KEY_BYTES), dtype=np.uint8)
NO_CLIENTS: Ints = np.empty(0, dtype=np.int64)

RoundKey = tuple[int, int]  # round and probe round, in the order of time
LastStep = Literal["", "keys", "shares", "update", "sign"]


@dataclass(frozen=True, eq=False)
class MaskIdentity:
    """What a device brings to secure aggregation: its run, its key, and its owner's limits."""

    run: str = ""
    """Digest of the run and its plan, `Invitation.common_digest`; equal for all clients."""
    node_key: NodeKey | None = None
    """Signs the keys of a round; None: a key that is stored with the client's state."""
    trusted_keys: frozenset[bytes] | None = None
    """Public keys of the nodes that may take part; None: trust on first use."""
    min_participants: int = MIN_PARTICIPANTS
    """Minimum number of clients in a sum, besides `min_clients` of the plan."""


class MaskRound(NamedTuple):
    """The state of one round of secure aggregation, which is deleted after its last step."""

    key: RoundKey = (-1, 0)
    step: LastStep = ""  # the last step that the client has answered
    secrets: Octets = NO_OCTETS  # (96,) private key for masks, for shares, and seed of the own mask
    members: Ints = NO_CLIENTS  # (n,) clients with verified keys, ascending
    mask_keys: Octets = NO_KEYS  # (n, 32)
    channel_keys: Octets = NO_KEYS  # (n, 32)
    node_keys: Octets = NO_NODE_KEYS  # (n, 49)
    directory: Octets = NO_OCTETS  # (32,) digest of members and keys
    group: Ints = NO_CLIENTS  # members that have sent shares; their masks cancel
    model: Octets = NO_OCTETS  # (32,) digest of the received model and learning rate
    weight: int = 0  # of the own update
    statuses: Octets = NO_OCTETS  # (n,)
    weights: Ints = NO_CLIENTS  # (n,) of all members
    statement: Octets = NO_OCTETS  # (32,) signed digest

    @property
    def mask_key(self) -> bytes:
        return self.secrets[:KEY_BYTES].tobytes()

    @property
    def channel_key(self) -> bytes:
        return self.secrets[KEY_BYTES : 2 * KEY_BYTES].tobytes()

    @property
    def seed(self) -> bytes:
        return self.secrets[2 * KEY_BYTES :].tobytes()


class MaskState(NamedTuple):
    """What a client stores for secure aggregation."""

    node_key: Octets  # (48,) private key for signatures, if the device has no other
    last_sent: RoundKey = (-1, 0)  # last round for which it sent a masked update
    round: MaskRound = MaskRound()
    known_clients: Ints = NO_CLIENTS  # (k,) ascending; trust on first use
    known_keys: Octets = NO_NODE_KEYS  # (k, 49)


def new_mask_state() -> MaskState:
    return MaskState(_to_octets(make_node_key()))


# --- the masked update ---


def check_mask_group(
    request: TrainRequest, state: MaskState, secure_aggregation: Masked, identity: MaskIdentity
) -> None:
    """Reject a train request for which no masked update may be sent; before training."""
    _require_step(request.rnd, request.probe_round, state, "shares")
    group = request.mask_group
    assert group is not None  # checked when the request was decoded
    _index_of(group, request.client)
    if len(np.setdiff1d(group, state.round.members)):
        raise BadMessage("the mask group has clients whose keys were not sent before.")
    needed = _count_needed(len(state.round.members), secure_aggregation, identity)
    if len(group) < needed:
        raise BadMessage(
            f"a sum of {len(group)} clients reveals too much about each: at least {needed} are "
            "needed (min_clients, threshold and --min-participants)."
        )


def mask_update(
    response: TrainResponse,
    request: TrainRequest,
    state: MaskState,
    secure_aggregation: Masked,
    recipe: Recipe,
) -> tuple[MaskState, TrainResponse]:
    """Mask the update of a response; return the new mask state and the masked response.

    A round has one masked update: the difference of two updates with the same masks is readable.
    An update that is not finite is sent without a loss, so that the server rejects it.
    """
    group, mask_round = request.mask_group, state.round
    assert group is not None
    delta, own = response.deltas[0], response.client
    weight = own_weight(recipe, response.num_samples, int(response.num_steps[0]))
    model = compute_model_digest(request)
    mask_round = mask_round._replace(
        step="update", group=group, model=_to_octets(model), weight=weight
    )
    state = state._replace(last_sent=mask_round.key, round=mask_round)
    no_deltas = response.deltas[:, :0]
    if not np.isfinite(delta).all():
        zeros = np.zeros(len(delta), dtype=np.uint64)
        return state, replace(response, deltas=no_deltas, losses=np.full(1, np.nan), masked=zeros)
    total = secure_aggregation.encode_update(delta, weight).view(np.uint64)
    total = total + expand_seed(mask_round.seed, len(delta))
    directory = mask_round.directory.tobytes()
    for row, other in enumerate(mask_round.members.tolist()):
        if other != own and other in group:
            public = mask_round.mask_keys[row].tobytes()
            total += make_pairwise_mask(
                mask_round.mask_key, public, own, other, directory, model, len(delta)
            )
    return state, replace(response, deltas=no_deltas, masked=total)


# --- the other steps ---


def answer_mask_request(
    request: MaskRequest,
    state: MaskState,
    secure_aggregation: Masked,
    identity: MaskIdentity,
) -> tuple[MaskState, MaskResponse]:
    """Answer one step of secure aggregation; return the new mask state and the response."""
    _index_of(request.members, request.client)
    if request.step == "keys":
        state, values = _send_keys(request, state, identity)
    elif request.step == "shares":
        state, values = _send_shares(request, state, secure_aggregation, identity)
    elif request.step == "sign":
        state, values = _sign_statement(request, state, secure_aggregation, identity)
    else:
        state, values = _open_shares(request, state, secure_aggregation, identity)
    response = MaskResponse(request.rnd, request.client, request.step, request.probe_round, values)
    return state, response


def _send_keys(
    request: MaskRequest, state: MaskState, identity: MaskIdentity
) -> tuple[MaskState, dict[str, Octets]]:
    """Draw the secrets of a round and sign its public keys.

    The secrets of the previous round are deleted. A round may start again, with other secrets, as
    long as no masked update was sent.
    """
    key = _round_key(request.rnd, request.probe_round)
    if key <= state.last_sent:
        raise BadMessage(f"the update for round {request.rnd + 1} was sent already.")
    mask_round = MaskRound(key, "keys", _to_octets(os.urandom(3 * KEY_BYTES)))
    node_key = _get_node_key(state, identity)
    mask_key, channel_key = map(derive_public_key, (mask_round.mask_key, mask_round.channel_key))
    commitment = hashlib.sha256(mask_round.seed).digest()
    digest = compute_keys_digest(
        identity.run,
        request.rnd,
        request.probe_round,
        request.client,
        mask_key,
        channel_key,
        commitment,
    )
    values = {
        "mask_keys": _row(mask_key),
        "channel_keys": _row(channel_key),
        "commitments": _row(commitment),
        "node_keys": _row(get_public_node_key(node_key)),
        "signatures": _row(sign(node_key, digest)),
    }
    return state._replace(round=mask_round), values


def _send_shares(
    request: MaskRequest, state: MaskState, secure_aggregation: Masked, identity: MaskIdentity
) -> tuple[MaskState, dict[str, Octets]]:
    """Verify the keys of all members; send each its encrypted shares of this client's secrets."""
    mask_round = _require_step(request.rnd, request.probe_round, state, "keys")
    number = len(request.members)
    minimum = max(secure_aggregation.min_clients, identity.min_participants)
    if not minimum <= number <= MAX_CLIENTS:
        raise BadMessage(f"expected {minimum} to {MAX_CLIENTS} clients in a sum, got {number}.")
    state = _verify_keys(request, state, identity)
    directory = compute_directory_digest(
        identity.run, request.rnd, request.probe_round, request.members, request.values
    )
    threshold = secure_aggregation.required_clients(number)
    shares = [
        split_secret(secret, number, threshold, draw_coefficient)
        for secret in (mask_round.seed, mask_round.mask_key)
    ]
    encrypted = [
        encrypt_share(
            seed_share + key_share,
            mask_round.channel_key,
            public.tobytes(),
            request.client,
            member,
            directory,
        )
        for seed_share, key_share, public, member in zip(
            *shares, request.values["channel_keys"], request.members.tolist(), strict=True
        )
    ]
    mask_round = mask_round._replace(
        step="shares",
        members=request.members,
        mask_keys=request.values["mask_keys"],
        channel_keys=request.values["channel_keys"],
        node_keys=request.values["node_keys"],
        directory=_to_octets(directory),
    )
    return state._replace(round=mask_round), {
        "encrypted_shares": np.stack([_to_octets(each) for each in encrypted])
    }


def _verify_keys(request: MaskRequest, state: MaskState, identity: MaskIdentity) -> MaskState:
    """Reject keys that are not signed by trusted nodes; return the state with the known keys."""
    values, own = request.values, _index_of(request.members, request.client)
    node_keys = [row.tobytes() for row in values["node_keys"]]
    if len(set(node_keys)) < len(node_keys):
        raise Rejected(RejectionCode.KEY, "two members of the sum have the same node key.")
    own_keys = (
        derive_public_key(state.round.mask_key),
        derive_public_key(state.round.channel_key),
        hashlib.sha256(state.round.seed).digest(),
        get_public_node_key(_get_node_key(state, identity)),
    )
    names = ("mask_keys", "channel_keys", "commitments", "node_keys")
    if own_keys != tuple(values[name][own].tobytes() for name in names):
        raise Rejected(
            RejectionCode.KEY,
            f"the request has wrong public keys for client {request.client}, which is this one.",
        )
    known = dict(
        zip(state.known_clients.tolist(), (row.tobytes() for row in state.known_keys), strict=True)
    )
    for row, (client, node_key) in enumerate(zip(request.members.tolist(), node_keys, strict=True)):
        if client != request.client:  # its own key was compared above, and need not be listed
            _check_trust(client, node_key, known, identity)
        digest = compute_keys_digest(
            identity.run,
            request.rnd,
            request.probe_round,
            client,
            *(values[name][row].tobytes() for name in names[:3]),
        )
        if not is_signed(node_key, digest, values["signatures"][row].tobytes()):
            raise Rejected(
                RejectionCode.KEY, f"the keys of client {client} are not signed by its node."
            )
    if identity.trusted_keys is not None:
        return state
    known |= dict(zip(request.members.tolist(), node_keys, strict=True))
    clients = sorted(known)
    return state._replace(
        known_clients=np.array(clients, dtype=np.int64),
        known_keys=np.stack([_to_octets(known[client]) for client in clients]),
    )


def _check_trust(
    client: int, node_key: bytes, known: dict[int, bytes], identity: MaskIdentity
) -> None:
    """Reject a node that the owner has not listed, or whose key differs from the first one."""
    trusted = identity.trusted_keys
    if trusted is not None and node_key not in trusted:
        raise Rejected(
            RejectionCode.KEY,
            f"the node key {format_node_key(node_key)} of client {client} is not one of the "
            f"{len(trusted)} keys that this device trusts (--peers). Nothing is sent for a sum "
            "with this client. If you trust it, add its node.pub to the folder and join again.",
        )
    if trusted is None and known.get(client, node_key) != node_key:
        raise Rejected(
            RejectionCode.KEY,
            f"client {client} has the node key {format_node_key(node_key)}, but had "
            f"{format_node_key(known[client])} in an earlier round.",
        )


def _sign_statement(
    request: MaskRequest, state: MaskState, secure_aggregation: Masked, identity: MaskIdentity
) -> tuple[MaskState, dict[str, Octets]]:
    """Sign, once per round, which updates are in the sum, of which model and with which weights."""
    mask_round = _require_step(request.rnd, request.probe_round, state, "update")
    _check_members(request, mask_round)
    statuses = request.values["statuses"][:, 0]
    weights = decode_weights(request.values["weights"])
    own, is_received = _index_of(request.members, request.client), statuses == RECEIVED
    in_group = np.isin(request.members, mask_round.group)
    if (
        statuses[own] != RECEIVED
        or not np.isin(statuses[in_group], (RECEIVED, DROPPED)).all()
        or (statuses[~in_group] != NOT_ASKED).any()
    ):
        raise BadMessage("the statuses of the members are inconsistent.")
    if weights[own] != mask_round.weight or (weights[~is_received] != 0).any():
        raise BadMessage(
            f"the update of client {request.client} has weight {mask_round.weight}, the request "
            f"has {weights[own]}; members without an update must have weight 0."
        )
    needed = _count_needed(len(request.members), secure_aggregation, identity)
    if is_received.sum() < needed:
        raise BadMessage(
            f"{is_received.sum()} of {len(request.members)} updates were received, {needed} are "
            "needed."
        )
    _check_contributors(weights, secure_aggregation, identity)
    statement = compute_statement_digest(
        mask_round.directory.tobytes(),
        mask_round.model.tobytes(),
        mask_round.group,
        statuses,
        weights,
    )
    mask_round = mask_round._replace(
        step="sign", statuses=statuses, weights=weights, statement=_to_octets(statement)
    )
    signature = sign(_get_node_key(state, identity), statement)
    return state._replace(round=mask_round), {"signatures": _row(signature)}


def _open_shares(
    request: MaskRequest, state: MaskState, secure_aggregation: Masked, identity: MaskIdentity
) -> tuple[MaskState, dict[str, Octets]]:
    """Reveal shares if enough members have signed the same statement; delete the round's secrets.

    The result has (n, 66) shares: of a member's seed if its update was received, else of its key.
    """
    mask_round = _require_step(request.rnd, request.probe_round, state, "sign")
    _check_members(request, mask_round)
    statement = mask_round.statement.tobytes()
    signers = np.array(
        [
            status == RECEIVED and is_signed(node_key.tobytes(), statement, signature.tobytes())
            for status, node_key, signature in zip(
                mask_round.statuses, mask_round.node_keys, request.values["signatures"], strict=True
            )
        ]
    )
    needed = _count_needed(len(request.members), secure_aggregation, identity)
    if signers.sum() < needed:
        raise BadMessage(
            f"{signers.sum()} of {len(request.members)} clients have signed what this client has "
            f"signed (members, model, weights and round), {needed} are needed."
        )
    _check_contributors(mask_round.weights[signers], secure_aggregation, identity)
    shares = np.zeros((len(signers), SHARE_BYTES), dtype=np.uint8)
    members = zip(mask_round.members.tolist(), mask_round.statuses.tolist(), strict=True)
    for row, (member, status) in enumerate(members):
        if status != NOT_ASKED:
            both = decrypt_share(
                request.values["encrypted_shares"][row].tobytes(),
                mask_round.channel_key,
                mask_round.channel_keys[row].tobytes(),
                member,
                request.client,
                mask_round.directory.tobytes(),
            )
            share = both[:SHARE_BYTES] if status == RECEIVED else both[SHARE_BYTES:]
            if share:
                shares[row] = _to_octets(share)
    return state._replace(round=MaskRound()), {"shares": shares}


# --- private ---


def _check_contributors(weights: Ints, secure_aggregation: Masked, identity: MaskIdentity) -> None:
    """Reject a sum in which too few updates have a weight: it would reveal these updates."""
    minimum = max(secure_aggregation.min_clients, identity.min_participants)
    if (number := int((weights > 0).sum())) < minimum:
        raise BadMessage(
            f"{number} clients have an update with a weight above 0, {minimum} are needed."
        )


def _check_members(request: MaskRequest, mask_round: MaskRound) -> None:
    if request.members.tolist() != mask_round.members.tolist():
        raise BadMessage("the members of the sum differ from those whose keys were sent before.")


def _count_needed(number: int, secure_aggregation: Masked, identity: MaskIdentity) -> int:
    """How many of `number` members must take part."""
    return max(secure_aggregation.required_clients(number), identity.min_participants)


def _require_step(rnd: int, probe_round: int, state: MaskState, step: LastStep) -> MaskRound:
    """Return the current round if `step` was its last step; reject repeated and skipped steps."""
    current = state.round
    if (current.key, current.step) != (_round_key(rnd, probe_round), step):
        raise BadMessage(
            f"a step of secure aggregation is out of order: it must follow {step!r} of round "
            f"{rnd + 1}, but this client's last step is {current.step or 'none'!r} of round "
            f"{max(current.key[0], state.last_sent[0]) + 1}."
        )
    return current


def _get_node_key(state: MaskState, identity: MaskIdentity) -> NodeKey:
    return identity.node_key or restore_node_key(state.node_key.tobytes())


def _index_of(members: Ints, client: int) -> int:
    found = np.flatnonzero(members == client)
    if len(found) != 1:
        raise BadMessage(f"client {client} is not a member of the sum that it was asked for.")
    return int(found[0])


def _round_key(rnd: int, probe_round: int) -> RoundKey:
    """Orders rounds in time: the probe rounds of a round come before it."""
    return rnd, probe_round or FINAL


def _row(octets: bytes) -> Octets:
    return _to_octets(octets)[None]


def _to_octets(octets: bytes) -> Octets:
    return np.frombuffer(octets, dtype=np.uint8)
