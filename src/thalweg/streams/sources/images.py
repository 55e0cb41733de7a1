"""Images as they come into a folder with a sub-folder for each class."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import require
from thalweg.streams.sources.base import Form
from thalweg.streams.sources.folder import FolderSource, Found, Load
from thalweg.streams.sources.records import Broken, Record, Refused
from thalweg.streams.sources.spec import Spec

FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".ppm", ".pgm")
MOST_PIXELS = 1 << 26
MODES = {1: "L", 3: "RGB"}


def image_source(spec: Spec, form: Form) -> FolderSource:
    """``folder/CLASS/name.png``; with ``resize=yes`` images of other sizes are scaled."""
    spec.only("follow", "resize")
    require(
        form.is_image and form.dtype == "uint8" and form.shape[2] in MODES,
        f"{spec.text} has images, but samples here are {form.dtype} of shape {form.shape}.",
    )
    load = labelled(form, spec.flag("resize", False))
    return FolderSource(Path(spec.place), form, load, SUFFIXES, follow=spec.flag("follow", True))


def labelled(form: Form, resize: bool) -> Load:
    """One record for each file: its class is its folder, its key changes when the file does."""

    def load(found: Found, done: int) -> Iterator[Record | Broken]:
        if done:
            return
        folder, _, _ = found.name.rpartition("/")
        key = f"{found.name[-150:]}@{found.written}"
        try:
            if not folder:
                raise Refused(f"{found.name} is not in the folder of a class")
            yield Record(_decoded(found, form, resize), folder, found.written / 1e9, key, 1)
        except Refused as reason:
            yield Broken(str(reason), 1)

    return load


def _decoded(found: Found, form: Form, resize: bool) -> npt.NDArray[np.uint8]:
    from PIL import Image

    height, width, channels = form.shape
    try:
        with Image.open(found.path, formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:  # before anything is decoded
                raise Refused(f"{found.name} has {image.width} x {image.height} pixels")
            if image.size != (width, height) and not resize:
                raise Refused(
                    f"{found.name}: expected {width} x {height} pixels, got {image.width} x {image.height}; "
                    "resize=yes scales"
                )
            plain = image.convert(MODES[channels])
            if plain.size != (width, height):
                plain = plain.resize((width, height))
            return np.asarray(plain, dtype=np.uint8).reshape(form.shape)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise Refused(f"{found.name} is not a readable image ({error})") from error
