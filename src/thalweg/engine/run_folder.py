"""The folder of a run: plan, metrics, checkpoints, environment, and the command that repeats it.

A process may be killed at any moment. Each round writes, in this order: one line in
``metrics.jsonl``, one line in ``rejections.jsonl`` for every message that was rejected, a file with
the states of the clients that changed, and the server's state, which replaces the previous one by
renaming. The server's file defines the last round: files and lines of later rounds are removed when
the run is resumed. Large arrays of the server that no longer change are written once, to files of
their own (`engine/blobs.py`).
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from thalweg import __version__
from thalweg.core.errors import RunError
from thalweg.core.trees import Tree, read_tree, write_tree
from thalweg.core.types import Rejection
from thalweg.engine.blobs import Blobs
from thalweg.engine.plan import AnyPlan, any_plan_from_toml, plan_differences, plan_to_toml

if TYPE_CHECKING:
    from collections.abc import Iterator

REJECTIONS = "rejections.jsonl"
SNAPSHOT_EVERY = 50  # rounds between files with the states of all clients

try:
    import fcntl
except ImportError:  # without file locks, two runs in one folder are not detected
    fcntl = None  # type: ignore[assignment]


class RunFolder:
    """One run on disk. Use it from one process at a time, except for methods that only read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._blobs = Blobs(path / "checkpoint" / "blobs")
        self._lock: IO[str] | None = None

    def open(self, plan: AnyPlan, *, command: str, resume: bool) -> bool:
        """Lock the folder for a plan, and create it if needed.

        Return whether it has a checkpoint.
        """
        try:
            with _wrap_os_errors(self.path):
                (self.path / "checkpoint").mkdir(parents=True, exist_ok=True)
                self._acquire_lock()
                if (self.path / "plan.toml").exists():
                    self._check_same_plan(plan, resume)
                else:
                    self._create(plan, command)
        except BaseException:
            self.close()
            raise
        return (self.path / "checkpoint" / "server.safetensors").exists()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def append_metrics(self, row: Mapping[str, Any]) -> None:
        with _wrap_os_errors(self.path), (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")

    def append_rejections(self, rnd: int, rejections: Iterable[Rejection]) -> None:
        """Write the rejected messages of a round; without any, write nothing."""
        lines = [
            json.dumps({"round": rnd, **rejection._asdict()}) + "\n" for rejection in rejections
        ]
        if lines:
            with _wrap_os_errors(self.path), (self.path / REJECTIONS).open("a") as file:
                file.writelines(lines)

    def rejections(self) -> list[dict[str, Any]]:
        """Return all rejected messages as rows of round, client and reason."""
        return self._read_lines(REJECTIONS)

    def save(self, rnd: int, server: Tree, clients: Mapping[int, Tree], changed: set[int]) -> None:
        """Write a checkpoint after `rnd` rounds.

        Client files hold the clients that changed since the last one; every `SNAPSHOT_EVERY` rounds
        a file holds all clients, and the older files are removed.
        """
        folder = self.path / "checkpoint"
        has_all = rnd % SNAPSHOT_EVERY == 0
        chosen = clients.keys() if has_all else changed
        kind = "all" if has_all else "some"
        write_tree(
            folder / f"clients-{rnd:08d}-{kind}.safetensors",
            {str(client): clients[client] for client in sorted(chosen)},
        )
        self._blobs.write(folder / "server.safetensors", server)
        if has_all:
            for old in folder.glob("clients-*.safetensors"):
                if _round_of(old) < rnd:
                    old.unlink()

    def load(self) -> tuple[Tree, dict[int, Tree]]:
        """Read the last checkpoint, and remove files and lines of later rounds."""
        server, clients = self.read_checkpoint()
        rnd = int(server["rnd"])
        for file in (self.path / "checkpoint").glob("clients-*.safetensors"):
            if _round_of(file) > rnd:
                file.unlink()
        self._blobs.remove_unused()
        self._truncate_metrics(rnd)
        return server, clients

    def read_checkpoint(self) -> tuple[Tree, dict[int, Tree]]:
        """Return the server state and the client states, without changes to the folder.

        Works while another process runs in the folder.
        """
        folder = self.path / "checkpoint"
        server = self._blobs.read(folder / "server.safetensors")
        rnd = int(server["rnd"])
        clients: dict[int, Tree] = {}
        for file in sorted(folder.glob("clients-*.safetensors")):
            if _round_of(file) <= rnd:
                clients |= {int(client): tree for client, tree in read_tree(file).items()}
        return server, clients

    def metrics(self) -> list[dict[str, Any]]:
        """Return the rows of the metrics file up to the first incomplete line."""
        return self._read_lines("metrics.jsonl")

    def _read_lines(self, name: str) -> list[dict[str, Any]]:
        file = self.path / name
        rows = []
        for line in file.read_text().splitlines() if file.exists() else ():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows

    def delete_metrics(self) -> None:
        """Delete metrics and rejections, for runs without checkpoints that start again."""
        with _wrap_os_errors(self.path):
            (self.path / "metrics.jsonl").unlink(missing_ok=True)
            (self.path / REJECTIONS).unlink(missing_ok=True)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        self.write_json("summary.json", summary)

    def write_json(self, name: str, plain: Mapping[str, Any]) -> None:
        """Write a file of plain values; a reader sees the whole file or none."""
        with _wrap_os_errors(self.path):
            _write_text(self.path / name, json.dumps(plain, indent=2) + "\n")

    def summary(self) -> dict[str, Any]:
        """Return the summary of a finished run.

        Empty if it has not finished or the file is damaged.
        """
        try:
            summary = json.loads((self.path / "summary.json").read_text())
        except (OSError, ValueError):
            return {}
        return summary if isinstance(summary, dict) else {}

    def is_finished(self, rounds: int) -> bool:
        """Return whether the run is complete: the summary is written last."""
        return self.summary().get("rounds") == rounds

    def failure(self) -> str | None:
        """Return the reason why the run failed; None if it did not fail."""
        file = self.path / "failure.txt"
        return file.read_text().strip() if file.exists() else None

    def write_failure(self, reason: str | None) -> None:
        """Store why the run failed; None removes the reason."""
        with _wrap_os_errors(self.path):
            if reason is None:
                (self.path / "failure.txt").unlink(missing_ok=True)
            else:
                self.path.mkdir(parents=True, exist_ok=True)
                _write_text(self.path / "failure.txt", reason + "\n")

    def _truncate_metrics(self, rounds: int) -> None:
        rows = self.metrics()[:rounds]
        if len(rows) < rounds:
            raise RunError(
                f"{self.path}: metrics.jsonl should have {rounds} complete lines, as many as the "
                f"checkpoint has rounds, but has {len(rows)}. Start a new run in another folder."
            )
        _write_text(self.path / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        if (self.path / REJECTIONS).exists():
            kept = [row for row in self.rejections() if row["round"] <= rounds]
            _write_text(self.path / REJECTIONS, "".join(json.dumps(row) + "\n" for row in kept))

    def _create(self, plan: AnyPlan, command: str) -> None:
        _write_text(self.path / "command.txt", command + "\n")
        _write_text(self.path / "environment.json", json.dumps(environment(), indent=2) + "\n")
        _write_text(self.path / "plan.toml", plan_to_toml(plan))

    def _check_same_plan(self, plan: AnyPlan, resume: bool) -> None:
        if not resume:
            raise RunError(
                f"{self.path} already contains a run; continue it with --resume, or choose another "
                "folder with --out."
            )
        file = self.path / "plan.toml"
        old = any_plan_from_toml(file.read_text(), str(file))
        if changes := plan_differences(old, plan):
            raise RunError(
                f"{self.path} contains a run with another configuration, so it cannot be resumed "
                "with this one (expected -> actual):\n  "
                + "\n  ".join(changes)
                + "\nRestore these settings, or choose another folder with --out."
            )

    def _acquire_lock(self) -> None:
        if fcntl is None:
            return  # type: ignore[unreachable]
        lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise RunError(f"another process is running in {self.path}.") from None
        self._lock = lock


def environment() -> dict[str, Any]:
    """Return the versions and the machine that a run uses."""
    return {
        "thalweg": __version__,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": dict(_package_versions()),
    }


@cache
def _package_versions() -> dict[str, str]:
    """Return the versions of installed packages; finding them takes tens of milliseconds."""
    import importlib.util
    from importlib import metadata

    packages = ["numpy", "scipy", "scikit-learn", "torch", "safetensors"]
    packages += ["river"] if importlib.util.find_spec("river") else []
    return {name: metadata.version(name) for name in packages}


def _round_of(file: Path) -> int:
    return int(file.name.split("-")[1])


def _write_text(path: Path, text: str) -> None:
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(text)
    os.replace(unfinished, path)


@contextmanager
def _wrap_os_errors(path: Path) -> Iterator[None]:
    """Convert errors such as a full disk or a read-only folder to `RunError`."""
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot write to the run folder {path}: {error.strerror}.") from error
