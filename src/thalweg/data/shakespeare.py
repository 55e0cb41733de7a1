"""Shakespeare's plays by role: predict the next character."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_ranges
from thalweg.core.errors import DataError, require
from thalweg.core.types import Floats, Ints
from thalweg.data import search
from thalweg.data.base import Dataset
from thalweg.data.columns import read_table, read_texts

TITLE = "Shakespeare"
FILE = "speeches.parquet"
COLUMNS = ("play", "role", "text")
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))  # codes 1, 2, ...; 0 is any other character
NUM_CODES = 1 + len(CHARACTERS)

Codes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Shakespeare:
    """Windows of characters and the character after each; every role of every play is a client.

    The task of LEAF (Caldas et al., 2018). The speeches of a role form one text, in the order of
    the play, separated by newlines. A sample is `length` characters, the label is the next one, and
    the next sample begins `stride` characters later.

    The test part is the end of each role's text; no character of it occurs in a training sample,
    and windows across the border are dropped. It has about `test_fraction` of the windows, at least
    one.

    Characters are codes: 1 for a newline, 2 to 96 for the 95 printable ASCII characters, 0 for any
    other; samples are uint8. There are 97 codes and as many classes. LEAF counts 80.

    Needs ``speeches.parquet`` with text columns play, role and text, one row per speech. Clients
    and samples differ from LEAF's own files.
    """

    length: int = 80
    """Characters per sample."""
    stride: int = 40
    """Distance between samples in characters; 1: every character is predicted once (340 MB)."""
    min_samples: int = 10
    """Roles with fewer samples in both parts together are dropped."""
    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        for name in ("length", "stride"):
            value = getattr(self, name)
            require(value >= 1, f"{name} must be at least 1, got {value}.")
        require(
            self.min_samples >= 2,
            f"min_samples must be at least 2, to train on one and test on one, "
            f"got {self.min_samples}.",
        )
        check_ranges(
            self,
            length="[1, UNITS]",
            stride="[1, inf)",
            min_samples="[2, inf)",
            test_fraction="(0, 1)",
        )

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read the file; the same for every seed."""
        file = find(data_dir) / FILE
        train: list[TextWindows] = []
        test: list[TextWindows] = []
        names = []
        for name, text in _read_roles(file).items():
            mine, held_out = self.split(encode(text))
            if len(mine.y) > 0 and len(mine.y) + len(held_out.y) >= self.min_samples:
                names.append(name)
                train.append(mine)
                test.append(held_out)
        if not names:
            raise DataError(
                f"{file}: no role has {self.min_samples} samples of {self.length} characters; "
                "expected longer texts, or a smaller min_samples, length or stride."
            )
        return Dataset(
            name="shakespeare",
            x=np.concatenate([part.x for part in train]),
            y=np.concatenate([part.y for part in train]),
            x_test=np.concatenate([part.x for part in test]),
            y_test=np.concatenate([part.y for part in test]),
            num_classes=NUM_CODES,
            client=_assign_groups(train),
            time=np.concatenate([part.time for part in train]),
            class_names=("other", "newline", "space", *CHARACTERS[2:]),
            client_names=tuple(names),
            client_test=_assign_groups(test),
            num_codes=NUM_CODES,
        )

    def locate(self, data_dir: Path | None) -> object:
        """Locate the file without reading it."""
        return find(data_dir)

    def split(self, codes: Codes) -> tuple[TextWindows, TextWindows]:
        """Training samples of one text, and test samples from its end."""
        reach = self.length + 1  # the window and its label
        num_windows = max(0, (len(codes) - reach) // self.stride + 1)
        num_test = max(1, int(num_windows * self.test_fraction + 0.5))
        border = max(0, len(codes) - (num_test - 1) * self.stride - reach)
        return (
            cut_windows(codes[:border], self.length, self.stride),
            cut_windows(codes[border:], self.length, self.stride),
        )


class TextWindows(NamedTuple):
    """Samples of one text."""

    x: Codes  # (n, length)
    y: Ints  # (n,)
    time: Floats  # (n,) position of the label in the text


def cut_windows(codes: Codes, length: int, stride: int) -> TextWindows:
    """Windows of a text and the code after each.

    >>> some = cut_windows(encode("the play's"), length=4, stride=3)
    >>> some.x.shape, [CHARACTERS[code - 1] for code in some.y]
    ((2, 4), ['p', 'y'])
    """
    if len(codes) <= length:
        return TextWindows(np.empty((0, length), np.uint8), np.empty(0, np.int64), np.empty(0))
    reach = np.lib.stride_tricks.sliding_window_view(codes, length + 1)[::stride]
    time = np.arange(len(reach), dtype=np.float64) * stride + length
    return TextWindows(reach[:, :-1].copy(), reach[:, -1].astype(np.int64), time)


def encode(text: str) -> Codes:
    """The code of every character.

    >>> encode("\\n A~é").tolist()
    [1, 2, 35, 96, 0]
    """
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    code: Codes = np.zeros(128, dtype=np.uint8)
    code[[ord(character) for character in CHARACTERS]] = np.arange(1, NUM_CODES)
    codes: Codes = code[
        np.minimum(points, 127)
    ]  # 127 is not a character and represents all larger codes
    return codes


def find(data_dir: Path | None) -> Path:
    """The folder with the speeches."""
    candidates = search.list_folders(("shakespeare",), data_dir)
    folder = search.find_folder((FILE,), TITLE, candidates)
    if folder is None:
        ways = [
            f"write {FILE} from an edition of the plays, which are free: text columns "
            "play, role and text, a row for each speech, in order",
            search.manual_instructions(FILE),
        ]
        raise search.not_found_error(
            TITLE, f"{FILE} is not available for download", ways, candidates
        )
    return folder


def _read_roles(file: Path) -> dict[str, str]:
    """The text of each role, by play and role."""
    table = read_table(file)
    if wrong := [name for name in COLUMNS if table.column_names.count(name) != 1]:
        raise DataError(
            f"{file}: expected the columns {', '.join(COLUMNS)}, but {' and '.join(wrong)} is "
            "missing or there twice."
        )
    speeches: dict[tuple[str, str], list[str]] = {}
    rows = zip(*(read_texts(table, name, file) for name in COLUMNS), strict=True)
    for play, role, text in rows:
        # Some editions write the play before the role as well.
        speeches.setdefault((play, role.removeprefix(f"{play}/")), []).append(text)
    return {f"{play}/{role}": "\n".join(texts) for (play, role), texts in sorted(speeches.items())}


def _assign_groups(parts: list[TextWindows]) -> Ints:
    return np.repeat(np.arange(len(parts)), [len(part.y) for part in parts])
