"""Check that a refactoring does not change results: fingerprints of small runs of many recipes.

    python tools/fingerprints.py --out before.json          before the change
    python tools/fingerprints.py --compare before.json      after it; exit code 1 if a run differs

Each case runs three times: with the reference engine, with the fast engine, and with all messages
as bytes (the `BytesFederation` of the tests). The fingerprint of a run contains a hash of the final
models, the cohorts (by bytes: the clients, else their number), and all metrics except times, such
as losses and bytes (engines only). Fingerprints depend on the processor and on the version of
PyTorch, so compare files of one machine only.

All cases take a few minutes on one core; ``--only NAME`` runs one case, or one run of it:

    python tools/fingerprints.py --only sfedpo --only feddaa/fast --out before.json
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import thalweg
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32
from thalweg.engine.builders import make_model_factory
from thalweg.engine.plan import make_plan
from thalweg.federation import new_server, run_server_round

ROOT = Path(__file__).resolve().parents[1]
SEED = 3
WAYS = ("reference", "fast", "bytes")
TIMES = ("seconds", "core_seconds")  # metrics that differ between equal runs

Fingerprint = dict[str, Any]  # field -> JSON value


class Case(NamedTuple):
    """A small run: a recipe, a scenario and overrides."""

    recipe: str
    scenario: str
    overrides: tuple[str, ...]


def _on_digits(recipe: str, *overrides: str) -> Case:
    sizes = ("capacity=24", "local.passes=1", "ticks=3", "rounds=5", "evaluate_every=1")
    world = ("world.num_clients=8", "world.availability=0.6")
    return Case(recipe, "digits-partial", (*sizes, *world, *overrides))


def _on_streams(recipe: str) -> Case:
    sizes = ("world.samples=110", "ticks=2", "rounds=5", "evaluate_every=1")
    return Case(recipe, "streams-synthetic", sizes)


SESSIONS = ("sessions=alternating", "sessions.length=2")
CASES: dict[str, Case] = {
    "sfedpo": _on_digits("sfedpo"),
    "fedavg+sessions": _on_digits("fedavg", *SESSIONS),
    "fedprox+faults": _on_digits("fedprox", "faults=unreliable"),
    "scaffold": _on_digits("scaffold"),
    "fedcurv+sessions": _on_digits("fedcurv", *SESSIONS),
    "fedewc": _on_digits("fedewc"),
    "flwf-2t": _on_digits("flwf-2t"),
    "fedomd": _on_digits("fedomd"),
    "moon+fedacg": _on_digits("fedacg+moon"),
    "ode": _on_digits("ode", "world.absent=collecting"),
    "is": _on_digits("is"),
    "drsr+flash": _on_digits("flash+drsr"),
    "fedavgm": _on_digits("fedavgm"),
    "fedadam": _on_digits("fedadam"),
    "fedbuff+faults": _on_digits("fedbuff", "faults=unreliable", "server.size=6"),
    "ifca": _on_digits("ifca", "bank.models=3"),
    "dpcs": _on_digits("dpcs", "selection.participation=0.6"),
    "balanced-cohort": _on_digits(
        "fedavg", "selection=balanced-cohort", "selection.participation=0.6"
    ),
    "powd": _on_digits("powd", "selection.participation=0.8"),
    "warmstart": Case(
        "warmstart", "churn-digits", ("rounds=14", "sessions.length=4", "evaluate_every=1")
    ),
    "feddrift": _on_digits("feddrift", "bank.drift_threshold=0.05", "bank.merge_threshold=0.02"),
    "fedrc": _on_digits("fedrc"),
    "feddaa": _on_digits("feddaa", "bank.every=2", "bank.missing=mask"),
    "feddaa+drift": Case("feddaa", "drift-digits", ("rounds=8", "bank.every=5")),
    "oracle+drift": Case("oracle", "drift-digits", ("rounds=8",)),
    "stream-ours": _on_streams("stream-ours"),
    "stream-uniform+dpcs": _on_streams("stream-uniform+dpcs"),
    "adaptive-fedavg": _on_digits("adaptive-fedavg"),
    "alarm": _on_digits(
        "fedavg", "alarm=page-hinkley", "alarm.action=shrink", "alarm.threshold=0.1"
    ),
    "robust": _on_digits("fedavg", "robust=median"),
    "privacy": _on_digits("fedavg", "privacy=gaussian"),
    "secure": _on_digits("fedavg", "secure_aggregation=masked"),
}


def hash_params(params: Floats32) -> str:
    """Return 16 hex digits of the SHA-256 of parameters.

    >>> hash_params(np.zeros(2, dtype=np.float32))
    'af5570f5a1810b7a'
    """
    data = np.ascontiguousarray(params, dtype=np.float32).tobytes()
    return hashlib.sha256(data).hexdigest()[:16]


def run_on_engine(case: Case, engine: str) -> Fingerprint:
    """Run a case on an engine and return its fingerprint."""
    result = thalweg.run(
        case.recipe,
        case.scenario,
        seed=SEED,
        engine=engine,
        overrides=list(case.overrides),
        workers=1,
    )
    rows = result.metrics
    return {
        "model": hash_params(result.model),
        "cohorts": [row["cohort"] for row in rows],
        "losses": [row.get("loss") for row in rows],
        "accuracy": rows[-1]["accuracy"],
        "bytes": [[row["bytes_up"], row["bytes_down"]] for row in rows],
        "rows": [{name: row[name] for name in row if name not in TIMES} for row in rows],
    }


def run_by_bytes(case: Case) -> Fingerprint:
    """Run a case with all messages as bytes, without faults, and return its fingerprint."""
    if str(ROOT / "tests") not in sys.path:
        sys.path.insert(0, str(ROOT / "tests"))
    transport = importlib.import_module("engine.bytes_federation")
    overrides = [each for each in case.overrides if not each.startswith("faults")]
    plan = make_plan(case.recipe, case.scenario, seed=SEED, engine="reference", overrides=overrides)
    data = transport.load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    federation = transport.BytesFederation(plan, data)
    initial = net.init(rng_for(plan.seed, Draw.NET))
    num_clients = federation.world.num_clients
    server = new_server(plan.recipe, initial, num_clients, net.param_slices, data.num_classes)
    make_model = make_model_factory(plan, net)
    cohorts: list[list[int]] = []
    for _ in range(plan.scenario.rounds):
        server, updates = run_server_round(server, federation, plan.recipe, plan.seed, make_model)
        cohorts.append([] if updates is None else updates.clients.tolist())
    bank = server.bank
    return {"model": hash_params(bank), "shape": list(bank.shape), "cohorts": cohorts}


def choose_runs(only: Iterable[str]) -> list[tuple[str, str]]:
    """Return the cases to run and how, for names of cases and of single runs.

    >>> choose_runs(["is", "sfedpo/fast"])
    [('sfedpo', 'fast'), ('is', 'reference'), ('is', 'fast'), ('is', 'bytes')]
    """
    runs = [(name, way) for name in CASES for way in WAYS]
    wanted = set(only)
    if unknown := wanted - {name for run in runs for name in (run[0], "/".join(run))}:
        raise SystemExit(
            f"--only: expected a case, with or without /reference, /fast or /bytes, got "
            f"{', '.join(sorted(unknown))}; the cases are {', '.join(CASES)}."
        )
    return [run for run in runs if not wanted or {run[0], "/".join(run)} & wanted]


def take_fingerprints(runs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Fingerprint]]:
    """Run cases; yield the name of each run and its fingerprint, or the error that it raised."""
    for name, way in runs:
        case = CASES[name]
        try:
            fingerprint = run_by_bytes(case) if way == "bytes" else run_on_engine(case, way)
        except Exception as error:  # a broken recipe must not hide differences of the others
            fingerprint = {"error": f"{type(error).__name__}: {error}"}
        yield f"{name}/{way}", json.loads(json.dumps(fingerprint))


def find_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the fields in which two fingerprints differ; metrics (`rows`) by name.

    >>> before = {"model": "a1", "rows": [{"loss": 2.0}, {"loss": 1.0}]}
    >>> after = {"model": "b2", "rows": [{"loss": 2.0}, {"loss": 1.5}]}
    >>> find_differences(before, after)
    ['model', 'rows[1].loss']
    """
    fields = [name for name in sorted(before.keys() | after.keys()) if name != "rows"]
    found = [name for name in fields if not _is_equal(before.get(name), after.get(name))]
    rows_before, rows_after = before.get("rows", []), after.get("rows", [])
    if len(rows_before) != len(rows_after):
        return [*found, "rows (number)"]
    for index, (old, new) in enumerate(zip(rows_before, rows_after, strict=True)):
        names = sorted(old.keys() | new.keys())
        found += [
            f"rows[{index}].{name}"
            for name in names
            if (name in old) != (name in new) or not _is_equal(old.get(name), new.get(name))
        ]
    return found


