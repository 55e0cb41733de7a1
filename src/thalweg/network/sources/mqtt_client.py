"""Creates a paho-mqtt client with session, certificates and password."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from thalweg.core.errors import ConfigError
from thalweg.network.sources.broker import Broker
from thalweg.network.sources.deliveries import IN_FLIGHT

if TYPE_CHECKING:
    from paho.mqtt.client import Client
    from paho.mqtt.properties import Properties

MAX_MESSAGE = 16 << 20  # maximum size in bytes


def make_mqtt_client(broker: Broker) -> Client:
    """An unconnected client with manual acknowledgements."""
    mqtt = paho()
    client: Client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,
        client_id=broker.client,
        protocol=mqtt.MQTTv5,
        manual_ack=True,
    )
    if broker.user:
        client.username_pw_set(broker.user, broker.password)
    if broker.tls:
        _set_tls(client, broker)
    return client


def make_connect_properties(broker: Broker) -> Properties:
    """Connection options: session expiry and maximum number of messages in flight."""
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.ReceiveMaximum = IN_FLIGHT
    properties.MaximumPacketSize = MAX_MESSAGE
    if broker.client:
        properties.SessionExpiryInterval = broker.keep
    return properties


def _set_tls(client: Client, broker: Broker) -> None:
    try:
        client.tls_set(
            ca_certs=broker.ca or None,
            certfile=broker.cert or None,
            keyfile=broker.key or None,
            cert_reqs=ssl.CERT_REQUIRED,
        )
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the certificates for {broker.name} cannot be used ({error})."
        ) from error


def paho() -> Any:
    """Import the library, or raise an error with instructions."""
    try:
        import paho.mqtt.client as mqtt
    except ImportError as error:
        raise ConfigError(
            "a source mqtt:// needs paho-mqtt: pip install 'thalweg[mqtt]'."
        ) from error
    return mqtt
