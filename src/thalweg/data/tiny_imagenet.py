"""Tiny ImageNet: 110,000 colour photographs, 64 x 64, in 200 classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from thalweg.core.errors import DataError
from thalweg.core.types import Ints
from thalweg.data import search
from thalweg.data.base import Dataset
from thalweg.data.image_files import ImageFile, ImageFormat, Images, list_images, read_images

TITLE = "Tiny ImageNet"
FOLDER = "tiny-imagenet-200"
FOLDERS = ("tiny-imagenet", f"tiny-imagenet/{FOLDER}", FOLDER)
CLASSES, WORDS, ANNOTATIONS = "wnids.txt", "words.txt", "val/val_annotations.txt"
WANTED = (CLASSES, WORDS, "train", "val/images", ANNOTATIONS)
HOME = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
MEAN, STD = (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)  # of the training pixels, x / 255
IMAGE_FORMAT = ImageFormat(FOLDERS[0], "JPEG", ".JPEG", side=64)


@dataclass(frozen=True)
class TinyImagenet:
    """Tiny ImageNet (Le and Yang, 2015): 100,000 training images.

    The validation part is used for testing.

    The published test part has no labels and is not read. Labels follow the alphabetical order of
    the class codes (n01443537, ...), as in common readers of image folders; ``wnids.txt`` has
    another order. Decoded images are cached as one array per part (1.3 GB in total).
    """

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read the images; the same for every seed."""
        folder = _find(data_dir)
        codes = _classes(folder / CLASSES)
        x, y = _read_train(folder / "train", codes)
        x_test, y_test = _read_test(folder, codes)
        return Dataset(
            name="tiny-imagenet",
            x=x,
            y=y,
            x_test=x_test,
            y_test=y_test,
            num_classes=len(codes),
            mean=MEAN,
            std=STD,
            class_names=_names(folder / WORDS, codes),
        )

    def locate(self, data_dir: Path | None) -> object:
        """Locate the folder without reading the images."""
        return _find(data_dir)


def _find(data_dir: Path | None) -> Path:
    candidates = search.list_folders(FOLDERS, data_dir)
    folder = search.find_folder(WANTED, TITLE, candidates)
    if folder is None:
        ways = [
            f"get {HOME} and unpack it",
            search.manual_instructions(f"the folder {FOLDER}"),
        ]
        raise search.not_found_error(TITLE, "is not downloaded automatically", ways, candidates)
    return folder


def _read_train(folder: Path, codes: list[str]) -> tuple[Images, Ints]:
    """Images of the training part, ordered by class and file name."""
    if missing := [code for code in codes if not (folder / code / "images").is_dir()]:
        raise DataError(
            f"{folder}: expected a folder CLASS/images for each of the {len(codes)} classes of "
            f"{CLASSES}; {len(missing)} missing, the first is {missing[0]}."
        )
    classes = [list_images(folder / code / "images", IMAGE_FORMAT) for code in codes]
    x = read_images([file for files in classes for file in files], folder, IMAGE_FORMAT)
    return x, np.repeat(np.arange(len(codes)), [len(files) for files in classes])


def _read_test(folder: Path, codes: list[str]) -> tuple[Images, Ints]:
    """The images named in the annotations, in that order."""
    files = {file.name: file for file in list_images(folder / "val" / "images", IMAGE_FORMAT)}
    numbers = {code: number for number, code in enumerate(codes)}
    chosen: list[ImageFile] = []
    labels: list[int] = []
    for line, (name, code, *_) in enumerate(_lines(folder / ANNOTATIONS, at_least=2), start=1):
        if name not in files or code not in numbers:
            raise DataError(
                f"{folder / ANNOTATIONS}, line {line}: expected an image of val/images and one of "
                f"the {len(codes)} classes, got {name} and {code}."
            )
        chosen.append(files[name])
        labels.append(numbers[code])
    return read_images(chosen, folder / "val", IMAGE_FORMAT), np.array(labels, dtype=np.int64)


def _classes(file: Path) -> list[str]:
    codes = sorted(line[0].strip() for line in _lines(file, at_least=1))
    if len(set(codes)) < len(codes) or len(codes) < 2:
        raise DataError(
            f"{file}: expected at least two classes, each once, got {len(codes)} lines with "
            f"{len(set(codes))} classes."
        )
    return codes


def _names(file: Path, codes: list[str]) -> tuple[str, ...]:
    """The first name of every class; its code if the file does not contain it."""
    names = {code: name.partition(",")[0] for code, name, *_ in _lines(file, at_least=2)}
    return tuple(names.get(code, code) for code in codes)


def _lines(file: Path, at_least: int) -> list[list[str]]:
    """Tab-separated columns of a text file; empty lines at its end are ignored."""
    try:
        lines = [line.split("\t") for line in file.read_text("utf-8").rstrip().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} is not a readable text file ({error}).") from error
    for number, line in enumerate(lines, start=1):
        if len(line) < at_least or not all(line[:at_least]):
            raise DataError(
                f"{file}, line {number}: expected {at_least} columns with a tab between them, "
                f"got {' '.join(line)!r}."
            )
    if not lines:
        raise DataError(f"{file}: expected lines, got none.")
    return lines
