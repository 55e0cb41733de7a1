"""The client's part of a masked sum: keys, shares of secrets, and an update that nobody can read by itself.

All secrets of a round come out of one that the client keeps, so that a client that was killed goes on with the
same ones. What it gives away it gives away once: of every other client the seed of its own mask, or the key of its
common ones, never both, because that would be its update.

A library does the cryptography: X25519 for keys, HKDF-SHA256 to derive, AES-GCM for letters that the server hands
on, and AES in counter mode for streams of random numbers.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.aggregation import Masked
from thalweg.aggregation.secure_aggregation import MAX_CLIENTS
from thalweg.core.errors import BadMessage, ConfigError
from thalweg.core.types import Ints
from thalweg.federation import (
    MaskGroup,
    MaskRequest,
    MaskResponse,
    Octets,
    TrainRequest,
    TrainResponse,
)
from thalweg.federation.extensions.secure_aggregation import own_weight
from thalweg.recipes.base import Recipe
from thalweg.theory import split_secret
from thalweg.theory.masked_sums import SHARE_BYTES

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:
    raise ConfigError(
        "secure_aggregation=masked on a network needs the package cryptography, which comes with Flower: "
        "pip install 'thalweg[flower]'."
    ) from error

Words = npt.NDArray[np.uint64]
SECRET_BYTES = 32
RECEIVED, DROPPED, NOT_ASKED = (
    2,
    1,
    0,
)  # fates of a member: sent its update, was to send it, was not asked for it
FINAL = 1 << 30  # the round itself comes after its rehearsals


class MaskState(NamedTuple):
    """What a client remembers for masked sums."""

    secret: Octets  # (32,)
    last_shared: list[int]  # round and rehearsal for which it has made shares last
    last_sent: list[int]  # for which it has sent an update last
    last_opened: list[int]  # for which it has given some of others away last


def new_mask_state() -> MaskState:
    secret = np.frombuffer(os.urandom(SECRET_BYTES), dtype=np.uint8)
    return MaskState(secret, [-1, 0], [-1, 0], [-1, 0])


class RoundSecrets:
    """All that a client keeps to itself in one round."""

    def __init__(self, master: bytes, rnd: int, probe_round: int) -> None:
        self._master, self._round_key = master, f"{rnd} {probe_round}"
        self.mask_key, self.channel_key = self._key("mask"), self._key("post")
        self.seed = self._derive("seed")

    def coefficient(self, of: str, members: Ints, number: int) -> int:
        """Of the polynomial whose values are shares of a secret."""
        among = hashlib.sha256(members.tobytes()).hexdigest()
        drawn = self._derive(f"share {of} {number} {among}", SHARE_BYTES + 16)
        return int.from_bytes(drawn, "big")

    def _key(self, what: str) -> bytes:
        return self._derive(f"{what} key")

    def _derive(self, what: str, length: int = SECRET_BYTES) -> bytes:
        return derive_key(self._master, f"{self._round_key} {what}", length)


def derive_key(secret: bytes, what: str, length: int = SECRET_BYTES) -> bytes:
    """Bytes that nobody can guess who does not know the secret."""
    info = f"thalweg masked sums {what}".encode()
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=None, info=info).derive(secret)


def derive_public_key(key: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def derive_shared_key(key: bytes, public: bytes, what: str) -> bytes:
    """What the owners of two keys alone know."""
    try:
        common = X25519PrivateKey.from_private_bytes(key).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError as error:
        raise BadMessage("a public key is none.") from error
    return derive_key(common, what)


def expand_seed(seed: bytes, length: int) -> Words:
    """(P,) random numbers of 64 bits."""
    encryptor = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * length)), dtype="<u8")


def make_pairwise_mask(
    key: bytes, public: bytes, mine: int, other: int, when: str, length: int
) -> Words:
    """(P,) the mask that two clients have in common, with the sign that it has at client `mine`."""
    pair = f"{min(mine, other)} {max(mine, other)}"
    mask = expand_seed(derive_shared_key(key, public, f"mask {when} {pair}"), length)
    return mask if mine < other else -mask


def mask_update(
    reply: TrainResponse,
    order: TrainRequest,
    state: MaskState,
    secure_aggregation: Masked,
    recipe: Recipe,
) -> tuple[MaskState, TrainResponse]:
    """A reply whose update only has a meaning in the sum, and what the client remembers of it.

    There is one for every sum: two with the same masks would tell what they differ by. If it is not finite, the
    server shall know: it has no loss, which is refused.
    """
    mask_group = order.mask_group
    assert mask_group is not None  # the wire has looked
    moment = list(_round_key(order.rnd, order.probe_round))
    if moment != list(state.last_shared):
        raise BadMessage(
            f"an update for round {order.rnd + 1} is wanted, but no shares of its masks were made."
        )
    if moment <= list(state.last_sent):
        raise BadMessage(f"the update for round {order.rnd + 1} was sent already.")
    state = state._replace(last_sent=moment)
    secrets = RoundSecrets(state.secret.tobytes(), order.rnd, order.probe_round)
    place = _index_of(mask_group.members, reply.client)
    if len(mask_group.members) < secure_aggregation.min_clients:
        raise BadMessage(f"a sum of {len(mask_group.members)} clients says too much about each.")
    if mask_group.keys[place].tobytes() != derive_public_key(secrets.mask_key):
        raise BadMessage(f"the key of client {reply.client} is not its own.")
    delta = reply.deltas[0]
    weight = own_weight(recipe, reply.num_samples, int(reply.num_steps[0]))
    nothing = reply.deltas[:, :0]
    if not np.isfinite(delta).all():
        zeros = np.zeros(len(delta), dtype=np.uint64)
        return state, replace(reply, deltas=nothing, losses=np.full(1, np.nan), masked=zeros)
    total = secure_aggregation.encode_update(delta, weight).view(np.uint64) + expand_seed(
        secrets.seed, len(delta)
    )
    when = f"{order.rnd} {order.probe_round}"
    for other, public in zip(mask_group.members.tolist(), mask_group.keys, strict=True):
        if other != reply.client:
            total += make_pairwise_mask(
                secrets.mask_key, public.tobytes(), reply.client, other, when, len(delta)
            )
    return state, replace(reply, deltas=nothing, masked=total)


def answer_mask_request(
    call: MaskRequest, state: MaskState, secure_aggregation: Masked
) -> tuple[MaskState, MaskResponse]:
    """What a client gives when it is called, and what it remembers of it."""
    secrets = RoundSecrets(state.secret.tobytes(), call.rnd, call.probe_round)
    place = _index_of(call.members, call.client)
    moment = list(_round_key(call.rnd, call.probe_round))
    if call.step == "keys":
        values = {
            "mask_keys": _row(derive_public_key(secrets.mask_key)),
            "channel_keys": _row(derive_public_key(secrets.channel_key)),
            "commitments": _row(hashlib.sha256(secrets.seed).digest()),
        }
    elif call.step == "shares":
        if moment <= list(state.last_shared):
            raise BadMessage(f"the shares for round {call.rnd + 1} were made already.")
        values = {"encrypted_shares": _encrypt_shares(call, secrets, secure_aggregation)}
        state = state._replace(last_shared=moment)
    else:
        if moment != list(state.last_shared) or moment <= list(state.last_opened):
            raise BadMessage(
                f"nothing is to be opened for round {call.rnd + 1}, or it was opened already."
            )
        values = {"shares": _decrypt_shares(call, secrets, place, secure_aggregation)}
        state = state._replace(last_opened=moment)
    return state, MaskResponse(call.rnd, call.client, call.step, call.probe_round, values)


def _encrypt_shares(call: MaskRequest, secrets: RoundSecrets, secure_aggregation: Masked) -> Octets:
    """(n, E) a closed letter to every member: its shares of this client's two secrets."""
    number = len(call.members)
    if not secure_aggregation.min_clients <= number <= MAX_CLIENTS:
        raise BadMessage(
            f"a sum of {number} clients: at least {secure_aggregation.min_clients} and at most {MAX_CLIENTS} are let in."
        )
    threshold = secure_aggregation.required_clients(number)
    parts = [
        split_secret(secret, number, threshold, partial(secrets.coefficient, what, call.members))
        for what, secret in (("seed", secrets.seed), ("key", secrets.mask_key))
    ]
    encrypted_shares = [
        _encrypt(seed_share + key_share, call, secrets, public.tobytes(), call.client, member)
        for seed_share, key_share, public, member in zip(
            *parts, call.values["channel_keys"], call.members.tolist(), strict=True
        )
    ]
    return np.stack([np.frombuffer(letter, dtype=np.uint8) for letter in encrypted_shares])


