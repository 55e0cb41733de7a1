"""The client's part of secure aggregation: keys, secret shares, and masked updates.

All secrets of a round are derived from one stored secret, so a client that is killed continues with
the same ones. In each round a client reveals, for every other client, either the share of its seed
or the share of its key. Both together would reveal that client's update.

The package cryptography provides X25519 for key agreement, HKDF-SHA256 for key derivation, AES-GCM
for the shares that the server forwards, and AES in counter mode for the random masks.
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
from thalweg.federation import MaskGroup, Octets, TrainRequest, TrainResponse
from thalweg.federation.extensions.secure_aggregation import own_weight
from thalweg.network.wire import MaskRequest, MaskResponse
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
        "secure_aggregation=masked on a network needs the package cryptography, which comes with "
        "Flower: pip install 'thalweg[flower]'."
    ) from error

MaskVector = npt.NDArray[np.uint64]
SECRET_BYTES = 32
# Status of a member: its update was received, was requested but is missing, was not requested.
RECEIVED, DROPPED, NOT_ASKED = 2, 1, 0
FINAL = 1 << 30  # orders the round after its probe rounds


class MaskState(NamedTuple):
    """What a client stores for secure aggregation; round keys are (round, probe round)."""

    secret: Octets  # (32,)
    last_shared: list[int]  # last round for which it made shares
    last_sent: list[int]  # last round for which it sent an update
    last_opened: list[int]  # last round for which it revealed shares of other clients


def new_mask_state() -> MaskState:
    secret = np.frombuffer(os.urandom(SECRET_BYTES), dtype=np.uint8)
    return MaskState(secret, [-1, 0], [-1, 0], [-1, 0])


class RoundSecrets:
    """The secrets of a client in one round: two private keys, and the seed of its own mask."""

    def __init__(self, master: bytes, rnd: int, probe_round: int) -> None:
        self._master, self._round_label = master, f"{rnd} {probe_round}"
        self.mask_key = self._derive("mask key")
        self.channel_key = self._derive("channel key")
        self.seed = self._derive("seed")

    def coefficient(self, secret_name: str, members: Ints, number: int) -> int:
        """Coefficient `number` of the polynomial that splits a secret into shares."""
        digest = hashlib.sha256(members.tobytes()).hexdigest()
        derived = self._derive(f"share {secret_name} {number} {digest}", SHARE_BYTES + 16)
        return int.from_bytes(derived, "big")

    def _derive(self, label: str, length: int = SECRET_BYTES) -> bytes:
        return derive_key(self._master, f"{self._round_label} {label}", length)


def derive_key(secret: bytes, label: str, length: int = SECRET_BYTES) -> bytes:
    """Derive `length` bytes from a secret; each label gives independent bytes."""
    info = f"thalweg masked sums {label}".encode()
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=None, info=info).derive(secret)


def derive_public_key(key: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def derive_shared_key(key: bytes, public: bytes, label: str) -> bytes:
    """Derive the secret that the owners of two key pairs share (Diffie-Hellman)."""
    try:
        shared = X25519PrivateKey.from_private_bytes(key).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError as error:
        raise BadMessage("a public key is not a valid X25519 key.") from error
    return derive_key(shared, label)


def expand_seed(seed: bytes, length: int) -> MaskVector:
    """(P,) random 64-bit numbers from a seed."""
    encryptor = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * length)), dtype="<u8")


def make_pairwise_mask(
    key: bytes, public: bytes, own: int, other: int, round_label: str, length: int
) -> MaskVector:
    """(P,) mask that two clients share, with the sign that it has at the client `own`."""
    pair = f"{min(own, other)} {max(own, other)}"
    mask = expand_seed(derive_shared_key(key, public, f"mask {round_label} {pair}"), length)
    return mask if own < other else -mask


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
    mask_group = request.mask_group
    assert mask_group is not None  # checked when the request was decoded
    round_key = list(_round_key(request.rnd, request.probe_round))
    if round_key != list(state.last_shared):
        raise BadMessage(
            f"an update for round {request.rnd + 1} was requested before its mask shares were."
        )
    if round_key <= list(state.last_sent):
        raise BadMessage(f"the update for round {request.rnd + 1} was sent already.")
    state = state._replace(last_sent=round_key)
    secrets = RoundSecrets(state.secret.tobytes(), request.rnd, request.probe_round)
    index = _index_of(mask_group.members, response.client)
    if len(mask_group.members) < secure_aggregation.min_clients:
        raise BadMessage(
            f"a sum of {len(mask_group.members)} clients reveals too much about each: at least "
            f"{secure_aggregation.min_clients} are needed (min_clients)."
        )
    if mask_group.keys[index].tobytes() != derive_public_key(secrets.mask_key):
        raise BadMessage(f"the request has a wrong public key for client {response.client}.")
    delta = response.deltas[0]
    weight = own_weight(recipe, response.num_samples, int(response.num_steps[0]))
    no_deltas = response.deltas[:, :0]
    if not np.isfinite(delta).all():
        zeros = np.zeros(len(delta), dtype=np.uint64)
        return state, replace(response, deltas=no_deltas, losses=np.full(1, np.nan), masked=zeros)
    total = secure_aggregation.encode_update(delta, weight).view(np.uint64) + expand_seed(
        secrets.seed, len(delta)
    )
    round_label = f"{request.rnd} {request.probe_round}"
    for other, public in zip(mask_group.members.tolist(), mask_group.keys, strict=True):
        if other != response.client:
            total += make_pairwise_mask(
                secrets.mask_key, public.tobytes(), response.client, other, round_label, len(delta)
            )
    return state, replace(response, deltas=no_deltas, masked=total)


def answer_mask_request(
    request: MaskRequest, state: MaskState, secure_aggregation: Masked
) -> tuple[MaskState, MaskResponse]:
    """Answer one step of secure aggregation; return the new mask state and the response."""
    secrets = RoundSecrets(state.secret.tobytes(), request.rnd, request.probe_round)
    index = _index_of(request.members, request.client)
    round_key = list(_round_key(request.rnd, request.probe_round))
    if request.step == "keys":
        values = {
            "mask_keys": _row(derive_public_key(secrets.mask_key)),
            "channel_keys": _row(derive_public_key(secrets.channel_key)),
            "commitments": _row(hashlib.sha256(secrets.seed).digest()),
        }
    elif request.step == "shares":
        if round_key <= list(state.last_shared):
            raise BadMessage(f"the shares for round {request.rnd + 1} were made already.")
        values = {"encrypted_shares": _encrypt_shares(request, secrets, secure_aggregation)}
        state = state._replace(last_shared=round_key)
    else:
        if round_key != list(state.last_shared) or round_key <= list(state.last_opened):
            raise BadMessage(
                f"the shares for round {request.rnd + 1} were not made, or were opened already."
            )
        values = {"shares": _decrypt_shares(request, secrets, index, secure_aggregation)}
        state = state._replace(last_opened=round_key)
    response = MaskResponse(request.rnd, request.client, request.step, request.probe_round, values)
    return state, response


def _encrypt_shares(
    request: MaskRequest, secrets: RoundSecrets, secure_aggregation: Masked
) -> Octets:
    """(n, E) for every member, its encrypted shares of this client's two secrets."""
    number, minimum = len(request.members), secure_aggregation.min_clients
    if not minimum <= number <= MAX_CLIENTS:
        raise BadMessage(f"expected {minimum} to {MAX_CLIENTS} clients in a sum, got {number}.")
    threshold = secure_aggregation.required_clients(number)
    shares = [
        split_secret(secret, number, threshold, partial(secrets.coefficient, name, request.members))
        for name, secret in (("seed", secrets.seed), ("key", secrets.mask_key))
    ]
    encrypted = [
        _encrypt(seed_share + key_share, request, secrets, public.tobytes(), request.client, member)
        for seed_share, key_share, public, member in zip(
            *shares, request.values["channel_keys"], request.members.tolist(), strict=True
        )
    ]
    return np.stack([np.frombuffer(each, dtype=np.uint8) for each in encrypted])


