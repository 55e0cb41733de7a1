"""Keys, masks and digests of secure aggregation: the test vectors of the documentation."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from thalweg.aggregation import Masked
from thalweg.core.errors import BadMessage, ConfigError
from thalweg.federation import TrainRequest
from thalweg.network.flower.certs import make_certs
from thalweg.network.secure_aggregation.keys import (
    compute_directory_digest,
    compute_keys_digest,
    compute_model_digest,
    compute_statement_digest,
    decode_weights,
    decrypt_share,
    derive_public_key,
    derive_shared_key,
    encode_weights,
    encrypt_share,
    expand_seed,
    get_public_node_key,
    is_public_key,
    is_signed,
    make_node_key,
    make_pairwise_mask,
    read_node_key,
    read_trusted_keys,
    restore_node_key,
    sign,
)
from thalweg.theory import split_secret

PAGE = Path(__file__).parents[3] / "docs" / "secure-aggregation.md"
RUN, RND = "0123456789abcdef0123456789abcdef", 4
CLIENTS = (0, 1, 2)


def fill(first: int, client: int) -> bytes:
    """32 equal bytes."""
    return bytes([first + client]) * 32


def words(numbers: np.ndarray) -> list[str]:
    return [f"{number:016x}" for number in numbers.tolist()]


def split(octets: bytes) -> str | list[str]:
    """Hex digits, in lines of at most 64."""
    digits = octets.hex()
    lines = [digits[first : first + 64] for first in range(0, len(digits), 64)]
    return lines[0] if len(lines) == 1 else lines


def compute_vectors(signature: bytes) -> dict[str, object]:
    """The values of docs/secure-aggregation.md, from its inputs."""
    node_keys = [restore_node_key((client + 1).to_bytes(48, "big")) for client in CLIENTS]
    columns = {
        "mask_keys": [derive_public_key(fill(0x10, client)) for client in CLIENTS],
        "channel_keys": [derive_public_key(fill(0x20, client)) for client in CLIENTS],
        "commitments": [hashlib.sha256(fill(0x30, client)).digest() for client in CLIENTS],
        "node_keys": [get_public_node_key(key) for key in node_keys],
    }
    values = {
        name: np.stack([np.frombuffer(row, dtype=np.uint8) for row in rows])
        for name, rows in columns.items()
    }
    members = np.array(CLIENTS)
    first = [columns[name][0] for name in ("mask_keys", "channel_keys", "commitments")]
    keys_digest = compute_keys_digest(RUN, RND, 0, 0, *first)
    directory = compute_directory_digest(RUN, RND, 0, members, values)
    params = np.array([[0.5, -1.0]], dtype=np.float32)
    zero = np.zeros(1, dtype=np.int64)
    model = compute_model_digest(TrainRequest(RND, 0, zero, np.ones(1), params))
    statuses = np.array([2, 2, 2], dtype=np.uint8)
    statement = compute_statement_digest(directory, model, members, statuses, members * 0 + 1)
    masks = [
        make_pairwise_mask(
            fill(0x10, 0), columns["mask_keys"][other], 0, other, directory, model, 2
        )
        for other in (1, 2)
    ]
    own = expand_seed(fill(0x30, 0), 2)
    encoded = Masked().encode_update(np.array([0.25, -0.5], dtype=np.float32), 1)
    share = split_secret(fill(0x30, 0), 3, 2, lambda number: number)[1]
    channel = derive_shared_key(fill(0x20, 0), columns["channel_keys"][1], "channel 0 1", directory)
    assert is_signed(columns["node_keys"][0], statement, signature)
    return {
        "mask key of client 0": split(columns["mask_keys"][0]),
        "channel key of client 0": split(columns["channel_keys"][0]),
        "commitment of client 0": split(columns["commitments"][0]),
        "node key of client 0": split(columns["node_keys"][0]),
        "keys digest of client 0": split(keys_digest),
        "directory digest": split(directory),
        "model digest": split(model),
        "statement digest": split(statement),
        "signature of client 0 under the statement": split(signature),
        "own mask of client 0": words(own),
        "mask of clients 0 and 1": words(masks[0]),
        "mask of clients 0 and 2": words(masks[1]),
        "masked update of client 0": words(encoded.view(np.uint64) + own + masks[0] + masks[1]),
        "share 2 of the seed of client 0": split(share),
        "key of the channel from 0 to 1": split(channel),
    }


def test_documented_vectors_are_those_of_the_code() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    documented = json.loads(block)
    signature = "".join(documented["signature of client 0 under the statement"])
    assert documented == compute_vectors(bytes.fromhex(signature))


def test_masks_of_a_pair_cancel_only_for_the_same_directory_and_model() -> None:
    public = [derive_public_key(fill(0x10, client)) for client in CLIENTS]
    there = make_pairwise_mask(fill(0x10, 0), public[1], 0, 1, b"d", b"m", 5)
    back = make_pairwise_mask(fill(0x10, 1), public[0], 1, 0, b"d", b"m", 5)
    assert (there + back).tolist() == [0] * 5
    for directory, model in ((b"e", b"m"), (b"d", b"n")):
        other = make_pairwise_mask(fill(0x10, 1), public[0], 1, 0, directory, model, 5)
        assert (there + other).all()


def test_shares_are_readable_by_sender_and_recipient_of_one_directory() -> None:
    public = [derive_public_key(fill(0x20, client)) for client in CLIENTS]
    encrypted = encrypt_share(b"share", fill(0x20, 0), public[1], 0, 1, b"d")
    assert decrypt_share(encrypted, fill(0x20, 1), public[0], 0, 1, b"d") == b"share"
    for key, sender, recipient, directory in (
        (fill(0x20, 2), 0, 1, b"d"),
        (fill(0x20, 1), 1, 0, b"d"),
        (fill(0x20, 1), 0, 1, b"e"),
    ):
        assert decrypt_share(encrypted, key, public[0], sender, recipient, directory) == b""


def test_signature_is_valid_for_one_key_and_one_digest() -> None:
    key, other = (restore_node_key(make_node_key()) for _ in range(2))
    signature = sign(key, b"digest")
    assert len(signature) == 96
    assert is_signed(get_public_node_key(key), b"digest", signature)
    assert not is_signed(get_public_node_key(other), b"digest", signature)
    assert not is_signed(get_public_node_key(key), b"other digest", signature)
    assert not is_signed(get_public_node_key(key), b"digest", bytes(96))
    assert not is_signed(bytes(49), b"digest", signature), "not a point of the curve"


def test_public_key_of_order_one_is_rejected() -> None:
    assert is_public_key(derive_public_key(fill(0x10, 0)))
    assert not is_public_key(bytes(32))
    with pytest.raises(BadMessage, match="not a valid X25519 key"):
        derive_shared_key(fill(0x10, 0), bytes(32), "label")


def test_weights_round_trip() -> None:
    weights = np.array([0, 1, 1 << 24])
    assert decode_weights(encode_weights(weights)).tolist() == weights.tolist()


def test_keys_of_the_certs_command_can_be_used(tmp_path: Path) -> None:
    make_certs(tmp_path, num_nodes=2)
    keys = [read_node_key(tmp_path / "nodes" / name / "node.key") for name in ("0", "1")]
    trusted = read_trusted_keys(tmp_path / "server" / "nodes")
    assert trusted == {get_public_node_key(key) for key in keys}


def test_unusable_key_files_are_rejected_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must be a folder with public keys .*\(--peers\)"):
        read_trusted_keys(tmp_path)
    (tmp_path / "0.pub").write_text("ssh-ed25519 AAAA nonsense\n")
    with pytest.raises(ConfigError, match="must be a public ECDSA key over P-384"):
        read_trusted_keys(tmp_path)
    with pytest.raises(ConfigError, match="cannot read the node's key"):
        read_node_key(tmp_path / "node.key")
    (tmp_path / "node.key").write_text("nonsense")
    with pytest.raises(ConfigError, match="must be an ECDSA key over P-384"):
        read_node_key(tmp_path / "node.key")
