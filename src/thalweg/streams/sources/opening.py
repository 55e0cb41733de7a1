"""From the text after ``--data`` to a source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from thalweg.core.errors import ConfigError
from thalweg.streams.sources.base import Form, Source
from thalweg.streams.sources.spec import Spec, read_spec

KINDS = """\
    mqtt://host/topic or mqtts://host/topic   messages of a broker
    file.csv, file.jsonl                      lines as they are written
    file.parquet, folder/                     Parquet parts as they come
    folder/                                   images as they come, a sub-folder for each class
    package.module:function, file.py:function any iterator in Python
    replay:SCENARIO                           a data set, as if it came now
    river:NAME                                a stream of River"""

Replaying = Callable[[Spec, Form], Source]


def open_source(
    spec: str, form: Form, *, name: str = "", replaying: Replaying | None = None
) -> Source:
    """The source that a text names; nothing is read before somebody asks for its events.

    `name` is who reads, always the same for the same device: a broker keeps messages for that name. `replaying`
    opens ``replay:`` sources: streams know no data sets, so a higher layer hands it in (`edge.sources`).
    """
    read = read_spec(spec)
    place, suffix = read.place, Path(read.place).suffix.lower()
    if place.startswith(("mqtt://", "mqtts://")):
        from thalweg.streams.sources.mqtt import mqtt_source

        return mqtt_source(read, form, name)
    if place.startswith("replay:"):
        if replaying is None:
            raise ConfigError(
                f"{spec}: there are no data sets here to replay; open it with edge.open_live."
            )
        return replaying(read, form)
    if place.startswith("river:"):
        from thalweg.streams.sources.river import river_source

        return river_source(read, form)
    if suffix in (".csv", ".jsonl", ".ndjson"):
        from thalweg.streams.sources.tail import tail_source

        return tail_source(read, form)
    if suffix == ".parquet" or Path(place).is_dir() or place.endswith("/"):
        return _folder(read, form, suffix)
    if ":" in place:
        from thalweg.streams.sources.iterators import python_source

        return python_source(read, form)
    raise ConfigError(f"expected a source of data, got {spec!r}. Sources are\n{KINDS}")


def _folder(spec: Spec, form: Form, suffix: str) -> Source:
    """What is in a folder follows from what is wanted: image files for images, Parquet parts for the rest."""
    if form.is_image and suffix != ".parquet":
        from thalweg.streams.sources.images import image_source

        return image_source(spec, form)
    from thalweg.streams.sources.parquet import parquet_source

    return parquet_source(spec, form)
