"""The folder of a run: plan, metrics, checkpoints, environment, and the command that repeats it.

A process may be killed and a machine may lose power at any moment. Each round writes one line in
``metrics.jsonl``, one line in ``rejections.jsonl`` for every message that was rejected, a file with
the states of the clients that changed, and the server's state. Then it writes the manifest, which
contains size and checksum of each of these files (`engine/manifest.py`). A round without a manifest
does not exist for readers: metrics and checkpoint of a round become visible together. The files of
the last two rounds are kept, so that a damaged file costs one round. Large arrays of the server
that no longer change are written once, to files of their own (`engine/blobs.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from thalweg import __version__
from thalweg.core.errors import ConfigError, RunError
from thalweg.core.files import (
    UNFINISHED,
    Digest,
    append_file,
    cut_file,
    digest_bytes,
    digest_file,
    lock_folder,
    make_folder,
    move_folder_aside,
    remove_file,
    sync_folder,
    write_file,
)
from thalweg.core.metric_rows import check_row, check_summary, parse_object, parse_row
from thalweg.core.remedies import format_setting
from thalweg.core.trees import Tree, read_tree, write_tree
from thalweg.core.types import Rejection
from thalweg.engine.blobs import Blobs
from thalweg.engine.code_files import check_code_files
from thalweg.engine.manifest import (
    CHECKPOINT,
    Checks,
    Manifest,
    UnknownFormat,
    describe_damage,
    list_rounds,
    manifest_path,
    read_manifest,
    write_manifest,
)
from thalweg.engine.plan import (
    AnyPlan,
    any_plan_from_dict,
    flatten_plan,
    parse_plan,
    plan_differences,
    plan_to_toml,
)
from thalweg.native.library import get_kernel_name

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAN = "plan.toml"
METRICS = "metrics.jsonl"
REJECTIONS = "rejections.jsonl"
LOGS = (METRICS, REJECTIONS)  # files that grow
RESULTS = (  # of a finished run
    "model.safetensors",
    "bank.safetensors",
    "preprocessing.json",
    "training_rows.safetensors",
    "summary.json",
)
ABOUT = ("command.txt", "environment.json")  # not needed to resume
SNAPSHOT_EVERY = 50  # rounds between files with the states of all clients
KEPT_ROUNDS = 2
ATTEMPTS = 20  # to read a checkpoint while another process writes it
CHECKPOINT_FILE = re.compile(
    r"(server-\d{8}|clients-\d{8}-(some|all))\.safetensors(\.part)?|manifest-\d{8}\.json(\.part)?"
)


class RunWarning(UserWarning):
    """A run is resumed although a file of it is damaged, or with other packages or devices."""


class RunFolder:
    """One run on disk. Use it from one process at a time, except for methods that only read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._blobs = Blobs(path / CHECKPOINT / "blobs")
        self._checks = Checks(path)
        self._lock: IO[str] | None = None
        self._kept: list[Manifest] = []  # of the last rounds, the oldest first
        self._logs: dict[str, _Log] = {}
        self._results: dict[str, Digest] = {}

    def open(self, plan: AnyPlan, *, command: str, resume: bool, device: str = "cpu") -> bool:
        """Lock the folder for a plan, and create it if needed.

        `device` is recorded; if the run was started on another one, a `RunWarning` says so.
        Return whether it has a checkpoint. Its files are verified. If some are damaged, a
        `RunWarning` names them, and the checkpoint is that of the newest intact round.
        """
        self._kept, self._checks = [], Checks(self.path)
        try:
            with _wrap_os_errors(self.path):
                make_folder(self.path / CHECKPOINT)
                self._acquire_lock()
                if (self.path / PLAN).exists() or list_rounds(self.path):
                    self._check_same_plan(plan, resume)
                    self._choose_round(device)
                else:
                    self._check_no_rounds({})
                    self._create(plan, command, device)
        except BaseException:
            self.close()
            raise
        return self._kept[-1].rnd > 0

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def commit(
        self,
        rnd: int,
        rows: Iterable[Mapping[str, Any]],
        server: Tree,
        clients: Mapping[int, Tree],
        changed: set[int],
        rejections: Iterable[Rejection] = (),
    ) -> None:
        """Write metrics, rejected messages and checkpoint of a round; visible together at the end.

        Client files hold the clients that changed since the last one; every `SNAPSHOT_EVERY` rounds
        a file holds all clients, and the older files are removed after the next round.
        """
        rows = list(rows)
        _check_rows(rows)
        rejected = ({"round": rnd, **rejection._asdict()} for rejection in rejections)
        with _wrap_os_errors(self.path):
            self._append(METRICS, rows)
            self._append(REJECTIONS, rejected)
            files = {name: self._kept[-1].files[name] for name in (PLAN, *ABOUT) if self._has(name)}
            files |= {name: log.digest for name, log in self._logs.items()}
            files |= self._write_clients(rnd, clients, changed)
            written = self._blobs.write(self._server_file(rnd), server)
            files |= {
                path.relative_to(self.path).as_posix(): each for path, each in written.items()
            }
            self._write_manifest(Manifest(rnd, files))
            self._remove_oldest()

    def load(self) -> tuple[Tree, dict[int, Tree]]:
        """Return the server state and the client states of the round that `open` has chosen."""
        return self._read_states(self._kept[-1])

    def read_checkpoint(self) -> tuple[Tree, dict[int, Tree]]:
        """Return the server state and the client states of the last round.

        Works while another process runs in the folder. The folder is not changed.
        """
        for _ in range(ATTEMPTS - 1):
            rounds = list_rounds(self.path)
            try:
                return self._read_last_states()
            except RunError:
                if list_rounds(self.path) == rounds:
                    raise
        return self._read_last_states()

    def metrics(self) -> list[dict[str, Any]]:
        """Return the rows of the metrics of all complete rounds."""
        return self._read_rows(METRICS, parse_row)

    def rejections(self) -> list[dict[str, Any]]:
        """Return all rejected messages as rows of round, client and reason."""
        return self._read_rows(REJECTIONS, parse_object)

    def clear(self) -> None:
        """Remove all rounds, for runs without checkpoints that start again."""
        with _wrap_os_errors(self.path):
            self._start_again()

    def write_result(self, name: str, payload: bytes) -> None:
        """Write a file of a finished run; `finish` makes it visible."""
        with _wrap_os_errors(self.path):
            self._results[name] = write_file(self.path / name, payload)

    def write_json(self, name: str, plain: Mapping[str, Any]) -> None:
        """Write a result of plain values."""
        self.write_result(name, (json.dumps(plain, indent=2) + "\n").encode())

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, and add all results to the manifest: the run is finished."""
        self.write_json("summary.json", summary)
        last = self._kept.pop()
        with _wrap_os_errors(self.path):
            sync_folder(self.path)
            self._write_manifest(Manifest(last.rnd, last.files, dict(self._results)))

    def summary(self) -> dict[str, Any]:
        """Return the summary of a finished run; empty if it has not finished or is damaged."""
        try:
            manifest = self._read_newest()
            if manifest is None or self._checks.find_damage(manifest.results):
                return {}
            summary = json.loads((self.path / "summary.json").read_bytes())
            check_summary(summary)
        except (OSError, ValueError, RunError, RecursionError):
            return {}
        return summary if isinstance(summary, dict) else {}

    def is_finished(self, rounds: int) -> bool:
        """Return whether the run is complete, and its results are intact."""
        return self.summary().get("rounds") == rounds

    def check_results(self) -> None:
        """Reject a finished run with damaged results."""
        manifest = self._read_newest()
        if manifest and (damage := self._checks.find_damage(manifest.results)):
            raise RunError(
                f"{self.path}: damaged: {describe_damage(damage)}. Restore these files, or write "
                f"them again from the checkpoint: thalweg run {self.path} --resume"
            )

    def failure(self) -> str | None:
        """Return the reason why the run failed; None if it did not fail."""
        file = self.path / "failure.txt"
        return file.read_text(errors="replace").strip() if file.exists() else None

    def write_failure(self, reason: str | None) -> None:
        """Store why the run failed; None removes the reason."""
        with _wrap_os_errors(self.path):
            if reason is None:
                remove_file(self.path / "failure.txt")
            else:
                make_folder(self.path)
                write_file(self.path / "failure.txt", (reason + "\n").encode())

    # --- create and resume ---

    def _create(self, plan: AnyPlan, command: str, device: str) -> None:
        recorded = {**environment(device), "files": compute_user_files(plan)}
        about = json.dumps(recorded, indent=2) + "\n"
        self._move_folders_aside(ABOUT)
        texts = {"command.txt": command + "\n", "environment.json": about}
        files = {name: write_file(self.path / name, text.encode()) for name, text in texts.items()}
        files[PLAN] = write_file(self.path / PLAN, plan_to_toml(plan).encode())
        sync_folder(self.path)
        self._start(files)

    def _start(self, files: Mapping[str, Digest]) -> None:
        """Begin before the first round, with these files only."""
        self._kept, self._logs, self._results = [], {}, {}
        self._write_manifest(Manifest(0, files))
        self._move_folders_aside((*LOGS, *RESULTS))
        self._remove_leftovers()
        self._cut_logs(self._kept[-1])

    def _start_again(self) -> None:
        names = [name for name in (PLAN, *ABOUT) if (self.path / name).is_file()]
        self._start({name: digest_file(self.path / name) for name in names})

    def _check_same_plan(self, plan: AnyPlan, resume: bool) -> None:
        if not resume:
            raise RunError(
                f"{self.path} already contains a run; continue it "
                f"({format_setting('resume', True)}), or choose another folder "
                f"({format_setting('out')})."
            )
        plain = parse_plan(read_text(self.path / PLAN), str(self.path / PLAN))
        check_code_files(plain, self.path)
        old = any_plan_from_dict(plain)
        if changes := plan_differences(old, plan):
            raise RunError(
                f"{self.path} contains a run with another configuration, so it cannot be resumed "
                "with this one (expected -> actual):\n  "
                + "\n  ".join(changes)
                + _explain_sizes(plan, changes)
                + "\nRestore these settings, or choose another folder "
                f"({format_setting('out')})."
            )
        self.check_user_files(plan)

    def check_user_files(self, plan: AnyPlan) -> None:
        """Raise an error if a file with a component of the plan has changed since its start."""
        now = compute_user_files(plan)
        for name, digest in self._read_environment("files").items():
            if now.get(name, digest) != digest:
                raise RunError(
                    f"{name} has changed since the run in {self.path} was started: expected the "
                    f"digest {digest}, got {now[name]}. Restore the file to continue the run, or "
                    "start a new run with the present file in another folder (--out)."
                )

    def _choose_round(self, device: str) -> None:
        """Resume after the newest intact round; report all damaged files."""
        damage: dict[str, str] = {}
        for rnd in list_rounds(self.path):
            try:
                manifest = read_manifest(self.path, rnd)
            except UnknownFormat:
                raise
            except RunError:
                damage[f"{CHECKPOINT}/{manifest_path(self.path, rnd).name}"] = "damaged"
                continue
            found = self._checks.find_damage(manifest.files, LOGS)
            damage |= found
            if PLAN in found:
                raise RunError(
                    f"{self.path / PLAN} was changed after the run had started, so the run cannot "
                    "be resumed. Restore it, or start a new run with it: "
                    f"thalweg run {self.path / PLAN} --out FOLDER"
                )
            if found.keys() <= set(ABOUT):
                files = {name: each for name, each in manifest.files.items() if name not in found}
                self._kept.insert(0, replace(manifest, files=files))
        if not self._kept:
            self._check_no_rounds(damage)
            self._start_again()
            return
        del self._kept[:-KEPT_ROUNDS]
        chosen = self._kept[-1]
        damage |= self._checks.find_damage(chosen.results)
        self._report(chosen, damage, device)
        self._move_folders_aside({*damage, *LOGS, *RESULTS})
        self._cut_logs(chosen)
        self._remove_leftovers()

    def _check_no_rounds(self, damage: Mapping[str, str]) -> None:
        """Raise an error if there was a round, which can no longer be restored."""
        if damage:
            lost = describe_damage(damage)
        elif left := self._find_traces():
            lost = f"{CHECKPOINT}/manifest-*.json (missing, but there is {left})"
        else:
            return
        raise RunError(
            f"{self.path}: no round can be restored. Damaged: {lost}. Restore these files, or "
            "start a new run in another folder with --out."
        )

    def _find_traces(self) -> str:
        """Return a file that only a round can have written, by its name; empty: there is none."""
        found = [self.path / name for name in RESULTS if (self.path / name).is_file()]
        found += [path for path in map(self.path.joinpath, LOGS) if _has_content(path)]
        patterns = ("server*", "clients-*", "manifest*", "blobs/*")
        for pattern in patterns:
            found += (self.path / CHECKPOINT).glob(pattern)
        # The first manifest may be unfinished.
        names = (each.relative_to(self.path).as_posix() for each in found)
        return next((name for name in names if not name.endswith(UNFINISHED)), "")

    def _report(self, chosen: Manifest, damage: Mapping[str, str], device: str) -> None:
        if damage:
            lines = "".join(f"\n  {name} ({reason})" for name, reason in damage.items())
            warnings.warn(
                f"{self.path}: the run continues after round {chosen.rnd}. Damaged:{lines}",
                RunWarning,
                stacklevel=2,
            )
        before = {"thalweg": chosen.version} | self._read_environment("packages")
        now = {"thalweg": __version__} | find_software(device)
        changes = [
            f"{name} {version} -> {now[name]}"
            for name, version in before.items()
            if now.get(name, version) != version
        ]
        if changes:
            warnings.warn(
                f"{self.path} was started with other versions ({', '.join(changes)}); the results "
                "may differ from those of an uninterrupted run.",
                RunWarning,
                stacklevel=2,
            )

    def _read_environment(self, part: str) -> dict[str, str]:
        """Return a part of environment.json: versions of packages, or digests of files."""
        try:
            found = json.loads((self.path / "environment.json").read_bytes())[part]
            return {str(name): str(version) for name, version in found.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}  # damage of this file was reported

    def _move_folders_aside(self, names: Iterable[str]) -> None:
        """Rename folders with the name of a file that the run writes now or at its end."""
        for name in names:
            move_folder_aside(self.path / name)

    def _cut_logs(self, chosen: Manifest) -> None:
        """Remove the lines of later rounds."""
        for name in LOGS:
            if (digest := chosen.files.get(name)) is None:
                remove_file(self.path / name)
            else:
                cut_file(self.path / name, digest.size)
                self._logs[name] = _Log().extend((self.path / name).read_bytes())

    def _remove_leftovers(self) -> None:
        """Remove files of rounds that no manifest contains any more."""
        used = {self.path / name for manifest in self._kept for name in manifest.files}
        used |= {manifest_path(self.path, manifest.rnd) for manifest in self._kept}
        folder = self.path / CHECKPOINT
        files = [each for each in folder.iterdir() if CHECKPOINT_FILE.fullmatch(each.name)]
        files += [each for each in (folder / "blobs").glob("*") if each.is_file()]
        # Manifests first: a kill in between must not leave one whose files are removed.
        for file in sorted(files, key=lambda each: not each.name.startswith("manifest")):
            if file not in used:
                move_folder_aside(file)
                remove_file(file)

    # --- write a round ---

    def _append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
        if lines:
            log = self._logs.get(name) or _Log()
            append_file(self.path / name, lines)
            if name not in self._logs:
                sync_folder(self.path)
            self._logs[name] = log.extend(lines)

    def _write_clients(
        self, rnd: int, clients: Mapping[int, Tree], changed: set[int]
    ) -> dict[str, Digest]:
        has_all = rnd % SNAPSHOT_EVERY == 0
        before = {
            name: digest
            for name, digest in self._kept[-1].files.items()
            if name.startswith(f"{CHECKPOINT}/clients-") and not has_all
        }
        chosen = sorted(clients.keys() if has_all else changed)
        if not chosen:
            return before
        name = f"{CHECKPOINT}/clients-{rnd:08d}-{'all' if has_all else 'some'}.safetensors"
        tree = {str(client): clients[client] for client in chosen}
        return before | {name: write_tree(self.path / name, tree)}

    def _write_manifest(self, manifest: Manifest) -> None:
        write_manifest(self.path, manifest)
        # One call for the names of all files of the round. If the power fails in between, the
        # manifest may survive without one of its files; the round before it is then intact.
        sync_folder(self.path / CHECKPOINT)
        self._kept.append(manifest)

    def _remove_oldest(self) -> None:
        while len(self._kept) > KEPT_ROUNDS:
            oldest = self._kept.pop(0)
            remove_file(manifest_path(self.path, oldest.rnd))
            used = {name for manifest in self._kept for name in manifest.files}
            for name in oldest.files.keys() - used:
                remove_file(self.path / name)

    def _has(self, name: str) -> bool:
        return name in self._kept[-1].files

    def _server_file(self, rnd: int) -> Path:
        return self.path / CHECKPOINT / f"server-{rnd:08d}.safetensors"

    # --- read ---

    def _read_newest(self) -> Manifest | None:
        """Return the newest manifest that is not damaged; None if there is none."""
        for rnd in list_rounds(self.path):
            with suppress(RunError):
                return read_manifest(self.path, rnd)
        return None

    def _read_last_states(self) -> tuple[Tree, dict[int, Tree]]:
        manifest = self._read_newest()
        if manifest is None or manifest.rnd == 0:
            raise RunError(f"{self.path} contains no checkpoint: no round of this run is finished.")
        if damage := self._checks.find_damage(manifest.files, LOGS):
            raise RunError(f"{self.path}: damaged: {describe_damage(damage)}.")
        return self._read_states(manifest)

    def _read_states(self, manifest: Manifest) -> tuple[Tree, dict[int, Tree]]:
        digests = {self.path / name: digest for name, digest in manifest.files.items()}
        server = self._blobs.read(self._server_file(manifest.rnd), digests)
        clients: dict[int, Tree] = {}
        for name in sorted(manifest.files):
            if name.startswith(f"{CHECKPOINT}/clients-"):
                tree = read_tree(self.path / name)
                clients |= {int(client): state for client, state in tree.items()}
        return server, clients

    def _read_rows(
        self, name: str, parse: Callable[[bytes], dict[str, Any]]
    ) -> list[dict[str, Any]]:
        manifest = self._read_newest()
        if manifest is None or name not in manifest.files:
            return []
        expected = manifest.files[name]
        try:
            with (self.path / name).open("rb") as file:
                payload = file.read(expected.size)
        except OSError as error:
            raise RunError(f"cannot read {self.path / name}: {error.strerror}.") from error
        if digest_bytes(payload) != expected:
            raise RunError(
                f"{self.path / name} is damaged: its content does not match the manifest. Restore "
                "it, or start a new run in another folder."
            )
        rows = []
        for number, line in enumerate(payload.splitlines(), start=1):
            try:
                rows.append(parse(line))
            except ValueError as error:
                raise RunError(
                    f"{self.path / name}, line {number}: {error}. The file was not written by "
                    "Thalweg, or was changed; start a new run in another folder."
                ) from None
        return rows

    def _acquire_lock(self) -> None:
        try:
            self._lock = lock_folder(self.path)
        except BlockingIOError:
            raise RunError(f"another process is running in {self.path}.") from None


def _check_rows(rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        try:
            check_row(row)
        except ValueError as error:
            raise ConfigError(
                f"metrics of round {row.get('round')}: {error}. Correct the extra metrics of the "
                "policy that returns them."
            ) from None


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


class _Log:
    """Size and checksum of a file that grows."""

    def __init__(self) -> None:
        self.size = 0
        self._sum = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> Digest:
        return Digest(self.size, self._sum.hexdigest())

    def extend(self, payload: bytes) -> _Log:
        """Return the log with more bytes."""
        longer = _Log()
        longer.size, longer._sum = self.size + len(payload), self._sum.copy()
        longer._sum.update(payload)
        return longer


def read_text(path: Path) -> str:
    """Return the text of a file of a run folder; raise RunError if it cannot be read."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is damaged: it is not UTF-8 ({error.reason}).") from error


