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
from thalweg.aggregation.secrecy import MOST_CLIENTS
from thalweg.core.errors import BadMessage, ConfigError
from thalweg.core.types import Ints
from thalweg.recipes.base import Recipe
from thalweg.recipes.messages import Call, Circle, Octets, Order, Reply, Token
from thalweg.recipes.sums import own_weight
from thalweg.theory import shares_of
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
        "secrecy=masked on a network needs the package cryptography, which comes with Flower: "
        "pip install 'thalweg[flower]'."
    ) from error

Words = npt.NDArray[np.uint64]
SECRET_BYTES = 32
HEARD, LOST, AWAY = (
    2,
    1,
    0,
)  # fates of a member: sent its update, was to send it, was not asked for it
LAST = 1 << 30  # the round itself comes after its rehearsals


class MaskState(NamedTuple):
    """What a client remembers for masked sums."""

    secret: Octets  # (32,)
    shared: list[int]  # round and rehearsal for which it has made shares last
    sent: list[int]  # for which it has sent an update last
    opened: list[int]  # for which it has given some of others away last


def new_mask_state() -> MaskState:
    secret = np.frombuffer(os.urandom(SECRET_BYTES), dtype=np.uint8)
    return MaskState(secret, [-1, 0], [-1, 0], [-1, 0])


class Secrets:
    """All that a client keeps to itself in one round."""

    def __init__(self, master: bytes, rnd: int, rehearsal: int) -> None:
        self._master, self._moment = master, f"{rnd} {rehearsal}"
        self.mask_key, self.post_key = self._key("mask"), self._key("post")
        self.seed = self._derived("seed")

    def coefficient(self, of: str, members: Ints, number: int) -> int:
        """Of the polynomial whose values are shares of a secret."""
        among = hashlib.sha256(members.tobytes()).hexdigest()
        drawn = self._derived(f"share {of} {number} {among}", SHARE_BYTES + 16)
        return int.from_bytes(drawn, "big")

    def _key(self, what: str) -> bytes:
        return self._derived(f"{what} key")

    def _derived(self, what: str, length: int = SECRET_BYTES) -> bytes:
        return derived(self._master, f"{self._moment} {what}", length)


def derived(secret: bytes, what: str, length: int = SECRET_BYTES) -> bytes:
    """Bytes that nobody can guess who does not know the secret."""
    info = f"thalweg masked sums {what}".encode()
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=None, info=info).derive(secret)


def public_of(key: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def agreed(key: bytes, public: bytes, what: str) -> bytes:
    """What the owners of two keys alone know."""
    try:
        common = X25519PrivateKey.from_private_bytes(key).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError as error:
        raise BadMessage("a public key is none.") from error
    return derived(common, what)


def stream(seed: bytes, length: int) -> Words:
    """(P,) random numbers of 64 bits."""
    encryptor = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * length)), dtype="<u8")


def between(key: bytes, public: bytes, mine: int, other: int, when: str, length: int) -> Words:
    """(P,) the mask that two clients have in common, with the sign that it has at client `mine`."""
    pair = f"{min(mine, other)} {max(mine, other)}"
    mask = stream(agreed(key, public, f"mask {when} {pair}"), length)
    return mask if mine < other else -mask


def masked_reply(
    reply: Reply, order: Order, state: MaskState, secrecy: Masked, recipe: Recipe
) -> tuple[MaskState, Reply]:
    """A reply whose update only has a meaning in the sum, and what the client remembers of it.

    There is one for every sum: two with the same masks would tell what they differ by. If it is not finite, the
    server shall know: it has no loss, which is refused.
    """
    circle = order.circle
    assert circle is not None  # the wire has looked
    moment = list(_moment(order.rnd, order.rehearsal))
    if moment != list(state.shared):
        raise BadMessage(
            f"an update for round {order.rnd + 1} is wanted, but no shares of its masks were made."
        )
    if moment <= list(state.sent):
        raise BadMessage(f"the update for round {order.rnd + 1} was sent already.")
    state = state._replace(sent=moment)
    secrets = Secrets(state.secret.tobytes(), order.rnd, order.rehearsal)
    place = _place(circle.members, reply.client)
    if len(circle.members) < secrecy.least:
        raise BadMessage(f"a sum of {len(circle.members)} clients says too much about each.")
    if circle.keys[place].tobytes() != public_of(secrets.mask_key):
        raise BadMessage(f"the key of client {reply.client} is not its own.")
    delta = reply.deltas[0]
    weight = own_weight(recipe, reply.num_samples, int(reply.num_steps[0]))
    nothing = reply.deltas[:, :0]
    if not np.isfinite(delta).all():
        zeros = np.zeros(len(delta), dtype=np.uint64)
        return state, replace(reply, deltas=nothing, losses=np.full(1, np.nan), masked=zeros)
    total = secrecy.whole(delta, weight).view(np.uint64) + stream(secrets.seed, len(delta))
    when = f"{order.rnd} {order.rehearsal}"
    for other, public in zip(circle.members.tolist(), circle.keys, strict=True):
        if other != reply.client:
            total += between(
                secrets.mask_key, public.tobytes(), reply.client, other, when, len(delta)
            )
    return state, replace(reply, deltas=nothing, masked=total)


