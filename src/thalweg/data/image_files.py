"""Images in single files: decoded once and cached as one array."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.size_limits import check_memory
from thalweg.data import search

Images = npt.NDArray[np.uint8]


class ImageFormat(NamedTuple):
    """Common properties of all images of a data set."""

    name: str  # folder name in the cache
    format: str  # Pillow's name of the format
    suffix: str
    side: int  # pixels


class ImageFile(NamedTuple):
    """One image file, with the properties that identify its version."""

    name: str
    path: str
    size: int
    mtime_ns: int


def list_images(folder: Path, image_format: ImageFormat) -> list[ImageFile]:
    """The images of a folder by name; at least one."""
    with os.scandir(folder) as entries:
        files = sorted(
            ImageFile(entry.name, entry.path, entry.stat().st_size, entry.stat().st_mtime_ns)
            for entry in entries
            if entry.name.endswith(image_format.suffix)
        )
    if not files:
        raise DataError(f"{folder}: expected images (*{image_format.suffix}), got none.")
    return files


def read_images(files: Sequence[ImageFile], folder: Path, image_format: ImageFormat) -> Images:
    """Images (n, side, side, 3) of some files in a folder, in the order of the files."""
    digest = hashlib.sha256()
    for file in files:
        path = Path(file.path).relative_to(folder).as_posix()
        digest.update(f"{path} {file.size} {file.mtime_ns}\n".encode())
    cached = (
        search.cache_folder() / image_format.name / f"{folder.name}-{digest.hexdigest()[:16]}.npy"
    )
    x = _from_cache(cached, (len(files), image_format.side, image_format.side, 3))
    if x is None:
        x = _decode_images(files, folder, image_format)
        _to_cache(cached, x)
    return x


def _decode_images(files: Sequence[ImageFile], folder: Path, image_format: ImageFormat) -> Images:
    from PIL import Image, UnidentifiedImageError
    from rich.console import Console

    if len(files) > 1000:
        message = f"decoding {len(files):,} images of {folder}, once"
        Console(stderr=True).print(message, soft_wrap=True, highlight=False)
    side = image_format.side
    check_memory(len(files) * side * side * 3, str(folder), "Use fewer images")
    x = np.empty((len(files), side, side, 3), dtype=np.uint8)
    for i, file in enumerate(files):
        try:
            with Image.open(file.path, formats=[image_format.format]) as image:
                if image.size != (side, side):  # checked before decoding
                    raise ValueError(f"{image.size[0]} x {image.size[1]} pixels")
                x[i] = np.asarray(image.convert("RGB"))
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
            raise DataError(
                f"{file.path}: expected a {image_format.format} image of {side} x {side} pixels, "
                f"got {error}. Nothing was loaded."
            ) from error
    return x


def _from_cache(file: Path, shape: tuple[int, ...]) -> Images | None:
    """The cached array, if it exists and is complete."""
    try:
        x = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    is_whole = x.shape == shape and x.dtype == np.uint8
    return x if is_whole else None


def _to_cache(file: Path, x: Images) -> None:
    """Write the cache atomically; a failure only costs time."""
    part = file.with_name(f".{file.stem}.{os.getpid()}.part.npy")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(part, x)
        os.replace(part, file)
    except OSError:
        with suppress(OSError):
            part.unlink()
