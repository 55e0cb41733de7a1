"""Loads and checks certificates and keys, before processes start and at the first connection.

On loopback no certificates are needed. On other addresses the server needs TLS and the public keys
of its nodes, and a node needs the authority's certificate and its own key, unless ``--insecure`` is
given.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec

from thalweg.core.errors import ConfigError, require
from thalweg.network.flower.certs import read_names


@dataclass(frozen=True)
class ServerTrust:
    """The server's certificate and key, and the folder with the public keys of accepted nodes."""

    folder: Path
    authority: Path
    certificate: Path
    key: Path

    def node_keys(self) -> dict[str, Path]:
        """Return the public key files of accepted nodes, by name.

        The folder is read at each call.
        """
        return {file.stem: file for file in sorted((self.folder / "nodes").glob("*.pub"))}


@dataclass(frozen=True)
class NodeTrust:
    """The authority's certificate, by which a node checks the server, and the node's private
    key.
    """

    authority: Path
    key: Path


def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback address of this machine.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "192.168.1.4")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_safe(host: str, certs: Path | None, insecure: bool, role: str) -> str | None:
    """Raise an error for unencrypted connections beyond loopback.

    Return a warning if one is due.
    """
    require(
        certs is None or not insecure,
        "--certs and --insecure contradict each other; use only one of them.",
    )
    if certs is not None or is_loopback(host):
        return None
    require(
        insecure,
        f"{host} is not a loopback address, so TLS and node keys are required. Make them with "
        f"`thalweg certs DIR --host {host} --nodes N` and use --certs "
        f"{'DIR' if role == 'server' else 'DIR/nodes/0'}; or use --insecure in a closed, trusted "
        "network.",
    )
    return (
        "warning: --insecure: any machine on this network can read and change messages, join as a "
        "client, and run programs on the server and on its clients."
    )


def load_server_trust(certs: Path, host: str) -> ServerTrust:
    """Load the server's folder.

    Check that it is complete, consistent, in date and for this host.
    """
    folder = certs / "server" if (certs / "server").is_dir() else certs
    trust = ServerTrust(folder, folder / "ca.crt", folder / "server.crt", folder / "server.key")
    authority, certificate = _read(trust.authority), _read(trust.certificate)
    _check_date(trust.authority, authority)
    _check_date(trust.certificate, certificate)
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        raise ConfigError(
            f"{trust.certificate} was not signed by the authority in {trust.authority}; use a "
            "folder that `thalweg certs` made, unchanged."
        ) from None
    _check_key(trust.key, certificate)
    names = read_names(certificate)
    is_any = host in ("0.0.0.0", "::")
    require(
        is_any or is_loopback(host) or host.strip("[]") in names,
        f"{trust.certificate} is for {', '.join(names)}, not for {host}; renew it with "
        f"`thalweg certs {certs} --renew --host {host}`.",
    )
    require(
        bool(trust.node_keys()),
        f"{folder / 'nodes'} has no public keys, so no client can join; make keys with "
        f"`thalweg certs {certs} --nodes N`.",
    )
    return trust


def load_node_trust(certs: Path) -> NodeTrust:
    """Load a node's folder; check that it is complete and that the authority is in date."""
    if not (certs / "node.key").exists() and (certs / "nodes").is_dir():
        raise ConfigError(
            f"{certs} has the keys of all nodes; use the folder of one node, such as --certs "
            f"{certs / 'nodes' / '0'}."
        )
    trust = NodeTrust(certs / "ca.crt", certs / "node.key")
    _check_date(trust.authority, _read(trust.authority))
    try:
        key = form.load_ssh_private_key(trust.key.read_bytes(), None)
    except OSError as error:
        raise ConfigError(f"cannot read the node's key {trust.key}: {error.strerror}.") from error
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    require(
        isinstance(key, ec.EllipticCurvePrivateKey),
        f"{trust.key} must be an ECDSA key in OpenSSH format without a password; make one with "
        "`thalweg certs`.",
    )
    return trust


def check_server(host: str, port: int, trust: NodeTrust | None, timeout_s: float = 5.0) -> bool:
    """Check the server's certificate.

    Return False if it cannot be reached now, to be tried again.
    """
    host = host.strip("[]")
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            if trust is None:
                return _accepts_plain_http(connection) or _raise_if_tls(host, port, timeout_s)
            _check_certificate(connection, host, port, trust)
            return True
    except OSError:
        return False


def _check_certificate(connection: socket.socket, host: str, port: int, trust: NodeTrust) -> None:
    context = ssl.create_default_context(cafile=str(trust.authority))
    try:
        context.wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(_explain_error(f"{host}:{port}", error, trust)) from None
    except ssl.SSLError as error:
        raise ConfigError(
            f"{host}:{port} does not use TLS ({error.reason or error}); check the port, and that "
            "the server was started with --certs."
        ) from None


def _accepts_plain_http(connection: socket.socket) -> bool:
    """Return whether the server answers a plain HTTP request; a TLS server does not."""
    try:
        connection.sendall(b"HEAD /health HTTP/1.0\r\n\r\n")
        return connection.recv(5).startswith(b"HTTP/")
    except OSError:
        return False


def _raise_if_tls(host: str, port: int, timeout_s: float) -> bool:
    """Raise an error if the server accepts TLS connections; return False otherwise."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # only tests for TLS; no data is sent
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            context.wrap_socket(connection).close()
    except OSError:
        return False
    raise ConfigError(
        f"{host}:{port} accepts only TLS connections; join with --certs and this node's folder."
    )


def _explain_error(where: str, error: ssl.SSLCertVerificationError, trust: NodeTrust) -> str:
    detail = error.verify_message
    if error.verify_code == 10:  # X509_V_ERR_CERT_HAS_EXPIRED
        return (
            f"the certificate of {where} has expired; on the server, renew it with `thalweg certs "
            "DIR --renew` and restart. Clients keep their files."
        )
    if error.verify_code in (62, 64):  # mismatch of host name or IP address
        return (
            f"the certificate of {where} is for another name ({detail}); on the server, run "
            "`thalweg certs DIR --renew --host NAME`, or join with a name of the certificate."
        )
    return (
        f"the certificate of {where} was not signed by {trust.authority} ({detail}); check the "
        "address, or copy this node's folder again from the certificates of that server."
    )


def _read(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"cannot read the certificate {path}: {error.strerror}; make certificates with "
            "`thalweg certs`."
        ) from error
    except ValueError:
        raise ConfigError(f"{path} must be a certificate in PEM format.") from None


def _check_date(path: Path, certificate: x509.Certificate) -> None:
    now = datetime.now(UTC)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    require(
        now <= last,
        f"{path} expired on {last:%Y-%m-%d}; renew it with `thalweg certs DIR --renew` (a new "
        "ca.crt needs a new folder).",
    )
    require(
        now >= first,
        f"{path} is valid from {first:%Y-%m-%d %H:%M} UTC; check the clock of this machine.",
    )


def _check_key(path: Path, certificate: x509.Certificate) -> None:
    try:
        key = form.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise ConfigError(f"cannot read the server's key {path}: {error.strerror}.") from error
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(
            f"{path} must be a private key in PEM format without a password."
        ) from None
    public = (form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
    require(
        key.public_key().public_bytes(*public) == certificate.public_key().public_bytes(*public),
        f"{path} is not the key of {path.with_name('server.crt')}; use a folder that `thalweg "
        "certs` made, unchanged.",
    )