def compute_user_files(plan: AnyPlan) -> dict[str, str]:
    """Return the digests of the files of a plan's components, losses, metrics and models.

    The running script has none: a run of it may be resumed after a change of the script.
    """
    script = getattr(sys.modules["__main__"], "__file__", None)
    running = None if script is None else Path(script).resolve()
    values = flatten_plan(plan).values()
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    matches = [re.match(r"(?:\w+=)?(.+\.py):", text) for text in texts if isinstance(text, str)]
    files = {match[1] for match in matches if match}  # file.py:NAME, or metric=file.py:NAME
    return {
        file: hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
        for file in sorted(files)
        if Path(file).is_file() and Path(file).resolve() != running
    }


def _explain_sizes(plan: AnyPlan, changes: Iterable[str]) -> str:
    """Return a hint if only numbers differ that follow from the rows of a file."""
    path = getattr(plan.scenario.data, "path", "")
    names = {change.partition(":")[0] for change in changes}
    if not path or not names <= {"scenario.rounds", "scenario.world.arrivals"}:
        return ""
    return f"\nUnless they were set, they follow from the rows of {path}: has the file changed?"


def environment(device: str = "cpu") -> dict[str, Any]:
    """Return the versions and the machine that a run uses."""
    return {
        "thalweg": __version__,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": find_software(device),
    }


def find_software(device: str) -> dict[str, str]:
    """Return what determines the bits of a run, besides its plan and this version."""
    return _package_versions() | {"kernel": get_kernel_name(), "device": device}


@cache
def _package_versions() -> dict[str, str]:
    """Return the versions of installed packages; finding them takes tens of milliseconds."""
    import importlib.util
    from importlib import metadata

    packages = ["numpy", "scipy", "scikit-learn", "torch", "safetensors"]
    packages += ["river"] if importlib.util.find_spec("river") else []
    return {name: metadata.version(name) for name in packages}


@contextmanager
def _wrap_os_errors(path: Path) -> Iterator[None]:
    """Convert errors such as a full disk or a read-only folder to `RunError`."""
    try:
        yield
    except OSError as error:
        name = error.filename2 or error.filename
        where = "" if name is None or Path(name) == path else f" ({name})"
        raise RunError(
            f"cannot write to the run folder {path}: {error.strerror}{where}."
        ) from error
