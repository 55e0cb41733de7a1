"""Creates the certificates and keys of a deployment: an authority, a server certificate, node keys.

All files are written to one folder. Its parts are copied to the server and to the devices::

    DIR/ca.key, ca.crt    the authority; the key only signs certificates and stays here or offline
    DIR/server/           for the server: ca.crt, server.crt, server.key, nodes/0.pub, ...
    DIR/nodes/0/          for device 0:   ca.crt, node.key, node.pub

The server authenticates with its certificate, a device with its private key; the server has the
public keys of all accepted devices. Private keys are readable only by their owner (mode 0600).
Existing files are not overwritten.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import Certificate, CertificateBuilder
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from thalweg.core.errors import ConfigError, require
from thalweg.core.files import make_folder, sync_folder, write_file

LOOPBACK = ("localhost", "127.0.0.1")  # always included, because the server connects to itself
CA_DAYS = 3650
SERVER_DAYS = 397  # about 13 months, the maximum that browsers accept


class CertFiles(NamedTuple):
    """The folders written by `make_certs`."""

    folder: Path
    server: Path | None  # None: it existed already
    nodes: tuple[Path, ...]  # one folder per new node


def make_certs(
    folder: Path,
    hosts: Sequence[str] = (),
    num_nodes: int = 0,
    renew: bool = False,
    days: int = SERVER_DAYS,
) -> CertFiles:
    """Create the missing files: the authority, the server certificate for `hosts`, and node keys.

    A second call with a larger `num_nodes` adds keys. With `renew`, the same authority signs a new
    server certificate, and devices keep their files.
    """
    require(num_nodes >= 0, f"nodes must not be negative, got {num_nodes}.")
    require(days >= 1, f"days must be at least 1, got {days}.")
    with _report_os_error(folder):
        server = folder / "server"
        has_server = (server / "server.crt").exists()
        require(
            renew or not (has_server and hosts),
            f"{server / 'server.crt'} exists and is not overwritten; use --renew for a new "
            "certificate from the same authority, or choose another folder.",
        )
        authority, key = _ensure_authority(folder)
        if not has_server or renew:
            _write_server_cert(server, authority, key, tuple(hosts), days)
        wanted = [folder / "nodes" / str(number) for number in range(num_nodes)]
        made = tuple(node for node in wanted if not (node / "node.key").exists())
        for node in made:
            _write_node_key(node, authority, server / "nodes" / f"{node.name}.pub")
    return CertFiles(folder, server if not has_server or renew else None, made)


def _ensure_authority(folder: Path) -> tuple[Certificate, ec.EllipticCurvePrivateKey]:
    """Read the authority of a folder, or create a new one if it has none."""

    if not (folder / "ca.crt").exists():
        require(
            not (folder / "ca.key").exists(),
            f"{folder} has ca.key but no ca.crt; choose another folder.",
        )
        key = ec.generate_private_key(ec.SECP384R1())
        builder = _build_certificate(
            "thalweg authority", "thalweg authority", key.public_key(), CA_DAYS
        )
        builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
        certificate = _sign(builder, key, key)
        _write(folder / "ca.key", _encode_private_key(key), private=True)
        _write(folder / "ca.crt", _encode_certificate(certificate))
        return certificate, key
    require(
        (folder / "ca.key").exists(),
        f"{folder} has the authority's certificate but not its key (ca.key), so nothing new can be "
        "signed; use the folder with the key, or make a new one.",
    )
    key_read = form.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    require(
        isinstance(key_read, ec.EllipticCurvePrivateKey),
        f"{folder}/ca.key must be an elliptic-curve key made by `thalweg certs`; choose another "
        "folder.",
    )
    assert isinstance(key_read, ec.EllipticCurvePrivateKey)
    return x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()), key_read


def _write_server_cert(
    server: Path,
    authority: Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    hosts: tuple[str, ...],
    days: int,
) -> None:
    """Write the server's certificate and key; a renewal without hosts keeps the previous names."""
    if not hosts and (server / "server.crt").exists():
        hosts = read_names(x509.load_pem_x509_certificate((server / "server.crt").read_bytes()))
    key = ec.generate_private_key(ec.SECP384R1())
    issuer = authority.subject.rfc4514_string().removeprefix("CN=")
    builder = _build_certificate("thalweg server", issuer, key.public_key(), days)
    names = [_parse_host(host) for host in dict.fromkeys((*hosts, *LOOPBACK))]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    builder = builder.add_extension(purpose, critical=False)
    key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(key_id, critical=False)
    _write(server / "server.key", _encode_private_key(key), private=True)
    _write(server / "server.crt", _encode_certificate(_sign(builder, key, authority_key)))
    _write(server / "ca.crt", _encode_certificate(authority))


def _write_node_key(node: Path, authority: Certificate, public: Path) -> None:
    """Write a device's key in the format that Flower reads, and its public key for the server."""

    key = ec.generate_private_key(ec.SECP384R1())
    private_bytes = key.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption()
    )
    public_bytes = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    _write(node / "node.pub", public_bytes + b"\n")
    _write(public, public_bytes + b"\n")
    _write(node / "ca.crt", _encode_certificate(authority))
    _write(
        node / "node.key", private_bytes, private=True
    )  # last, so that a folder with this file is complete


def read_names(certificate: Certificate) -> tuple[str, ...]:
    """Return the host names and addresses of a certificate."""

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return (*names.get_values_for_type(x509.DNSName), *addresses)


def _parse_host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        is_name = host.replace("-", "").replace(".", "").replace("*", "").isalnum()
        require(is_name and host.isascii(), f"expected a host name or an IP address, got {host!r}.")
        return x509.DNSName(host)


def _build_certificate(
    subject: str, issuer: str, public: ec.EllipticCurvePublicKey, days: int
) -> CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # the clocks of devices differ slightly
        .not_valid_after(now + timedelta(days=days))
    )


def _sign(
    builder: CertificateBuilder, own: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> Certificate:
    identifier = x509.SubjectKeyIdentifier.from_public_key(own.public_key())
    return builder.add_extension(identifier, critical=False).sign(signer, hashes.SHA384())


def _encode_certificate(certificate: Certificate) -> bytes:
    return certificate.public_bytes(form.Encoding.PEM)


def _encode_private_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def _write(path: Path, content: bytes, private: bool = False) -> None:
    """Write a file atomically; a private file is never readable by other users."""
    make_folder(path.parent)
    write_file(path, content, 0o600 if private else 0o644)
    sync_folder(path.parent)


@contextmanager
def _report_os_error(folder: Path) -> Iterator[None]:
    """Convert an `OSError` to a `ConfigError` that names the folder."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write to {folder}: {error.strerror}.") from error
