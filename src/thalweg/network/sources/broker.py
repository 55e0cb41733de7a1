"""Where a broker is, and how to talk to it."""

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
    """Everything that is needed to subscribe to a topic."""

    host: str
    port: int
    topic: str
    tls: bool
    user: str = ""
    qos: int = 1
    client: str = ""  # name of the session that the broker keeps for us; empty: it keeps none
    keep: int = WEEK  # seconds that it keeps it while we are away
    ca: str = ""  # certificates that may sign the broker's; empty: those of the system
    cert: str = ""  # our own, if the broker asks for one
    key: str = ""

    def __post_init__(self) -> None:
        require(
            self.qos in (0, 1),
            f"qos is 0 (may be lost) or 1 (comes until it is stored), got {self.qos}.",
        )
        require(0 < self.port < 65536, f"a port is 1 to 65535, got {self.port}.")
        levels = self.topic.split("/")
        require(
            all(level == "+" or "+" not in level for level in levels)
            and all("#" not in level for level in levels[:-1])
            and levels[-1].count("#") in (0, len(levels[-1])),
            f"{self.topic!r} is no topic filter: + stands for a whole level, # for all levels at the end.",
        )
        require(
            self.tls or not (self.ca or self.cert or self.key),
            "certificates belong to mqtts://, but the source says mqtt://.",
        )
        require(
            bool(self.cert) == bool(self.key), "cert and key go together; one of them is missing."
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
    """The broker that a source names; refuses to send anything readable over a network unless it is told to."""
    found = ADDRESS.fullmatch(spec.location)
    if found is None:
        raise ConfigError(f"expected mqtt://[user@]host[:port]/topic, got {spec.text!r}.")
    tls, user = found["scheme"] == "mqtts", found["user"] or ""
    if ":" in user:
        raise ConfigError(
            f"a password does not belong on a command line, where everybody can read it; put it into {PASSWORD_VARIABLE}."
        )
    host = found["host"].strip("[]")
    require(
        tls or is_loopback(host) or spec.get_bool("insecure", False),
        f"{host} is another machine, and mqtt:// can be read and forged on the way: use mqtts:// or insecure=1.",
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
    """Does what is sent to this host stay on this machine?"""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
