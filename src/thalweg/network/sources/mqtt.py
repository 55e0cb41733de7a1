"""Messages of an MQTT broker, acknowledged after they have been stored."""

from __future__ import annotations

import math
import queue
import ssl
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from thalweg.core.errors import DataError
from thalweg.network.sources.base import Event, SampleFormat, empty_batch
from thalweg.network.sources.base_source import HEARTBEAT_S, MAX_BATCH, BaseSource
from thalweg.network.sources.broker import PASSWORD_VARIABLE, Broker, parse_broker
from thalweg.network.sources.deliveries import Deliveries
from thalweg.network.sources.fields import FIELDS, parse_field_names, with_columns
from thalweg.network.sources.mqtt_client import make_connect_properties, make_mqtt_client, paho
from thalweg.network.sources.records import BrokenRecord, FieldNames, Record
from thalweg.network.sources.spec import SourceSpec

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

QUEUE_SIZE = 1000  # messages with QoS 0 that wait for the reader
SHORT_CONNECTION_S = 10.0  # seconds; shorter connections may indicate a session conflict
FATAL_CODES = {
    133: "the name of the session is not allowed",
    134: f"wrong user name or password (the password is read from {PASSWORD_VARIABLE})",
    135: f"not allowed to connect or to subscribe (the password is read from {PASSWORD_VARIABLE})",
    142: "another reader with the same name has taken over the session; every reader needs its own",
    143: "the topic filter is not allowed",
}


