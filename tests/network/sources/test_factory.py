from __future__ import annotations

from pathlib import Path

import pytest

from contracts.source import PLAIN
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.network.sources import SampleFormat, Source, open_source
from thalweg.network.sources.folder import FolderSource
from thalweg.network.sources.tail import TailSource

IMAGE = SampleFormat((2, 2, 1), "uint8", 2)


def test_source_kind_follows_from_its_text(tmp_path: Path) -> None:
    for text, sample_format, kind in (
        ("r.csv", PLAIN, TailSource),
        ("r.JSONL", PLAIN, TailSource),
        ("r.ndjson?follow=no", PLAIN, TailSource),
        ("r.parquet", PLAIN, FolderSource),
        (f"{tmp_path}", PLAIN, FolderSource),
        ("not/yet/there/", IMAGE, FolderSource),
    ):
        source = open_source(text, sample_format)
        assert isinstance(source, kind)
        assert isinstance(source, Source)


def test_unknown_source_error_lists_all_kinds() -> None:
    with pytest.raises(ConfigError, match="mqtt://host/topic") as caught:
        open_source("readings.xls", PLAIN)
    assert "river:NAME" in str(caught.value)
    with pytest.raises(ConfigError, match=r"cannot import 'no\.such\.module'"):
        open_source("no.such.module:function", PLAIN)


@pytest.mark.parametrize(
    "text", ["r.csv?qos=1", "r.parquet?qos=1", "mqtt://localhost/t?follow=no", "x.py:f?follow=no"]
)
def test_options_of_another_source_kind_are_rejected(text: str) -> None:
    with pytest.raises(UnknownName, match="option of the source"):
        open_source(text, PLAIN)


def test_one_field_cannot_have_two_roles() -> None:
    with pytest.raises(ConfigError, match="must be different fields"):
        open_source("r.csv?y=id", PLAIN)
