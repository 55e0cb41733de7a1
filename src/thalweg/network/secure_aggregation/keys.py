"""Keys, signatures, masks and digests of secure aggregation; docs/secure-aggregation.md.

The package cryptography provides X25519 for key agreement, ECDSA over P-384 for signatures,
HKDF-SHA256 for key derivation, AES-GCM for the shares that the server forwards, and AES in counter
mode for the random masks.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import BadMessage, ConfigError, require
from thalweg.core.types import Ints
from thalweg.federation import Octets, TrainRequest
from thalweg.theory.masked_sums import KEY_BYTES, NODE_KEY_BYTES, SIGNATURE_BYTES

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, utils
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
NodeKey = ec.EllipticCurvePrivateKey
PROTOCOL = "thalweg secure aggregation 2"  # changes with any digest or derived key
CURVE = ec.SECP384R1()
SCALAR_BYTES = 48
SIGNATURE_NUMBER_BYTES = SIGNATURE_BYTES // 2
KEY_FIELDS = ("mask_keys", "channel_keys", "commitments", "node_keys")  # covered by the digest
# Broadcast values that may differ between clients, because they do not scale an update.
UNCHECKED_STAGES = ("alarm",)


# --- digests ---


def compute_digest(label: str, *parts: bytes | str | int) -> bytes:
    """Return the SHA-256 of a label and parts, each preceded by its length in 8 bytes.

    Integers have 8 bytes, the highest first.

    >>> compute_digest("example", 1, b"a").hex()[:16]
    '794ed6c60b0de31d'
    """
    digest = hashlib.sha256()
    for part in (PROTOCOL, label, *parts):
        if isinstance(part, int):
            part = part.to_bytes(8, "big")
        octets = part.encode() if isinstance(part, str) else part
        digest.update(len(octets).to_bytes(8, "big"))
        digest.update(octets)
    return digest.digest()


def compute_keys_digest(
    run: str, rnd: int, probe_round: int, client: int, mask_key: bytes, channel_key: bytes,
    commitment: bytes,
) -> bytes:  # fmt: skip
    """Return what a client signs together with its keys of a round."""
    return compute_digest("keys", run, rnd, probe_round, client, mask_key, channel_key, commitment)


def compute_directory_digest(
    run: str, rnd: int, probe_round: int, members: Ints, values: Mapping[str, Octets]
) -> bytes:
    """Return the digest of the members of a sum and of all their public keys."""
    columns = [values[name] for name in KEY_FIELDS]
    rows = [row.tobytes() for keys in zip(*columns, strict=True) for row in keys]
    return compute_digest("directory", run, rnd, probe_round, _encode_ints(members), *rows)


def compute_model_digest(request: TrainRequest) -> bytes:
    """Return the digest of all that the server sends for training, except alarms.

    Equal digests mean that two clients train the same model with the same learning rate.
    """
    parts: list[bytes | str | int] = [
        _encode_ints(request.models),
        request.lr_scales.astype("<f8").tobytes(),
        request.params.astype("<f4").tobytes(),
        request.session,
        request.age,
    ]
    for stage in sorted(request.broadcast.keys() - set(UNCHECKED_STAGES)):
        for name, values in sorted(request.broadcast[stage].items()):
            parts += [stage, name, values.astype("<f4").tobytes()]
    return compute_digest("model", *parts)


def compute_statement_digest(
    directory: bytes, model: bytes, group: Ints, statuses: Octets, weights: Ints
) -> bytes:
    """Return what a client signs before it reveals shares: who is in the sum, and how."""
    return compute_digest(
        "statement",
        directory,
        model,
        _encode_ints(group),
        statuses.tobytes(),
        _encode_ints(weights),
    )


def encode_weights(weights: Ints) -> Octets:
    """(n, 8) the bytes of the weights, for a message."""
    return np.frombuffer(_encode_ints(weights), dtype=np.uint8).reshape(-1, 8)


def decode_weights(octets: Octets) -> Ints:
    """(n,) the weights that `encode_weights` encoded."""
    return np.frombuffer(octets.tobytes(), dtype=">i8").astype(np.int64)


def _encode_ints(numbers: Ints) -> bytes:
    return numbers.astype(">i8").tobytes()


# --- keys of a round ---


def derive_key(secret: bytes, label: str, context: bytes = b"") -> bytes:
    """Derive 32 bytes from a secret; each label and context gives independent bytes."""
    info = f"{PROTOCOL} {label} ".encode() + context
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)


def derive_public_key(key: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def derive_shared_key(key: bytes, public: bytes, label: str, context: bytes = b"") -> bytes:
    """Derive the secret that the owners of two key pairs share (Diffie-Hellman)."""
    try:
        shared = X25519PrivateKey.from_private_bytes(key).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError as error:
        raise BadMessage("a public key is not a valid X25519 key.") from error
    return derive_key(shared, label, context)


def expand_seed(seed: bytes, length: int) -> MaskVector:
    """(P,) random 64-bit numbers from a seed."""
    encryptor = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * length)), dtype="<u8")


def make_pairwise_mask(
    key: bytes, public: bytes, own: int, other: int, directory: bytes, model: bytes, length: int
) -> MaskVector:
    """(P,) mask that two clients share, with the sign that it has at the client `own`.

    It depends on the digests of the directory and of the model. If two clients have received
    different ones, their masks do not cancel, and the sum reveals nothing.
    """
    pair = f"mask {min(own, other)} {max(own, other)}"
    seed = derive_shared_key(key, public, pair, compute_digest("sum", directory, model))
    mask = expand_seed(seed, length)
    return mask if own < other else -mask


def encrypt_share(
    plain: bytes, key: bytes, public: bytes, sender: int, recipient: int, directory: bytes
) -> bytes:
    """Encrypt with a key that is used once, so that the nonce can be constant."""
    shared = derive_shared_key(key, public, f"channel {sender} {recipient}", directory)
    return AESGCM(shared).encrypt(bytes(12), plain, None)


def decrypt_share(
    encrypted: bytes, key: bytes, public: bytes, sender: int, recipient: int, directory: bytes
) -> bytes:
    """Decrypt; empty if damaged, so that the server notices which sender's mask remains."""
    shared = derive_shared_key(key, public, f"channel {sender} {recipient}", directory)
    try:
        return AESGCM(shared).decrypt(bytes(12), encrypted, None)
    except InvalidTag:
        return b""


