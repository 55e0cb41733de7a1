"""Images that arrive in a folder with one subfolder per class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import require
from thalweg.network.sources.base import SampleFormat
from thalweg.network.sources.folder import FolderSource, FoundFile, RecordLoader
from thalweg.network.sources.records import BrokenRecord, InvalidRecord, Record
from thalweg.network.sources.spec import SourceSpec

FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm")
MAX_PIXELS = 1 << 26
MODES = {1: "L", 3: "RGB"}


def image_source(spec: SourceSpec, sample_format: SampleFormat) -> FolderSource:
    """``folder/CLASS/name.png``; with ``resize=yes`` images of other sizes are scaled."""
    spec.check_options("follow", "resize")
    require(
        sample_format.is_image
        and sample_format.dtype == "uint8"
        and sample_format.shape[2] in MODES,
        f"{spec.text} has images, but samples here are {sample_format.dtype} of shape "
        f"{sample_format.shape}.",
    )
    require(
        not sample_format.is_regression,
        f"{spec.text} has images in a folder for each class, but the federation predicts numbers. "
        "Use a source with a field y, such as Parquet files or a Python iterator.",
    )
    load = image_loader(sample_format, spec.get_bool("resize", False))
    return FolderSource(
        Path(spec.location), sample_format, load, SUFFIXES, follow=spec.get_bool("follow", True)
    )


def image_loader(sample_format: SampleFormat, resize: bool) -> RecordLoader:
    """One record per file: its class is its folder, its key identifies the version of the file."""

    def load(found: FoundFile, done: int) -> Iterator[Record | BrokenRecord]:
        if done:
            return
        folder, _, _ = found.name.rpartition("/")
        key = f"{found.name[-150:]}@{found.written}"
        try:
            if not folder:
                raise InvalidRecord(f"{found.name} is not in a class folder")
            yield Record(_decode(found, sample_format, resize), folder, found.written / 1e9, key, 1)
        except InvalidRecord as reason:
            yield BrokenRecord(str(reason), 1)

    return load


def _decode(found: FoundFile, sample_format: SampleFormat, resize: bool) -> npt.NDArray[np.uint8]:
    from PIL import Image

    height, width, channels = sample_format.shape
    try:
        with Image.open(found.path, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:  # checked before decoding
                raise InvalidRecord(f"{found.name} has {image.width} x {image.height} pixels")
            if image.size != (width, height) and not resize:
                raise InvalidRecord(
                    f"{found.name}: expected {width} x {height} pixels, got {image.width} x "
                    f"{image.height}; resize=yes scales"
                )
            plain = image.convert(MODES[channels])
            if plain.size != (width, height):
                plain = plain.resize((width, height))
            return np.asarray(plain, dtype=np.uint8).reshape(sample_format.shape)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InvalidRecord(f"{found.name} is not a readable image ({error})") from error
