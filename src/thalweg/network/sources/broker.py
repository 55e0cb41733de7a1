"""Address and connection options of an MQTT broker."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path

from thalweg.core.errors import ConfigError, require
from thalweg.network.sources.spec import SourceSpec

PASSWORD_VARIABLE = "THALWEG_MQTT_PASSWORD"
ADDRESS = re.compile(
    r"(?P<scheme>mqtts?)://(?:(?P<user>[^@/]*)@)?(?P<host>\[[0-9a-fA-F:]+\]|[^:/@\[\]]+)"
    r"(?::(?P<port>\d+))?/(?P<topic>.+)"
)
WEEK = 7 * 24 * 3600


@dataclass(frozen=True)
class Broker:
    """The options of a subscription to a topic."""

    host: str
    port: int
    topic: str
    tls: bool
    user: str = ""
    qos: int = 1
    client: str = ""  # name of the session that the broker keeps; empty: none
    keep: int = WEEK  # seconds for which the broker keeps the session
    ca: str = ""  # CA certificates of the broker; empty: those of the system
    cert: str = ""  # client certificate, if the broker requires one
    key: str = ""

    def __post_init__(self) -> None:
        require(
            self.qos in (0, 1),
            f"qos must be 0 (messages may be lost) or 1 (delivered until stored), got {self.qos}.",
        )
        require(0 < self.port < 65536, f"port must be 1 to 65535, got {self.port}.")
        levels = self.topic.split("/")
        require(
            all(level == "+" or "+" not in level for level in levels)
            and all("#" not in level for level in levels[:-1])
            and levels[-1].count("#") in (0, len(levels[-1])),
            f"{self.topic!r} is not a topic filter: + matches one level, # all levels at the end.",
        )
        require(
            self.tls or not (self.ca or self.cert or self.key),
            "certificates need mqtts://, but the source has mqtt://.",
        )
        require(
            bool(self.cert) == bool(self.key),
            "cert and key must be given together; one of them is missing.",
        )
        for file in filter(None, (self.ca, self.cert, self.key)):
            require(Path(file).is_file(), f"there is no file {file}.")

    @property
    def name(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def password(self) -> str | None:
        return os.environ.get(PASSWORD_VARIABLE)


def parse_broker(spec: SourceSpec, name: str) -> Broker:
    """The broker that a source names; unencrypted connections to other hosts need insecure=1."""
    found = ADDRESS.fullmatch(spec.location)
    if found is None:
        raise ConfigError(f"expected mqtt://[user@]host[:port]/topic, got {spec.text!r}.")
    tls, user = found["scheme"] == "mqtts", found["user"] or ""
    if ":" in user:
        raise ConfigError(
            f"a password on the command line is visible to other users; set {PASSWORD_VARIABLE} "
            "instead."
        )
    host = found["host"].strip("[]")
    require(
        tls or is_loopback(host) or spec.get_bool("insecure", False),
        f"{host} is another machine, and mqtt:// is neither encrypted nor authenticated: use "
        "mqtts:// or insecure=1.",
    )
    return Broker(
        host=host,
        port=int(found["port"] or (8883 if tls else 1883)),
        topic=found["topic"],
        tls=tls,
        user=user,
        qos=spec.get_int("qos", 1),
        client=spec.get_string("client", f"thalweg-{name}" if name else ""),
        keep=spec.get_int("keep", WEEK, least=1),
        ca=spec.get_string("ca"),
        cert=spec.get_string("cert"),
        key=spec.get_string("key"),
    )


def is_loopback(host: str) -> bool:
    """True if the host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
