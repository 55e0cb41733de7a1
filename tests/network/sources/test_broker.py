from __future__ import annotations

from pathlib import Path

import pytest

from thalweg.core.errors import ConfigError
from thalweg.network.sources.broker import Broker, is_loopback, parse_broker
from thalweg.network.sources.spec import parse_spec


def parse(text: str, name: str = "") -> Broker:
    return parse_broker(parse_spec(text), name)


def test_mqtt_address_is_parsed_into_its_parts() -> None:
    found = parse("mqtt://ann@localhost:1884/plant/+/pump/#?qos=0&client=pump-3&keep=60")
    assert found == Broker("localhost", 1884, "plant/+/pump/#", False, "ann", 0, "pump-3", 60)
    assert parse("mqtt://[::1]/t").host == "::1"
    assert (parse("mqtt://127.0.0.1/t").port, parse("mqtts://far.example/t").port) == (1883, 8883)


def test_session_name_defaults_to_the_name_of_the_reader() -> None:
    assert parse("mqtt://localhost/t").client == ""
    assert parse("mqtt://localhost/t", "abc").client == "thalweg-abc"
    assert parse("mqtt://localhost/t?client=x", "abc").client == "x"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mqtt://localhost", "expected mqtt://"),
        ("mqtt://localhost/", "expected mqtt://"),
        ("mqtt:///t", "expected mqtt://"),
        ("mqtt://ann:secret@localhost/t", "THALWEG_MQTT_PASSWORD"),
        ("mqtt://far.example/t", "use mqtts://"),
        ("mqtt://192.168.1.5/t", "use mqtts://"),
        ("mqtt://localhost/t?qos=2", "qos must be 0"),
        ("mqtt://localhost:70000/t", "port must be 1 to 65535"),
        ("mqtt://localhost/a+/t", "is not a topic filter"),
        ("mqtt://localhost/#/t", "is not a topic filter"),
        ("mqtt://localhost/a/b#", "is not a topic filter"),
        ("mqtt://localhost/t?ca=x.pem", "certificates need mqtts://"),
        ("mqtts://localhost/t?ca=nowhere.pem", "there is no file nowhere.pem"),
        ("mqtts://localhost/t?key=k.pem", "cert and key must be given together"),
    ],
)
def test_invalid_mqtt_addresses_are_rejected(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse(text)


def test_unencrypted_remote_connection_needs_the_insecure_option() -> None:
    assert not parse("mqtt://far.example/t?insecure=1").tls


def test_mqtt_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THALWEG_MQTT_PASSWORD", "secret")
    assert parse("mqtt://ann@localhost/t").password == "secret"
    assert "secret" not in repr(parse("mqtt://ann@localhost/t"))


def test_only_local_addresses_are_loopback(tmp_path: Path) -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("10.0.0.1", "localhost.example", "0.0.0.0", "example")))