def draw_coefficient(number: int) -> int:
    """Coefficient `number` of the polynomial that splits a secret: random, and never stored."""
    return int.from_bytes(os.urandom(82), "big")


# --- keys of nodes, which sign the keys of a round ---


def make_node_key() -> bytes:
    """Return a new private key for signatures, as 48 bytes."""
    number = ec.generate_private_key(CURVE).private_numbers().private_value
    return number.to_bytes(SCALAR_BYTES, "big")


def restore_node_key(octets: bytes) -> NodeKey:
    return ec.derive_private_key(int.from_bytes(octets, "big"), CURVE)


def read_node_key(path: Path) -> NodeKey:
    """Read the private key of a node (`node.key`, made by `thalweg certs`)."""
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except OSError as error:
        raise ConfigError(f"cannot read the node's key {path}: {error.strerror}.") from error
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    is_suitable = isinstance(key, NodeKey) and isinstance(key.curve, ec.SECP384R1)
    require(
        is_suitable,
        f"{path} must be an ECDSA key over P-384 in OpenSSH format without a password; make one "
        "with `thalweg certs`.",
    )
    assert isinstance(key, NodeKey)
    return key


def read_trusted_keys(folder: Path) -> frozenset[bytes]:
    """Read the public keys (*.pub) of the nodes that may take part in sums with this device."""
    files = sorted(folder.glob("*.pub")) if folder.is_dir() else []
    require(
        bool(files),
        f"{folder} must be a folder with public keys of nodes (NAME.pub), found none; copy the "
        "files node.pub of the other devices to it (--peers).",
    )
    return frozenset(map(_read_public_key, files))


def _read_public_key(path: Path) -> bytes:
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the public key {path}: {error.strerror}.") from error
    except (ValueError, UnsupportedAlgorithm):
        key = None
    is_suitable = isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == CURVE.name
    require(
        is_suitable,
        f"{path} must be a public ECDSA key over P-384 in OpenSSH format, as `thalweg certs` "
        "makes it.",
    )
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return _encode_point(key)


def get_public_node_key(key: NodeKey) -> bytes:
    """Return the public part of a node's key, a compressed point of 49 bytes."""
    return _encode_point(key.public_key())


def _encode_point(key: ec.EllipticCurvePublicKey) -> bytes:
    form = serialization.PublicFormat.CompressedPoint
    octets = key.public_bytes(serialization.Encoding.X962, form)
    assert len(octets) == NODE_KEY_BYTES
    return octets


def sign(key: NodeKey, digest: bytes) -> bytes:
    """Return the signature of a digest, 96 bytes."""
    numbers = utils.decode_dss_signature(key.sign(digest, ec.ECDSA(hashes.SHA384())))
    return b"".join(number.to_bytes(SIGNATURE_NUMBER_BYTES, "big") for number in numbers)


def is_signed(node_key: bytes, digest: bytes, signature: bytes) -> bool:
    """Whether the owner of a public key has signed a digest."""
    r, s = (
        int.from_bytes(signature[part : part + SIGNATURE_NUMBER_BYTES], "big")
        for part in (0, SIGNATURE_NUMBER_BYTES)
    )
    try:
        public = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, node_key)
        public.verify(utils.encode_dss_signature(r, s), digest, ec.ECDSA(hashes.SHA384()))
    except (InvalidSignature, ValueError):
        return False
    return True


def is_public_key(public: bytes) -> bool:
    """Whether other clients can derive shared keys with a public X25519 key."""
    try:
        derive_shared_key(bytes(range(1, 33)), public, "trial")
    except BadMessage:
        return False
    return True


def format_node_key(node_key: bytes) -> str:
    """Return the fingerprint of a public key, for messages.

    >>> format_node_key(bytes(49))
    '78877fa898f0b4c4'
    """
    return hashlib.sha256(node_key).hexdigest()[:16]
