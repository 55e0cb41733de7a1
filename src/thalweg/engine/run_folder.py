"""A run is a folder: plan, metrics, checkpoints, environment, and the command that repeats it.

Written so that a process may be killed at any moment. Per round, in this order: one line is appended
to ``metrics.jsonl``, and one to ``rejections.jsonl`` for every message that was not let in; the states of
the clients that changed go to a file of their own; the server's state replaces the previous one by
renaming. The server's file decides which round was the last: whatever is newer than that is dropped
when the run goes on. Large arrays of the server's that will not change any more are written once,
beside it (`engine/blobs.py`).
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from thalweg import __version__
from thalweg.core.errors import RunError
from thalweg.core.trees import Tree, read_tree, write_tree
from thalweg.core.types import Rejection
from thalweg.engine.any_plan import AnyPlan, any_plan_from_toml
from thalweg.engine.blobs import Blobs
from thalweg.engine.plan import plan_differences, plan_to_toml

if TYPE_CHECKING:
    from collections.abc import Iterator

REJECTIONS = "rejections.jsonl"
SNAPSHOT_EVERY = 50  # rounds after which the clients' files are folded into one

try:
    import fcntl
except ImportError:  # no such lock on this system; two runs in one folder are then not noticed
    fcntl = None  # type: ignore[assignment]


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._blobs = Blobs(path / "checkpoint" / "blobs")
        self._lock: IO[str] | None = None

    def open(self, plan: AnyPlan, *, command: str, resume: bool) -> bool:
        """Claim the folder for a plan. True if it already holds part of this very run."""
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
        """Who was not believed in a round, and why; most rounds have nobody."""
        lines = [
            json.dumps({"round": rnd, **rejection._asdict()}) + "\n" for rejection in rejections
        ]
        if lines:
            with _wrap_os_errors(self.path), (self.path / REJECTIONS).open("a") as file:
                file.writelines(lines)

    def rejections(self) -> list[dict[str, Any]]:
        """Everything that was not let in, as rows of round, client and reason."""
        return self._read_lines(REJECTIONS)

    def save(self, rnd: int, server: Tree, clients: Mapping[int, Tree], changed: set[int]) -> None:
        """Checkpoint after round `rnd`. Only the clients that changed are written, mostly."""
        folder = self.path / "checkpoint"
        everyone = rnd % SNAPSHOT_EVERY == 0
        chosen = clients.keys() if everyone else changed
        kind = "all" if everyone else "some"
        write_tree(
            folder / f"clients-{rnd:08d}-{kind}.safetensors",
            {str(client): clients[client] for client in sorted(chosen)},
        )
        self._blobs.write(folder / "server.safetensors", server)
        if everyone:
            for old in folder.glob("clients-*.safetensors"):
                if _round_of(old) < rnd:
                    old.unlink()

    def load(self) -> tuple[Tree, dict[int, Tree]]:
        """The newest server state, and every client's; later leftovers are removed."""
        server, clients = self.read_checkpoint()
        rnd = int(server["rnd"])
        for file in (self.path / "checkpoint").glob("clients-*.safetensors"):
            if _round_of(file) > rnd:
                file.unlink()
        self._blobs.remove_unused()
        self._truncate_metrics(rnd)
        return server, clients

    def read_checkpoint(self) -> tuple[Tree, dict[int, Tree]]:
        """The same without touching anything, also while the run goes on."""
        folder = self.path / "checkpoint"
        server = self._blobs.read(folder / "server.safetensors")
        rnd = int(server["rnd"])
        clients: dict[int, Tree] = {}
        for file in sorted(folder.glob("clients-*.safetensors")):
            if _round_of(file) <= rnd:
                clients |= {int(client): tree for client, tree in read_tree(file).items()}
        return server, clients

    def metrics(self) -> list[dict[str, Any]]:
        """All whole lines of the metrics file; a line that was being written is left out."""
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
        """Begin again, for runs without checkpoints."""
        with _wrap_os_errors(self.path):
            (self.path / "metrics.jsonl").unlink(missing_ok=True)
            (self.path / REJECTIONS).unlink(missing_ok=True)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        with _wrap_os_errors(self.path):
            _write_text(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")

    def summary(self) -> dict[str, Any]:
        """What a run that has ended says of itself; empty if it has not, or if the file is damaged."""
        try:
            summary = json.loads((self.path / "summary.json").read_text())
        except (OSError, ValueError):
            return {}
        return summary if isinstance(summary, dict) else {}

    def is_finished(self, rounds: int) -> bool:
        """Does the folder hold all of a run? A summary is written last, and whole."""
        return self.summary().get("rounds") == rounds

    def failure(self) -> str | None:
        """Why the run stopped the last time, if it failed."""
        file = self.path / "failure.txt"
        return file.read_text().strip() if file.exists() else None

    def write_failure(self, reason: str | None) -> None:
        """Keep the reason with the run; None: it is running again, or done."""
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
                f"{self.path}: metrics.jsonl has {len(rows)} whole lines but the checkpoint is of "
                f"round {rounds}. Was the file edited? Start again in another folder."
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
                f"{self.path} already holds a run; continue it with --resume, or choose another "
                "folder with --out."
            )
        file = self.path / "plan.toml"
        old = any_plan_from_toml(file.read_text(), str(file))
        if changes := plan_differences(old, plan):
            raise RunError(
                f"{self.path} holds a run with another configuration, so it cannot be resumed "
                "with this one:\n  " + "\n  ".join(changes)
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
    """What a run was made with."""
    import importlib.util
    from importlib import metadata

    packages = ["numpy", "scipy", "scikit-learn", "torch", "safetensors"]
    packages += ["river"] if importlib.util.find_spec("river") else []
    return {
        "thalweg": __version__,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": {name: metadata.version(name) for name in packages},
    }


def _round_of(file: Path) -> int:
    return int(file.name.split("-")[1])


def _write_text(path: Path, text: str) -> None:
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(text)
    os.replace(unfinished, path)


@contextmanager
def _wrap_os_errors(path: Path) -> Iterator[None]:
    """A full disk or a folder we may not write to is one message, not a traceback."""
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot write to the run folder {path}: {error.strerror}.") from error