def _decrypt_shares(
    request: MaskRequest, secrets: RoundSecrets, index: int, secure_aggregation: Masked
) -> Octets:
    """(n, 66) shares of each member's seed if its update was received, else of its key."""
    statuses = request.values["statuses"][:, 0]
    received = int((statuses == RECEIVED).sum())
    if statuses[index] != RECEIVED or not np.isin(statuses, (RECEIVED, DROPPED, NOT_ASKED)).all():
        raise BadMessage("the statuses of the members are inconsistent.")
    needed = secure_aggregation.required_clients(len(request.members))
    if received < needed:
        raise BadMessage(
            f"{received} of {len(request.members)} updates were received, {needed} are needed."
        )
    shares = np.zeros((len(statuses), SHARE_BYTES), dtype=np.uint8)
    members = zip(request.members.tolist(), statuses.tolist(), strict=True)
    for row, (member, status) in enumerate(members):
        if status != NOT_ASKED:
            public = request.values["channel_keys"][row].tobytes()
            encrypted = request.values["encrypted_shares"][row].tobytes()
            both = _decrypt(encrypted, request, secrets, public, member)
            share = both[:SHARE_BYTES] if status == RECEIVED else both[SHARE_BYTES:]
            if share:
                shares[row] = np.frombuffer(share, dtype=np.uint8)
    return shares


def _encrypt(
    plain: bytes,
    request: MaskRequest,
    secrets: RoundSecrets,
    public: bytes,
    sender: int,
    recipient: int,
) -> bytes:
    """Encrypt with a key that is used once, so that the nonce can be constant."""
    label = _channel_label(request, sender, recipient)
    key = derive_shared_key(secrets.channel_key, public, label)
    return AESGCM(key).encrypt(bytes(12), plain, None)


def _decrypt(
    encrypted: bytes, request: MaskRequest, secrets: RoundSecrets, public: bytes, sender: int
) -> bytes:
    """Decrypt; empty if damaged, so that the server notices which sender's mask remains."""
    label = _channel_label(request, sender, request.client)
    key = derive_shared_key(secrets.channel_key, public, label)
    try:
        return AESGCM(key).decrypt(bytes(12), encrypted, None)
    except InvalidTag:
        return b""


def _channel_label(request: MaskRequest, sender: int, recipient: int) -> str:
    return f"channel {request.rnd} {request.probe_round} {sender} {recipient}"


def _index_of(members: Ints, client: int) -> int:
    found = np.flatnonzero(members == client)
    if len(found) != 1:
        raise BadMessage(f"client {client} is not a member of the sum that it was asked for.")
    return int(found[0])


def _round_key(rnd: int, probe_round: int) -> tuple[int, int]:
    """Orders rounds in time: the probe rounds of a round come before it."""
    return rnd, probe_round or FINAL


def _row(octets: bytes) -> Octets:
    return np.frombuffer(octets, dtype=np.uint8)[None]


def make_mask_group(members: list[int], keys: list[bytes]) -> MaskGroup:
    """Make the group of clients whose pairwise masks cancel."""
    public = np.stack([np.frombuffer(key, dtype=np.uint8) for key in keys])
    return MaskGroup(np.array(members, dtype=np.int64), public)