def _decrypt_shares(
    call: MaskRequest, secrets: RoundSecrets, place: int, secure_aggregation: Masked
) -> Octets:
    """(n, 66) this client's share of every member: of its seed if it was heard, of its key if it was not."""
    statuses = call.values["statuses"][:, 0]
    heard = int((statuses == RECEIVED).sum())
    if statuses[place] != RECEIVED or not np.isin(statuses, (RECEIVED, DROPPED, NOT_ASKED)).all():
        raise BadMessage("the statuses of the members cannot be true.")
    if heard < secure_aggregation.required_clients(len(call.members)):
        raise BadMessage(
            f"{heard} of {len(call.members)} clients were heard, {secure_aggregation.required_clients(len(call.members))} are needed."
        )
    shares = np.zeros((len(statuses), SHARE_BYTES), dtype=np.uint8)
    for at, (member, fate) in enumerate(zip(call.members.tolist(), statuses.tolist(), strict=True)):
        if fate != NOT_ASKED:
            public = call.values["channel_keys"][at].tobytes()
            both = _decrypt(
                call.values["encrypted_shares"][at].tobytes(), call, secrets, public, member
            )
            mine = both[:SHARE_BYTES] if fate == RECEIVED else both[SHARE_BYTES:]
            if mine:
                shares[at] = np.frombuffer(mine, dtype=np.uint8)
    return shares