def _is_equal(old: Any, new: Any) -> bool:
    """Compare as text, because a loss may be nan."""
    return json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def describe(before: Mapping[str, Any] | None, after: Fingerprint) -> str:
    """Return what to print about a run: its error, its model, or its differences."""
    if before is None:
        return str(after.get("error", after.get("model")))
    differences = find_differences(before, after)
    if not differences:
        return "equal"
    more = f" and {len(differences) - 8} more" if len(differences) > 8 else ""
    return f"DIFFERENT: {', '.join(differences[:8])}{more} {after.get('error', '')}".rstrip()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the fingerprints as JSON")
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        help="compare with a file of --out; exit code 1 if a run differs or is missing",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="run this case (sfedpo) or this run (sfedpo/fast); may be repeated",
    )
    options = parser.parse_args(arguments)
    if options.out is None and options.compare is None:
        parser.error("expected --out FILE, --compare FILE or both")
    expected = None if options.compare is None else json.loads(options.compare.read_text())
    runs = choose_runs(options.only)
    fingerprints: dict[str, Fingerprint] = {}
    failed: list[str] = []
    for name, fingerprint in take_fingerprints(runs):
        fingerprints[name] = fingerprint
        before = None if expected is None else expected.get(name, {})
        text = describe(before, fingerprint)
        if "error" in fingerprint or (before is not None and text != "equal"):
            failed.append(name)
        print(f"{len(fingerprints):>3}/{len(runs)}  {name:<28} {text}", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(fingerprints, indent=1) + "\n")
    if failed:
        print(f"{len(failed)} of {len(runs)} runs differ or failed: {', '.join(failed)}")
    elif expected is not None:
        print(f"all {len(runs)} runs are equal")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
