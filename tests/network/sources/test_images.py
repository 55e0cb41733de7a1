from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from contracts.source import PLAIN, check_source, inputs_of, labels_of
from thalweg.core.errors import ConfigError
from thalweg.network.sources import LiveBatch, SampleFormat, open_source
from thalweg.network.sources.images import image_source
from thalweg.network.sources.spec import parse_spec

GREY = SampleFormat((2, 2, 1), "uint8", 2, classes=("cat", "dog"))
COLOURED = SampleFormat((2, 2, 3), "uint8", 2, classes=("cat", "dog"))


def paint(path: Path, value: int, size: tuple[int, int] = (2, 2), written: float = 100.0) -> None:
    path.parent.mkdir(exist_ok=True)
    Image.new("L", size, value).save(path)
    os.utime(path, (written, written))


def test_class_of_an_image_is_its_folder(tmp_path: Path) -> None:
    paint(tmp_path / "dog" / "a.png", 7, written=200)
    paint(tmp_path / "cat" / "b.bmp", 9, written=100)
    found = check_source(lambda: open_source(f"{tmp_path}?follow=no", GREY))
    assert [(x[0], label) for x, label, _ in found] == [(9, 0), (7, 1)]
    assert [key.partition("@")[0] for _, _, key in found] == ["cat/b.bmp", "dog/a.png"]
    (event,) = open_source(f"{tmp_path}?follow=no", GREY).events("")
    assert isinstance(event, LiveBatch)
    assert event.times.tolist() == [100.0, 200.0]


def test_grey_images_become_rgb_for_colour_formats(tmp_path: Path) -> None:
    paint(tmp_path / "dog" / "a.png", 7)
    events = list(open_source(f"{tmp_path}?follow=no", COLOURED).events(""))
    assert inputs_of(events) == [[[[7] * 3] * 2] * 2]


def test_invalid_images_are_rejected_and_counted(tmp_path: Path) -> None:
    paint(tmp_path / "cat" / "large.png", 1, (3, 2))
    paint(tmp_path / "cow" / "c.png", 1)
    paint(tmp_path / "loose.png", 1)
    (tmp_path / "cat" / "torn.png").write_bytes((tmp_path / "loose.png").read_bytes()[:40])
    (tmp_path / "cat" / "text.png").write_text("hello")
    paint(tmp_path / "dog" / "fine.png", 1)
    source = open_source(f"{tmp_path}?follow=no", GREY)
    assert labels_of(list(source.events(""))) == [1]
    assert source.rejected == 5


def test_images_are_resized_on_request(tmp_path: Path) -> None:
    paint(tmp_path / "cat" / "large.png", 5, (8, 4))
    source = open_source(f"{tmp_path}?follow=no&resize=yes", GREY)
    assert np.array_equal(inputs_of(list(source.events(""))), np.full((1, 2, 2, 1), 5))


def test_huge_image_is_rejected_without_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thalweg.network.sources.images.MAX_PIXELS", 10)
    paint(tmp_path / "cat" / "huge.png", 5, (8, 4))
    source = open_source(f"{tmp_path}?follow=no&resize=yes", GREY)
    assert labels_of(list(source.events(""))) == []
    assert source.last_rejection == "cat/huge.png has 8 x 4 pixels"


def test_image_source_for_another_sample_format_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"has images, but samples here are float32 of shape \(2,\)"
    ):
        image_source(parse_spec(str(tmp_path)), PLAIN)


def test_images_in_class_folders_have_no_numbers_to_predict(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a folder for each class, but .* predicts numbers"):
        open_source(f"{tmp_path}/", SampleFormat((4, 4, 1), "uint8", 0))
