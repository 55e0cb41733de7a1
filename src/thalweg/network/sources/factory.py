"""Creates a source from the text after ``--data``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from thalweg.core.errors import ConfigError
from thalweg.network.sources.base import SampleFormat, Source
from thalweg.network.sources.spec import SourceSpec, parse_spec

KINDS = """\
    mqtt://host/topic or mqtts://host/topic   messages of a broker
    file.csv, file.jsonl                      lines as they are written
    file.parquet, folder/                     Parquet parts as they come
    folder/                                   images as they come, a sub-folder for each class
    package.module:function, file.py:function any iterator in Python
    replay:SCENARIO                           a data set, as if it came now
    river:NAME                                a stream of River"""

OpenReplay = Callable[[SourceSpec, SampleFormat], Source]


def open_source(
    spec: str, sample_format: SampleFormat, *, name: str = "", open_replay: OpenReplay | None = None
) -> Source:
    """Open the source that a text names; reading starts with `events`.

    `name` identifies the device permanently: a broker keeps messages for it. `open_replay` opens
    ``replay:`` sources, which need data sets (`network.edge.sources`).
    """
    read = parse_spec(spec)
    location, suffix = read.location, Path(read.location).suffix.lower()
    if location.startswith(("mqtt://", "mqtts://")):
        from thalweg.network.sources.mqtt import mqtt_source

        return mqtt_source(read, sample_format, name)
    if location.startswith("replay:"):
        if open_replay is None:
            raise ConfigError(
                f"{spec}: replay sources need data sets; open it with open_live_source of "
                "network.edge.sources."
            )
        return open_replay(read, sample_format)
    if location.startswith("river:"):
        from thalweg.network.sources.river import river_source

        return river_source(read, sample_format)
    if suffix in (".csv", ".jsonl", ".ndjson"):
        from thalweg.network.sources.tail import tail_source

        return tail_source(read, sample_format)
    if suffix == ".parquet" or Path(location).is_dir() or location.endswith("/"):
        return _folder(read, sample_format, suffix)
    if ":" in location:
        from thalweg.network.sources.iterators import python_source

        return python_source(read, sample_format)
    raise ConfigError(f"expected a data source, got {spec!r}. Sources are\n{KINDS}")


def _folder(spec: SourceSpec, sample_format: SampleFormat, suffix: str) -> Source:
    """Image files for images, Parquet files for other formats."""
    if sample_format.is_image and suffix != ".parquet":
        from thalweg.network.sources.images import image_source

        return image_source(spec, sample_format)
    from thalweg.network.sources.parquet import parquet_source

    return parquet_source(spec, sample_format)