class MqttSource(BaseSource):
    """One JSON object per message: ``{"x": [...], "y": 3, "t": ..., "id": ...}``, or ``{"id": ...,
    "y": ...}`` for the label of an earlier sample.

    With QoS 1 and a session name, the broker keeps messages while the device is offline and repeats
    each until it is stored; with QoS 0 it does not wait.
    """

    def __init__(
        self,
        broker: Broker,
        sample_format: SampleFormat,
        names: FieldNames = FieldNames(),  # noqa: B008  a constant
        *,
        heartbeat_s: float = HEARTBEAT_S,
        retry: int = 1,
    ) -> None:
        super().__init__(sample_format, heartbeat_s)
        self.can_wait = broker.qos == 1
        self._broker, self._names, self._retry = broker, names, retry
        self._messages: queue.Queue[tuple[int | None, bytes] | DataError] = queue.Queue(
            0 if self.can_wait else QUEUE_SIZE  # with QoS 1 the broker waits
        )
        self._deliveries = Deliveries()
        self._at = 0  # number of the last delivered message
        self._client: Client | None = None
        self._since, self._short = (
            -math.inf,
            0,
        )  # start of this connection; number of consecutive short ones

    def events(self, cursor: str) -> Iterator[Event]:
        self._deliveries = Deliveries(cursor)
        self._at = self._deliveries.number
        self._client = self._connect()
        try:
            while not self._closed.is_set():
                records = [self._record(*message) for message in self._take_messages()]
                yield from self._validator.events(records, self._cursor)
                self._at = max([self._at, *(record.mark or 0 for record in records)])
                if not records:
                    yield empty_batch(self.sample_format, self._cursor(None))
        finally:
            self.close()

    def _cursor(self, number: int | None) -> str:
        """Position after a message; None or QoS 0: after the last numbered message."""
        return self._deliveries.cursor(self._at if number is None else number)

    def confirm(self, cursor: str) -> None:
        done = self._deliveries.confirm(cursor)
        if self._client is not None:
            for mid in done:
                self._client.ack(mid, 1)

    def close(self) -> None:
        super().close()
        client, self._client = self._client, None
        if client is not None:
            client.disconnect()
            client.loop_stop()

    def _take_messages(self) -> list[tuple[int | None, bytes]]:
        """Available messages, or the first one that arrives; empty after a heartbeat interval."""
        found: list[tuple[int | None, bytes]] = []
        deadline = time.monotonic() + self.heartbeat_s
        while len(found) < MAX_BATCH:
            wait = 0.0 if found else max(deadline - time.monotonic(), 0.0)
            try:
                message = self._messages.get(timeout=wait) if wait else self._messages.get_nowait()
            except queue.Empty:
                break
            if isinstance(message, DataError):
                raise message
            found.append(message)
        return found

    def _record(self, number: int | None, payload: bytes) -> Record | BrokenRecord:
        try:
            fields = msgspec.json.decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            return BrokenRecord(
                f"expected a message in JSON, got {payload[:40]!r} ({error})", number
            )
        return self._names.read(fields, number)

    # --- called from the broker's thread ---

    def _connect(self) -> Client:
        """A client that connects and reconnects in its own thread."""
        broker = self._broker
        client = make_mqtt_client(broker)
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.reconnect_delay_set(self._retry, 30 * self._retry)
        self.trouble = f"not yet connected to the broker at {broker.name}"
        client.connect_async(
            broker.host,
            broker.port,
            keepalive=30,
            clean_start=not broker.client,
            properties=make_connect_properties(broker),
        )
        client.loop_start()
        return client

    def _on_connect(
        self, client: Client, data: object, flags: Any, code: Any, properties: Any
    ) -> None:
        if code.is_failure:
            self._on_failure(code)
            return
        if not flags.session_present:
            self._deliveries.forget()
        from paho.mqtt.subscribeoptions import SubscribeOptions

        # A retained value is delivered once, not after every reconnection.
        once = SubscribeOptions(
            qos=self._broker.qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
        )
        client.subscribe(self._broker.topic, options=once)

    def _on_subscribe(
        self, client: Client, data: object, mid: int, codes: list[Any], properties: Any
    ) -> None:
        if codes and codes[0].is_failure:
            self._on_failure(codes[0])
        else:
            self._since, self.trouble = time.monotonic(), self._session_hint()

    def _on_connect_fail(self, client: Client, data: object) -> None:
        error = sys.exception()
        self.trouble = f"no connection to the broker at {self._broker.name} ({error})"
        if isinstance(error, ssl.SSLCertVerificationError):
            self._give_up(
                f"its certificate is not one that we trust ({error.verify_message}); see ca="
            )

    def _on_disconnect(
        self, client: Client, data: object, flags: Any, code: Any, properties: Any
    ) -> None:
        if not self._closed.is_set():
            was_short = time.monotonic() - self._since < SHORT_CONNECTION_S
            self._short = self._short + 1 if was_short else 0
            self._on_failure(code)

    def _on_message(self, client: Client, data: object, message: MQTTMessage) -> None:
        number, payload = None, bytes(message.payload)
        if message.qos:
            number, known = self._deliveries.receive(message.mid, payload, message.dup)
            if known:
                client.ack(message.mid, 1)
            if number is None:
                return
        try:
            self._messages.put_nowait((number, payload))
        except queue.Full:
            self._validator.reject("messages came faster than they were read")

    def _on_failure(self, code: Any) -> None:
        self.trouble = (
            f"no connection to the broker at {self._broker.name} ({code}){self._session_hint()}"
        )
        if code.value in FATAL_CODES:
            self._give_up(FATAL_CODES[code.value])

    def _session_hint(self) -> str:
        """Many brokers do not report that another client has taken the session."""
        name = self._broker.client
        return f"; is there another reader called {name}?" if self._short > 2 and name else ""

    def _give_up(self, reason: str) -> None:
        """Report a permanent error to the reader and end the thread."""
        error = DataError(f"the broker at {self._broker.name}: {reason}.")
        while True:
            try:
                self._messages.put_nowait(error)
                break
            except queue.Full:
                self._messages.get_nowait()
        if self._client is not None:
            self._client.disconnect()


def mqtt_source(spec: SourceSpec, sample_format: SampleFormat, name: str) -> MqttSource:
    """``mqtt://[user@]host[:port]/topic?qos=1``, or ``mqtts://`` with ``ca=``."""
    options = ("qos", "client", "keep", "ca", "cert", "key", "insecure")
    spec.check_options(*options, *FIELDS)
    paho()
    sample_format = with_columns(sample_format, spec)
    return MqttSource(
        parse_broker(spec, name), sample_format, parse_field_names(spec, sample_format)
    )
