"""Who is believed, and why: certificates are looked at before anything starts, and again at the first contact.

On loopback nobody needs a certificate. Anywhere else the server needs TLS and the keys of its nodes, and a
node needs the authority's certificate and a key of its own, unless the user says ``--insecure``.
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
    """What the server shows, and whom it lets in."""

    folder: Path
    authority: Path
    certificate: Path
    key: Path

    def node_keys(self) -> dict[str, Path]:
        """Public keys of the nodes that are let in, by name; new files count at once."""
        return {file.stem: file for file in sorted((self.folder / "nodes").glob("*.pub"))}


@dataclass(frozen=True)
class NodeTrust:
    """Whom a node believes, and what it shows."""

    authority: Path
    key: Path


def is_loopback(host: str) -> bool:
    """Does an address never leave this machine?

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "192.168.1.4")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_safe(host: str, certs: Path | None, insecure: bool, who: str) -> str | None:
    """Refuse to speak in the clear beyond this machine. The answer is a warning, if one is due."""
    require(
        certs is None or not insecure,
        "--certs and --insecure contradict each other; leave one of them out.",
    )
    if certs is not None or is_loopback(host):
        return None
    require(
        insecure,
        f"{host} can be reached from other machines, and there nothing is sent without TLS and node keys. "
        f"Make them with `thalweg certs DIR --host {host} --nodes N`, then say --certs "
        f"{'DIR' if who == 'server' else 'DIR/nodes/0'}; or say --insecure if the network is closed and trusted.",
    )
    return (
        "warning: --insecure: whoever is on this network can read and change what is sent, pretend to be a "
        "client, and run programs on the server and on its clients."
    )


def load_server_trust(certs: Path, host: str) -> ServerTrust:
    """The server's part of a folder, checked: whole, of one authority, in date, for this host."""
    folder = certs / "server" if (certs / "server").is_dir() else certs
    trust = ServerTrust(folder, folder / "ca.crt", folder / "server.crt", folder / "server.key")
    authority, certificate = _read(trust.authority), _read(trust.certificate)
    _check_date(trust.authority, authority)
    _check_date(trust.certificate, certificate)
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        raise ConfigError(
            f"{trust.certificate} was not signed by the authority in {trust.authority}; they come from two "
            "different `thalweg certs`. Use one folder as it was made."
        ) from None
    _check_key(trust.key, certificate)
    names = read_names(certificate)
    is_any = host in ("0.0.0.0", "::")
    require(
        is_any or is_loopback(host) or host.strip("[]") in names,
        f"{trust.certificate} is for {', '.join(names)} and not for {host}; make one that is with "
        f"`thalweg certs {certs} --renew --host {host}`.",
    )
    require(
        bool(trust.node_keys()),
        f"{folder / 'nodes'} has no public keys, so no client could join; make some with "
        f"`thalweg certs {certs} --nodes N`.",
    )
    return trust


def load_node_trust(certs: Path) -> NodeTrust:
    """A node's folder, checked: whole, and the authority in date."""
    if not (certs / "node.key").exists() and (certs / "nodes").is_dir():
        raise ConfigError(
            f"{certs} has the keys of all nodes; which one is this? Say --certs {certs / 'nodes' / '0'}."
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
        f"{trust.key} is no key that Flower can use (ECDSA in OpenSSH's form, without a password); "
        "make one with `thalweg certs`.",
    )
    return trust


def check_server(host: str, port: int, trust: NodeTrust | None, timeout_s: float = 5.0) -> bool:
    """Look whom we speak to. False: nobody answers there now, which is no reason to give up."""
    host = host.strip("[]")
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as line:
            if trust is None:
                return _speaks_plain_http(line) or _raise_if_tls(host, port, timeout_s)
            _check_certificate(line, host, port, trust)
            return True
    except OSError:
        return False


def _check_certificate(line: socket.socket, host: str, port: int, trust: NodeTrust) -> None:
    context = ssl.create_default_context(cafile=str(trust.authority))
    try:
        context.wrap_socket(line, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(_explain_error(f"{host}:{port}", error, trust)) from None
    except ssl.SSLError as error:
        raise ConfigError(
            f"{host}:{port} does not speak TLS ({error.reason or error}); was the server started with "
            "--certs, and is this its port?"
        ) from None


def _speaks_plain_http(line: socket.socket) -> bool:
    """Who speaks TLS has nothing to say to a plain question."""
    try:
        line.sendall(b"HEAD /health HTTP/1.0\r\n\r\n")
        return line.recv(5).startswith(b"HTTP/")
    except OSError:
        return False


def _raise_if_tls(host: str, port: int, timeout_s: float) -> bool:
    """False, or the reason why a plain question had no answer."""
    context = ssl.SSLContext(
        ssl.PROTOCOL_TLS_CLIENT
    )  # only to see whether they can; nothing is sent
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as line:
            context.wrap_socket(line).close()
    except OSError:
        return False
    raise ConfigError(
        f"{host}:{port} speaks TLS and nothing else; join it with --certs and this node's folder."
    )


def _explain_error(where: str, error: ssl.SSLCertVerificationError, trust: NodeTrust) -> str:
    said = error.verify_message
    if error.verify_code == 10:  # X509_V_ERR_CERT_HAS_EXPIRED
        return (
            f"the certificate of {where} has expired; on the server, renew it with `thalweg certs DIR --renew` "
            "and start again. Nothing changes for the clients."
        )
    if error.verify_code in (62, 64):  # host name, IP address
        return (
            f"the certificate of {where} is for another name ({said}); on the server: `thalweg certs DIR "
            "--renew --host NAME`, or join it by a name it has."
        )
    return (
        f"{where} shows a certificate that {trust.authority} has not signed ({said}): another server, or the "
        "folder of another deployment. Copy this node's folder from the `thalweg certs` of that server."
    )


def _read(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"cannot read the certificate {path}: {error.strerror}; folders with certificates are made by "
            "`thalweg certs`."
        ) from error
    except ValueError:
        raise ConfigError(f"{path} is no certificate (PEM).") from None


def _check_date(path: Path, certificate: x509.Certificate) -> None:
    now = datetime.now(UTC)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    require(
        now <= last,
        f"{path} expired on {last:%Y-%m-%d}; renew it with `thalweg certs DIR --renew` (the authority's own "
        "certificate, ca.crt, needs a new folder).",
    )
    require(now >= first, f"{path} is valid from {first:%Y-%m-%d %H:%M} UTC; is the clock right?")


def _check_key(path: Path, certificate: x509.Certificate) -> None:
    try:
        key = form.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise ConfigError(f"cannot read the server's key {path}: {error.strerror}.") from error
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{path} is no private key (PEM, without a password).") from None
    public = (form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
    require(
        key.public_key().public_bytes(*public) == certificate.public_key().public_bytes(*public),
        f"{path} is not the key of {path.with_name('server.crt')}; use one folder as it was made.",
    )