def _encrypt(
    text: bytes, call: MaskRequest, secrets: RoundSecrets, public: bytes, sender: int, reader: int
) -> bytes:
    """Every key closes one letter, so that its number need not be random."""
    key = derive_shared_key(secrets.channel_key, public, _channel_label(call, sender, reader))
    return AESGCM(key).encrypt(bytes(12), text, None)


def _decrypt(
    letter: bytes, call: MaskRequest, secrets: RoundSecrets, public: bytes, sender: int
) -> bytes:
    """Nothing if it cannot be read: then its writer's mask stays on, and the server knows whose it is."""
    key = derive_shared_key(secrets.channel_key, public, _channel_label(call, sender, call.client))
    try:
        return AESGCM(key).decrypt(bytes(12), letter, None)
    except InvalidTag:
        return b""


def _channel_label(call: MaskRequest, sender: int, reader: int) -> str:
    return f"post {call.rnd} {call.probe_round} {sender} {reader}"


def _index_of(members: Ints, client: int) -> int:
    found = np.flatnonzero(members == client)
    if len(found) != 1:
        raise BadMessage(f"client {client} is not among the members of its own sum.")
    return int(found[0])


def _round_key(rnd: int, probe_round: int) -> tuple[int, int]:
    return rnd, probe_round or FINAL


def _row(octets: bytes) -> Octets:
    return np.frombuffer(octets, dtype=np.uint8)[None]


def make_mask_group(members: list[int], keys: list[bytes]) -> MaskGroup:
    """Clients whose masks cancel each other."""
    public = np.stack([np.frombuffer(key, dtype=np.uint8) for key in keys])
    return MaskGroup(np.array(members, dtype=np.int64), public)
