"""Download of one file: complete and verified, or not at all."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from thalweg.core.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

CHUNK_BYTES = 1 << 16
TIMEOUT_S = 30.0  # without receiving any byte


@dataclass(frozen=True)
class RemoteFile:
    """A published file with its size and checksum."""

    name: str
    num_bytes: int
    sha256: str


def fetch(
    remote: RemoteFile, mirrors: Sequence[str], folder: Path, console: Console | None = None
) -> Path:
    """Download a file into a folder from the first mirror that has it.

    The file is written under a temporary name and renamed after length and SHA-256 have been
    verified, so that readers see a complete file, also when several processes download it. Raises
    `DataError` with the reason of every mirror.
    """
    if console is None:
        from rich.console import Console

        console = Console(stderr=True)
    failures = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{remote.name}"
        try:
            return _fetch_from(url, remote, folder, console)
        except DataError as error:
            failures.append(str(error))
    raise DataError("; ".join(failures) or f"{remote.name}: no address to download it from")


def _fetch_from(url: str, remote: RemoteFile, folder: Path, console: Console) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=folder, prefix=f".{remote.name}.", suffix=".part")
    except OSError as error:
        raise DataError(f"cannot write to {folder} ({error.strerror or error})") from error
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in _show_progress(
                _verify_chunks(_download_chunks(url), remote, url), remote, url, console
            ):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, folder / remote.name)
    except OSError as error:
        raise DataError(f"cannot write to {folder} ({error.strerror or error})") from error
    finally:
        Path(part).unlink(missing_ok=True)  # already renamed on success
    return folder / remote.name


def _download_chunks(url: str) -> Iterator[bytes]:
    """The bytes of a URL in chunks."""
    import http.client
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            while chunk := response.read(CHUNK_BYTES):
                yield chunk
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"{url} answered {error.code} ({error.reason})") from error
    except urllib.error.URLError as error:
        raise DataError(f"{url} cannot be reached ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        raise DataError(
            f"the connection to {url} broke off ({error or type(error).__name__})"
        ) from error


def _verify_chunks(chunks: Iterator[bytes], remote: RemoteFile, url: str) -> Iterator[bytes]:
    """The same chunks; raises an error at the end, or as soon as there are too many bytes."""
    digest, received = hashlib.sha256(), 0
    for chunk in chunks:
        received += len(chunk)
        if received > remote.num_bytes:
            raise DataError(f"{url} sent more than the expected {remote.num_bytes} bytes")
        digest.update(chunk)
        yield chunk
    if received < remote.num_bytes:
        raise DataError(f"{url} sent {received} of {remote.num_bytes} bytes")
    if digest.hexdigest() != remote.sha256:
        raise DataError(
            f"{url} sent a different file: expected SHA-256 {remote.sha256}, got "
            f"{digest.hexdigest()}"
        )


def _show_progress(
    chunks: Iterator[bytes], remote: RemoteFile, url: str, console: Console
) -> Iterator[bytes]:
    """The same chunks, with a progress bar on a terminal and one plain line elsewhere."""
    if not console.is_terminal:
        size = f"{remote.num_bytes / 1e6:.1f} MB"
        console.print(f"downloading {url} ({size})", soft_wrap=True, highlight=False)
        yield from chunks
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(remote.name, total=remote.num_bytes)
        for chunk in chunks:
            yield chunk
            progress.advance(task, len(chunk))
