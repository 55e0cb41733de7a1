"""TLS certificates and keys are checked on the server and on nodes."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from thalweg.core.errors import ConfigError
from thalweg.network.flower import certs
from thalweg.network.flower.certs import make_certs
from thalweg.network.flower.trust import (
    check_safe,
    check_server,
    load_node_trust,
    load_server_trust,
)


@contextmanager
def serve_certificate(server: Path) -> Iterator[int]:
    """Yield a port that serves TLS with the server certificate, or plain HTTP if there is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if (server / "server.crt").exists():
        context.load_cert_chain(server / "server.crt", server / "server.key")

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with suppress(OSError), connection:
                if (server / "server.crt").exists():
                    context.wrap_socket(connection, server_side=True).close()
                else:
                    connection.recv(100)
                    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def set_clock(when: datetime, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Date certificates that are created inside the block at `when`."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return when

    with monkeypatch.context() as patch:
        patch.setattr(certs, "datetime", Clock)
        yield


def test_non_loopback_address_needs_keys_or_the_insecure_option() -> None:
    assert check_safe("127.0.0.1", None, False, "server") is None
    with pytest.raises(ConfigError, match=r"thalweg certs DIR --host 0.0.0.0"):
        check_safe("0.0.0.0", None, False, "server")
    assert "warning" in (check_safe("0.0.0.0", None, True, "server") or "")
    assert check_safe("10.0.0.1", Path("keys"), False, "server") is None
    with pytest.raises(ConfigError, match="contradict"):
        check_safe("10.0.0.1", Path("keys"), True, "server")


def test_server_keys_are_loaded_and_the_host_is_checked(tmp_path: Path) -> None:
    make_certs(tmp_path, ["10.0.0.1"], 2)
    assert load_server_trust(tmp_path, "10.0.0.1").node_keys().keys() == {"0", "1"}
    assert load_server_trust(tmp_path / "server", "0.0.0.0").folder == tmp_path / "server"
    with pytest.raises(ConfigError, match=r"is for .*, not for 10.0.0.2"):
        load_server_trust(tmp_path, "10.0.0.2")


def test_server_folder_without_node_keys_is_rejected(tmp_path: Path) -> None:
    make_certs(tmp_path, [], 0)
    with pytest.raises(ConfigError, match="no public keys"):
        load_server_trust(tmp_path, "127.0.0.1")


def test_server_rejects_a_certificate_of_another_authority(tmp_path: Path) -> None:
    make_certs(tmp_path / "a", [], 1)
    make_certs(tmp_path / "b", [], 1)
    (tmp_path / "a/server/ca.crt").write_bytes((tmp_path / "b/ca.crt").read_bytes())
    with pytest.raises(ConfigError, match="not signed by the authority"):
        load_server_trust(tmp_path / "a", "127.0.0.1")


def test_server_rejects_a_key_of_another_certificate(tmp_path: Path) -> None:
    make_certs(tmp_path / "a", [], 1)
    make_certs(tmp_path / "b", [], 1)
    (tmp_path / "a/server/server.key").write_bytes((tmp_path / "b/server/server.key").read_bytes())
    with pytest.raises(ConfigError, match="is not the key of"):
        load_server_trust(tmp_path / "a", "127.0.0.1")


def test_expired_certificate_is_rejected_by_server_and_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certs(tmp_path, [], 1)
    with set_clock(datetime.now(UTC) - timedelta(days=30), monkeypatch):
        make_certs(tmp_path, [], 1, renew=True, days=10)
    with pytest.raises(ConfigError, match=r"expired on .*renew"):
        load_server_trust(tmp_path, "127.0.0.1")
    with (
        serve_certificate(tmp_path / "server") as port,
        pytest.raises(ConfigError, match="has expired; on the server, renew it"),
    ):
        check_server("127.0.0.1", port, load_node_trust(tmp_path / "nodes/0"))


def test_node_rejects_a_server_of_another_authority(tmp_path: Path) -> None:
    make_certs(tmp_path / "a", [], 1)
    make_certs(tmp_path / "b", [], 1)
    with serve_certificate(tmp_path / "a/server") as port:
        assert check_server("127.0.0.1", port, load_node_trust(tmp_path / "a/nodes/0"))
        with pytest.raises(ConfigError, match="was not signed by"):
            check_server("127.0.0.1", port, load_node_trust(tmp_path / "b/nodes/0"))


def test_node_rejects_a_certificate_for_another_host(tmp_path: Path) -> None:
    make_certs(tmp_path, [], 1)
    file = tmp_path / "server/server.crt"
    assert "127.0.0.2" not in certs.read_names(x509.load_pem_x509_certificate(file.read_bytes()))
    with serve_certificate(tmp_path / "server") as port:
        # the same server under an address that its certificate does not have
        reached = socket.getaddrinfo("127.0.0.2", port)[0][4][0]
        with socket.create_server((reached, 0)) as other:
            threading.Thread(target=_accept_once, args=(other, tmp_path / "server")).start()
            with pytest.raises(ConfigError, match="is for another name"):
                check_server(reached, other.getsockname()[1], load_node_trust(tmp_path / "nodes/0"))


def _accept_once(listener: socket.socket, server: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server / "server.crt", server / "server.key")
    connection, _ = listener.accept()
    with suppress(OSError), connection:
        context.wrap_socket(connection, server_side=True).close()


def test_mismatch_of_tls_and_plain_http_is_reported(tmp_path: Path) -> None:
    make_certs(tmp_path, [], 1)
    with (
        serve_certificate(tmp_path / "server") as port,
        pytest.raises(ConfigError, match="accepts only TLS connections"),
    ):
        check_server("127.0.0.1", port, None)
    with serve_certificate(tmp_path / "nowhere") as port:
        assert check_server("127.0.0.1", port, None)
        with pytest.raises(ConfigError, match="does not use TLS"):
            check_server("127.0.0.1", port, load_node_trust(tmp_path / "nodes/0"))


def test_check_server_returns_false_for_an_unreachable_server(tmp_path: Path) -> None:
    make_certs(tmp_path, [], 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert not check_server("127.0.0.1", port, load_node_trust(tmp_path / "nodes/0"))
    assert not check_server("127.0.0.1", port, None)


def test_invalid_node_folders_are_rejected(tmp_path: Path) -> None:
    make_certs(tmp_path, [], 2)
    with pytest.raises(ConfigError, match="use the folder of one node"):
        load_node_trust(tmp_path)
    (tmp_path / "nodes/0/node.key").write_text("nonsense")
    with pytest.raises(ConfigError, match="must be an ECDSA key in OpenSSH format"):
        load_node_trust(tmp_path / "nodes/0")
    with pytest.raises(ConfigError, match="cannot read the certificate"):
        load_node_trust(tmp_path / "nodes/7")
