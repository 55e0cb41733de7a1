"""NumPy ``.npz`` files, read without pickles."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError, UnknownName
from thalweg.core.size_limits import FOLDER, check_memory, check_ratio

Array = npt.NDArray[Any]
HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
READ_ERRORS = (
    OSError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,  # an unknown method of compression
    UnicodeDecodeError,  # a damaged name
)


def read_npz(file: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Array]:
    """The arrays of a file by name, verified by the checksums of the archive; no pickles.

    The sizes in the directory of the archive are checked before anything is decompressed.
    """
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
            declared = sum(archive.getinfo(name).file_size for name in members.values())
            check_ratio(declared, file)
            check_memory(declared, str(file), FOLDER)
            return {
                name: _read_array(archive, archive.getinfo(member), name, file)
                for name, member in members.items()
            }
    except READ_ERRORS as error:
        raise DataError(
            f"{file} is not a readable .npz file ({error or type(error).__name__}). "
            "Nothing was loaded; write it again with numpy.savez."
        ) from error
    except RuntimeError as error:  # raised by zipfile if a password is needed
        raise DataError(f"{file} cannot be read: {error}.") from error


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, file: Path) -> Array:
    """Read an array whose header agrees with the size in the directory of the archive."""
    try:
        with archive.open(info) as stream:
            version = np.lib.format.read_magic(stream)
            read_header = HEADER_READERS.get(version)
            if read_header is None:
                raise ValueError(f"version {version} of the format is not supported")
            shape, _, dtype = read_header(stream)
            expected = stream.tell() + math.prod(shape) * dtype.itemsize
            if not dtype.hasobject and expected != info.file_size:
                raise ValueError(
                    f"its header declares {expected} bytes, but it has {info.file_size}"
                )
        with archive.open(info) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)
    except (ValueError, EOFError, MemoryError, OverflowError) as error:
        raise DataError(
            f"{file}: {name} is not an array of numbers or text ({error or 'it is too large'})."
        ) from error
