"""Fixtures that isolate the tests from the user's files, cache and network."""

from __future__ import annotations

import gzip
import http.server
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from thalweg.data import search


@pytest.fixture(autouse=True)
def isolate_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv(search.DATA_VARIABLE, raising=False)
    monkeypatch.setenv(search.OFFLINE_VARIABLE, "1")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(search, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(search, "home_folder", lambda: tmp_path / "home")


def idx_bytes(array: npt.NDArray[np.uint8]) -> bytes:
    """A uint8 array as an IDX file."""
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return struct.pack(">HBB", 0, 8, array.ndim) + sizes + array.tobytes()


@pytest.fixture
def write_images() -> Callable[..., dict[str, npt.NDArray[np.uint8]]]:
    """Write the four IDX files of a small image set; returns what is in them, by stem."""

    def write(
        folder: Path, *, mark: str = "-", end: str = ".gz", num_train: int = 12, num_test: int = 5
    ) -> dict[str, npt.NDArray[np.uint8]]:
        rng = np.random.default_rng(0)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {}
        for part, n in (("train", num_train), ("t10k", num_test)):
            arrays[f"{part}-images"] = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
            arrays[f"{part}-labels"] = rng.integers(0, 10, n, dtype=np.uint8)
        for stem, array in arrays.items():
            content = idx_bytes(array)
            content = gzip.compress(content, mtime=0) if end == ".gz" else content
            (folder / f"{stem}{mark}idx{array.ndim}-ubyte{end}").write_bytes(content)
        return arrays

    return write


class FileServer:
    """A local HTTP server for files; individual files can be truncated."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.truncated: dict[str, int] = {}  # announce the full length, send only this many bytes
        self.requests: list[str] = []
        file_server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.rpartition("/")[2]
                file_server.requests.append(name)
                if name not in file_server.files:
                    self.send_error(404)
                    return
                content = file_server.files[name]
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: file_server.truncated.get(name, len(content))])

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def file_server() -> Iterator[FileServer]:
    file_server = FileServer()
    yield file_server
    file_server.close()


@pytest.fixture
def closed_address() -> str:
    """Return an address without a listening server."""
    file_server = FileServer()
    file_server.close()
    return file_server.address
