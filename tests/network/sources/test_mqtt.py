"""Tests of the MQTT source with a real Mosquitto broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import thalweg
from contracts.source import PLAIN, flatten_events, labels_of, read_until
from network.sources.conftest import Mosquitto
from thalweg.core.errors import ConfigError, DataError
from thalweg.network.sources import Event, LateLabels, open_source
from thalweg.network.sources.broker import parse_broker
from thalweg.network.sources.mqtt import MqttSource
from thalweg.network.sources.spec import parse_spec

mqtt = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is an extra")


@pytest.fixture
def publish_message(broker: Mosquitto) -> Iterator[Any]:
    """Publish an object and wait until the broker has it."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.reconnect_delay_set(1, 1)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()

    def publish(message: Any, topic: str = "plant/1") -> None:
        while not client.is_connected():
            time.sleep(0.02)
        payload = message if isinstance(message, bytes) else json.dumps(message)
        client.publish(topic, payload, qos=1).wait_for_publish(60)

    yield publish
    client.disconnect()
    client.loop_stop()


def source_at(address: str, topic: str = "plant/#?client=reader") -> MqttSource:
    return MqttSource(
        parse_broker(parse_spec(f"{address}/{topic}"), ""), PLAIN, heartbeat_s=0.05, retry=1
    )


def subscribe(source: MqttSource, cursor: str = "") -> Iterator[Event]:
    """Return the events of a source after it has subscribed."""
    events = source.events(cursor)
    for _ in range(1200):
        event = next(events)
        assert len(event.keys) == 0
        if not source.trouble:
            return events
    raise AssertionError(source.trouble)


def read_until_error(events: Iterator[Event]) -> None:
    """Read events until the source raises an error."""
    for _ in range(1200):
        next(events)


def sample(label: int, **more: Any) -> dict[str, Any]:
    return {"x": [1.0, 2.0], "y": label, **more}


def test_mqtt_messages_become_samples_and_late_labels(
    broker: Mosquitto, publish_message: Any
) -> None:
    with source_at(broker.address) as source:
        events = subscribe(source)
        publish_message(sample(1, t=5, id="k"), "plant/1/reading")
        publish_message({"x": [3, 4], "id": "m"})
        publish_message({"id": "m", "y": 2}, "plant/1/labels")
        publish_message(sample(0), "elsewhere")
        found = read_until(events, 3)
    assert flatten_events(found) == [((1.0, 2.0), 1, "k"), ((3.0, 4.0), -1, "m"), ("m", 2)]
    assert isinstance(found[-1], LateLabels)
    assert source.can_wait


def test_invalid_mqtt_messages_are_counted_and_not_redelivered(
    broker: Mosquitto, publish_message: Any
) -> None:
    with source_at(broker.address) as source:
        events = subscribe(source)
        for bad in (
            b"",
            b"\xff",
            b"[" * 9999,
            b"3",
            b'{"x": [1e999, 1], "y": 0}',
            sample(9),
            {"y": 1},
        ):
            publish_message(bad)
        publish_message(sample(2))
        found = read_until(events, 1)
        assert (flatten_events(found), source.rejected) == ([((1.0, 2.0), 2, "")], 7)
        source.confirm(found[-1].cursor)
        next(events)
    with source_at(broker.address) as source:
        events = subscribe(source, found[-1].cursor)
        publish_message(sample(1))
        assert labels_of(read_until(events, 1)) == [1]
        assert source.rejected == 0


def test_unconfirmed_mqtt_messages_are_redelivered(broker: Mosquitto, publish_message: Any) -> None:
    with source_at(broker.address) as source:
        events = subscribe(source)
        publish_message(sample(0))
        first = read_until(events, 1)
        source.confirm(first[-1].cursor)
        publish_message(sample(1))
        read_until(events, 1)  # never stored
    publish_message(sample(2))  # while no reader is connected
    with source_at(broker.address) as source:
        assert labels_of(read_until(source.events(first[-1].cursor), 2)) == [1, 2]


def test_stored_but_unacknowledged_mqtt_messages_are_read_once(
    broker: Mosquitto, publish_message: Any
) -> None:
    with source_at(broker.address) as source:
        events = subscribe(source)
        for label in (0, 1):
            publish_message(sample(label))
        stored = read_until(events, 2)  # killed before the acknowledgement
    with source_at(broker.address) as source:
        events = source.events(stored[-1].cursor)
        publish_message(sample(2))
        assert labels_of(read_until(events, 1)) == [2]


def test_heartbeat_keeps_the_cursor_of_delivered_messages(
    broker: Mosquitto, publish_message: Any
) -> None:
    with source_at(broker.address) as source:
        events = subscribe(source)
        publish_message(sample(0))
        first = read_until(events, 1)
        assert next(events).cursor == first[-1].cursor  # although it is not confirmed yet


def test_broker_restart_neither_loses_nor_duplicates_messages(
    broker: Mosquitto, publish_message: Any
) -> None:
    with source_at(broker.address) as source:
        events = subscribe(source)
        publish_message(sample(0))
        first = read_until(events, 1)
        broker.stop()
        source.confirm(first[-1].cursor)  # the broker is stopped
        while not source.trouble:
            next(events)
        broker.start()
        publish_message(sample(1))
        assert labels_of(read_until(events, 1)) == [1]
        while source.trouble:
            next(events)


def test_missing_broker_is_waited_for(needs_mosquitto: None, tmp_path: Path) -> None:
    broker = Mosquitto(tmp_path)
    with source_at(broker.address) as source:
        events = source.events("")
        while "refused" not in source.trouble:
            assert len(next(events).keys) == 0
        broker.start()
        while source.trouble:
            next(events)
    broker.stop()