def given(call: Call, state: MaskState, secrecy: Masked) -> tuple[MaskState, Token]:
    """What a client gives when it is called, and what it remembers of it."""
    secrets = Secrets(state.secret.tobytes(), call.rnd, call.rehearsal)
    place = _place(call.members, call.client)
    moment = list(_moment(call.rnd, call.rehearsal))
    if call.step == "keys":
        words = {
            "mask_keys": _row(public_of(secrets.mask_key)),
            "post_keys": _row(public_of(secrets.post_key)),
            "promises": _row(hashlib.sha256(secrets.seed).digest()),
        }
    elif call.step == "shares":
        if moment <= list(state.shared):
            raise BadMessage(f"the shares for round {call.rnd + 1} were made already.")
        words = {"letters": _letters(call, secrets, secrecy)}
        state = state._replace(shared=moment)
    else:
        if moment != list(state.shared) or moment <= list(state.opened):
            raise BadMessage(
                f"nothing is to be opened for round {call.rnd + 1}, or it was opened already."
            )
        words = {"shares": _opened(call, secrets, place, secrecy)}
        state = state._replace(opened=moment)
    return state, Token(call.rnd, call.client, call.step, call.rehearsal, words)


def _letters(call: Call, secrets: Secrets, secrecy: Masked) -> Octets:
    """(n, E) a closed letter to every member: its shares of this client's two secrets."""
    number = len(call.members)
    if not secrecy.least <= number <= MOST_CLIENTS:
        raise BadMessage(
            f"a sum of {number} clients: at least {secrecy.least} and at most {MOST_CLIENTS} are let in."
        )
    threshold = secrecy.needed(number)
    parts = [
        shares_of(secret, number, threshold, partial(secrets.coefficient, what, call.members))
        for what, secret in (("seed", secrets.seed), ("key", secrets.mask_key))
    ]
    letters = [
        _closed(seed_share + key_share, call, secrets, public.tobytes(), call.client, member)
        for seed_share, key_share, public, member in zip(
            *parts, call.words["post_keys"], call.members.tolist(), strict=True
        )
    ]
    return np.stack([np.frombuffer(letter, dtype=np.uint8) for letter in letters])


def _opened(call: Call, secrets: Secrets, place: int, secrecy: Masked) -> Octets:
    """(n, 66) this client's share of every member: of its seed if it was heard, of its key if it was not."""
    fates = call.words["fates"][:, 0]
    heard = int((fates == HEARD).sum())
    if fates[place] != HEARD or not np.isin(fates, (HEARD, LOST, AWAY)).all():
        raise BadMessage("the fates of the members cannot be true.")
    if heard < secrecy.needed(len(call.members)):
        raise BadMessage(
            f"{heard} of {len(call.members)} clients were heard, {secrecy.needed(len(call.members))} are needed."
        )
    shares = np.zeros((len(fates), SHARE_BYTES), dtype=np.uint8)
    for at, (member, fate) in enumerate(zip(call.members.tolist(), fates.tolist(), strict=True)):
        if fate != AWAY:
            public = call.words["post_keys"][at].tobytes()
            both = _read(call.words["letters"][at].tobytes(), call, secrets, public, member)
            mine = both[:SHARE_BYTES] if fate == HEARD else both[SHARE_BYTES:]
            if mine:
                shares[at] = np.frombuffer(mine, dtype=np.uint8)
    return shares


def _closed(
    text: bytes, call: Call, secrets: Secrets, public: bytes, sender: int, reader: int
) -> bytes:
    """Every key closes one letter, so that its number need not be random."""
    key = agreed(secrets.post_key, public, _post(call, sender, reader))
    return AESGCM(key).encrypt(bytes(12), text, None)


def _read(letter: bytes, call: Call, secrets: Secrets, public: bytes, sender: int) -> bytes:
    """Nothing if it cannot be read: then its writer's mask stays on, and the server knows whose it is."""
    key = agreed(secrets.post_key, public, _post(call, sender, call.client))
    try:
        return AESGCM(key).decrypt(bytes(12), letter, None)
    except InvalidTag:
        return b""


def _post(call: Call, sender: int, reader: int) -> str:
    return f"post {call.rnd} {call.rehearsal} {sender} {reader}"


def _place(members: Ints, client: int) -> int:
    found = np.flatnonzero(members == client)
    if len(found) != 1:
        raise BadMessage(f"client {client} is not among the members of its own sum.")
    return int(found[0])


def _moment(rnd: int, rehearsal: int) -> tuple[int, int]:
    return rnd, rehearsal or LAST


def _row(octets: bytes) -> Octets:
    return np.frombuffer(octets, dtype=np.uint8)[None]


def circle_of(members: list[int], keys: list[bytes]) -> Circle:
    """Clients whose masks cancel each other."""
    public = np.stack([np.frombuffer(key, dtype=np.uint8) for key in keys])
    return Circle(np.array(members, dtype=np.int64), public)
