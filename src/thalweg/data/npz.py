"""NumPy ``.npz`` files, read without pickles."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError, UnknownName

Array = npt.NDArray[Any]
READ_ERRORS = (
    OSError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,  # an unknown method of compression
    UnicodeDecodeError,  # a damaged name
)


def read_npz(file: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Array]:
    """The arrays of a file by name, verified by the checksums of the archive; no pickles."""
    known = (*required, *optional)
    try:
        with zipfile.ZipFile(file) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            for name in members:
                if name not in known:
                    raise UnknownName(f"array in {file.name}:", name, known)
            if missing := [name for name in required if name not in members]:
                raise DataError(
                    f"{file}: expected {' and '.join(required)}, "
                    f"but {' and '.join(missing)} is missing."
                )
            return {name: _array(archive.read(members[name]), name, file) for name in members}
    except READ_ERRORS as error:
        raise DataError(
            f"{file} is not a readable .npz file ({error or type(error).__name__}). "
            "Nothing was loaded; write it again with numpy.savez."
        ) from error
    except RuntimeError as error:  # raised by zipfile if a password is needed
        raise DataError(f"{file} cannot be read: {error}.") from error


def _array(content: bytes, name: str, file: Path) -> Array:
    try:
        return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, MemoryError, OverflowError) as error:
        raise DataError(
            f"{file}: {name} is not an array of numbers or text ({error or 'it is too large'})."
        ) from error
