"""Certificates and keys that `make_certs` writes."""

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from thalweg.core.errors import ConfigError
from thalweg.network.flower.certs import SERVER_DAYS, make_certs, read_names


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_server_certificate_is_signed_by_the_authority_and_lists_its_hosts(
    tmp_path: Path,
) -> None:
    make_certs(tmp_path, ["fl.example.org", "192.168.1.4"], 0)
    authority, server = (
        certificate(tmp_path / "ca.crt"),
        certificate(tmp_path / "server/server.crt"),
    )
    server.verify_directly_issued_by(authority)
    assert set(read_names(server)) == {"fl.example.org", "192.168.1.4", "localhost", "127.0.0.1"}
    left = server.not_valid_after_utc - datetime.now(UTC)
    assert timedelta(days=SERVER_DAYS - 1) < left <= timedelta(days=SERVER_DAYS)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_private_keys_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_certs(tmp_path, [], 2)
    finally:
        os.umask(before)
    keys = [tmp_path / "ca.key", tmp_path / "server/server.key", *tmp_path.glob("nodes/*/node.key")]
    assert len(keys) == 4
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    others = {path for path in tmp_path.rglob("*") if path.is_file()}.difference(keys)
    assert {stat.S_IMODE(other.stat().st_mode) for other in others} == {0o644}
    folders = {path for path in tmp_path.rglob("*") if path.is_dir()}
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


def test_server_folder_has_the_public_key_of_each_node_and_no_private_node_key(
    tmp_path: Path,
) -> None:
    make_certs(tmp_path, [], 2)
    for number in ("0", "1"):
        private = load_ssh_private_key(
            (tmp_path / "nodes" / number / "node.key").read_bytes(), None
        )
        public = load_ssh_public_key((tmp_path / f"server/nodes/{number}.pub").read_bytes())
        assert private.public_key() == public
    in_server = {path.name for path in (tmp_path / "server").rglob("*") if path.is_file()}
    assert in_server == {"ca.crt", "server.crt", "server.key", "0.pub", "1.pub"}


def test_second_call_adds_node_keys_and_keeps_existing_files(tmp_path: Path) -> None:
    make_certs(tmp_path, ["a.org"], 1)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    made = make_certs(tmp_path, [], 3)
    assert [folder.name for folder in made.nodes] == ["1", "2"]
    assert made.server is None
    assert {path: path.read_bytes() for path in before} == before


def test_existing_certificate_is_replaced_only_with_renew(tmp_path: Path) -> None:
    make_certs(tmp_path, ["a.org"], 0)
    old = certificate(tmp_path / "server/server.crt")
    with pytest.raises(ConfigError, match="not overwritten; use --renew"):
        make_certs(tmp_path, ["b.org"], 0)
    make_certs(tmp_path, [], 0, renew=True)
    new = certificate(tmp_path / "server/server.crt")
    assert new.serial_number != old.serial_number
    assert read_names(new) == read_names(old)
    new.verify_directly_issued_by(certificate(tmp_path / "ca.crt"))


def test_renewal_without_the_authority_key_is_rejected(tmp_path: Path) -> None:
    make_certs(tmp_path, [], 0)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(ConfigError, match="not its key"):
        make_certs(tmp_path, [], 1, renew=True)


def test_invalid_host_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a host name or an IP address"):
        make_certs(tmp_path, ["http://a.org"], 0)