def test_messages_beyond_the_send_window_arrive_after_confirmation(
    broker: Mosquitto, publish_message: Any
) -> None:
    with source_at(broker.address) as source:
        events = subscribe(source)
        for number in range(100):
            publish_message(sample(number % 3, id=number))
        found: list[Event] = []
        while len(flatten_events(found)) < 100:
            event = next(events)
            found.append(event)
            source.confirm(event.cursor)
    assert [key for _, _, key in flatten_events(found)] == [str(number) for number in range(100)]


def test_reader_without_confirmations_pauses_the_broker(
    broker: Mosquitto, publish_message: Any
) -> None:
    with source_at(broker.address) as source:
        events = subscribe(source)
        for number in range(100):
            publish_message(sample(0, id=number))
        ahead = read_until(events, 30)
        for _ in range(10):
            ahead.append(next(events))
        assert len(flatten_events(ahead)) < 50


def test_mqtt_qos_0_source_cannot_wait(broker: Mosquitto, publish_message: Any) -> None:
    with source_at(broker.address, "plant/#?qos=0") as source:
        assert not source.can_wait
        events = subscribe(source)
        publish_message(sample(2))
        assert labels_of(read_until(events, 1)) == [2]


def test_two_mqtt_readers_with_the_same_name_are_detected(broker: Mosquitto) -> None:
    address = parse_broker(parse_spec(f"{broker.address}/plant/#?client=reader"), "")
    first, second = (MqttSource(address, PLAIN, heartbeat_s=0.05, retry=1) for _ in range(2))
    with first, second:
        events, others = subscribe(first), subscribe(second)
        for _ in range(1200):
            next(events), next(others)
            if "is there another reader called reader?" in first.trouble + second.trouble:
                return
    raise AssertionError((first.trouble, second.trouble))


def test_session_taken_over_is_reported() -> None:
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.reasoncodes import ReasonCode

    source = source_at("mqtt://127.0.0.1:9")
    taken = ReasonCode(PacketTypes.DISCONNECT, identifier=142)
    source._on_disconnect(None, None, None, taken, None)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="another reader with the same name"):
        read_until_error(source.events(""))


def test_wrong_mqtt_password_is_reported_and_not_retried(
    needs_mosquitto: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users").write_text("")
    broker = Mosquitto(tmp_path, "allow_anonymous false", f"password_file {tmp_path}/users")
    broker.start()
    monkeypatch.setenv("THALWEG_MQTT_PASSWORD", "guess")
    address = broker.address.replace("://", "://ann@")
    with source_at(address) as source, pytest.raises(DataError, match="THALWEG_MQTT_PASSWORD"):
        read_until_error(source.events(""))
    broker.stop()


KILLED = """
    import sys
    from thalweg.network.sources import SampleFormat, open_source

    source = open_source(sys.argv[1], SampleFormat((2,), "float32", 3))
    for event in source.events(""):
        print(f"{len(event.keys)} {source.trouble!r} {event.cursor}", flush=True)
"""


def test_killed_mqtt_reader_resumes_after_last_stored_message(
    broker: Mosquitto, publish_message: Any
) -> None:
    spec = f"{broker.address}/plant/#?client=reader"
    environment = {**os.environ, "PYTHONPATH": str(Path(thalweg.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), spec],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdout is not None
        for line in reader.stdout:
            if line.split()[1] == "''":
                break
        publish_message(sample(1, id="a"))
        for line in reader.stdout:
            if line.startswith("1 "):
                break
        reader.send_signal(signal.SIGKILL)
    stored = line.split(maxsplit=2)[2].strip()
    publish_message(sample(2, id="b"))
    # A reader without the first message gets it again; a reader with it continues after it.
    with source_at(broker.address) as source:
        assert labels_of(read_until(source.events(""), 2)) == [1, 2]
    with source_at(broker.address) as source:
        assert labels_of(read_until(source.events(stored), 1)) == [2]


def certificate(folder: Path, name: str, signer: Any = None) -> Any:
    """Create a key and a certificate for loopback, self-signed or signed by `signer`."""
    import ipaddress

    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    by_key, by_name = signer or (key, subject)
    now = datetime.now(UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by_name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(by_key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / f"{name}.pem").write_bytes(signed.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    (folder / f"{name}.key").write_bytes(private)
    return key, subject


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # paho leaves a socket open
def test_mqtt_uses_tls_and_rejects_a_foreign_certificate(
    needs_mosquitto: None, tmp_path: Path
) -> None:
    ours = certificate(tmp_path, "ca")
    certificate(tmp_path, "foreign")
    certificate(tmp_path, "server", ours)
    files = (f"certfile {tmp_path}/server.pem", f"keyfile {tmp_path}/server.key")
    broker = Mosquitto(tmp_path, "allow_anonymous true", *files)
    broker.start()
    address = broker.address.replace("mqtt:", "mqtts:")
    with source_at(address, f"plant/#?ca={tmp_path}/ca.pem") as source:
        subscribe(source)
    with (
        source_at(address, f"plant/#?ca={tmp_path}/foreign.pem") as source,
        pytest.raises(DataError, match="not one that we trust"),
    ):
        read_until_error(source.events(""))
    with pytest.raises(ConfigError, match="cannot be used"):
        next(source_at(address, f"plant/#?ca={tmp_path}/server.key").events(""))
    broker.stop()


def test_mqtt_source_is_opened_by_its_address(broker: Mosquitto) -> None:
    with open_source(f"{broker.address}/plant/#?y=state", PLAIN, name="abc") as source:  # type: ignore[attr-defined]
        assert isinstance(source, MqttSource)


def test_missing_paho_gives_an_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "paho.mqtt.client", None)
    with pytest.raises(ConfigError, match=r"pip install 'thalweg\[mqtt\]'"):
        open_source("mqtt://localhost/t", PLAIN)
