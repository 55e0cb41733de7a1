"""Damaged and forged input: an error of the library, or a valid value; never a traceback.

Each target is given changed copies of valid input. `make test` tries a few hundred per target,
`make test-slow` more than 100,000 in all. No input may use more than a second of CPU time, and no
target may need more than `MAX_MB` of memory.
"""

from __future__ import annotations

import io
import json
import resource
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from contracts.faults import FaultySystem, using
from contracts.mutations import Mutator
from engine.recipe_runs import active_auto_plan
from engine.replayed import ReplayedRun
from network import test_handshake, test_wire
from network.flower.runs import tiny_plan
from thalweg.core.errors import Diverged, ThalwegError
from thalweg.core.files import seal
from thalweg.core.metric_rows import parse_row
from thalweg.core.metrics import make_final_row
from thalweg.data import Dataset
from thalweg.data.arrays import Arrays
from thalweg.data.idx import read_idx
from thalweg.data.table import Table
from thalweg.engine.plan import make_plan, plan_from_toml, plan_to_toml
from thalweg.engine.run_folder import RunFolder, RunWarning
from thalweg.engine.task import make_net
from thalweg.federation import Hello, SurveyRequest, SurveyResponse, TrainRequest, TrainResponse
from thalweg.nets.parameter_file import load_parameters
from thalweg.network.edge.daemon import Daemon
from thalweg.network.edge.device_client import DeviceOptions
from thalweg.network.edge.schema import (
    DataSchema,
    describe_dataset,
    schema_from_json,
    schema_to_json,
)
from thalweg.network.edge.socket import Frame
from thalweg.network.edge.store import Membership, Store
from thalweg.network.flower.registry import ClientRegistry
from thalweg.network.handshake import handshake_from_bytes, handshake_to_bytes
from thalweg.network.wire import from_bytes, read_response, to_bytes
from thalweg.report.cells import Cell
from thalweg.report.explain import explain_rows
from thalweg.report.html_page import decisions_section, timeline_section

MAX_SECONDS = 1.0
MAX_MB = 500
Target = Callable[[bytes], None]


# --- targets: valid examples, and a function that reads changed ones ---


@contextmanager
def messages(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    kinds = (Hello, TrainRequest, TrainResponse, SurveyRequest, SurveyResponse)

    def read(payload: bytes) -> None:
        for kind in kinds:
            with suppress(ThalwegError):
                to_bytes(from_bytes(payload, test_wire.SCHEMA, kind), test_wire.SCHEMA)

    yield [to_bytes(message, test_wire.SCHEMA) for message in test_wire.MESSAGES], read


@contextmanager
def responses(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    """Responses of a client in a run of auto, and what the server does with them in a round."""
    run = record_auto()
    examples = {repr(key).encode(): (key, sent) for key, (_, sent) in run.exchanges.items()}

    def read(payload: bytes) -> None:
        name, _, response = payload.partition(b"\0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                server = run.repeat(examples[name][0], response)
            except Diverged:  # no other client of the cohort has responded
                return
        assert np.isfinite(server.bank).all()
        assert np.abs(server.bank).max() < 1e3

    yield [name + b"\0" + sent for name, (_, sent) in examples.items()], read


@contextmanager
def requests(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    """Requests of a server to a device that runs auto."""
    run = record_auto()
    node = run.nodes[0]
    state = node.serialise_state(node.new_client())

    def read(payload: bytes) -> None:
        with suppress(ThalwegError):
            after, response = node.handle(node.restore_state(state), payload)
            read_response(response, node.schema)
            node.restore_state(node.serialise_state(after))

    yield [sent for (_, client, *_), (sent, _) in run.exchanges.items() if client == 0], read


@cache
def record_auto() -> ReplayedRun:
    """Return ten rounds of auto with surveys, several models, sessions and reports."""
    overrides = ("weights=label-balanced", "selection.participation=0.8")
    return ReplayedRun(active_auto_plan(*overrides), rounds=10)


@contextmanager
def handshakes(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    kinds = {type(message) for message in test_handshake.MESSAGES}

    def read(payload: bytes) -> None:
        for kind in kinds:
            with suppress(ThalwegError):
                handshake_to_bytes(handshake_from_bytes(payload, kind))

    yield [handshake_to_bytes(message) for message in test_handshake.MESSAGES], read


@contextmanager
def devices(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    """Frames of a server to a device that has not joined yet."""
    frames = [
        ("identity", test_handshake.MESSAGES[0]),
        ("invitation", test_handshake.INVITATION),
        ("rejection", test_handshake.MESSAGES[-1]),
    ]
    store = Store.open(folder / "device")
    daemon = Daemon(store, DeviceOptions(data="replay"), None, lambda event: None)
    names = {handshake_to_bytes(message)[:24]: kind for kind, message in frames}

    def read(payload: bytes) -> None:
        answer = daemon.handle(Frame(names.get(payload[:24], "request"), payload))
        assert "Traceback" not in (answer.reason or "")
        daemon.rejection_reason = None

    try:
        yield [handshake_to_bytes(message) for _, message in frames], read
    finally:
        daemon.close()
        store.close()


@contextmanager
def plans(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    chosen = [
        make_plan(recipe, scenario)
        for recipe, scenario in (
            ("fedavg", "digits-partial"),
            ("sfedpo", "digits-full"),
            ("feddrift", "digits-partial"),
        )
    ]

    def read(payload: bytes) -> None:
        with suppress(ThalwegError):
            plan_to_toml(plan_from_toml(payload.decode(errors="replace"), "plan.toml"))

    yield [plan_to_toml(plan).encode() for plan in chosen], read


@contextmanager
def overrides(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    texts = ["rounds=50", "memory=dds", "memory.budget=0.3", "local.lr=0.1", "world.ticks=3"]
    texts += ["local.optimizer=adam", "weights=equal", "selection=uniform", "selection.size=4"]

    def read(payload: bytes) -> None:
        with suppress(ThalwegError):
            make_plan("sfedpo", "digits-partial", overrides=[payload.decode(errors="replace")])

    yield [text.encode() for text in texts], read


@contextmanager
def archives(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    file, content = folder / "a.npz", io.BytesIO()
    np.savez_compressed(content, x=np.arange(40.0).reshape(20, 2), y=np.arange(20) % 2)

    def read(payload: bytes) -> None:
        file.write_bytes(payload)
        with suppress(ThalwegError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Arrays(str(file)).load(None, 0)

    yield [content.getvalue()], read


@contextmanager
def tables(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    file = folder / "a.csv"
    lines = ["time,who,town,size,kind"]
    lines += [f"2024-01-{i + 1:02d},{'ab'[i % 2]},Ulm,{i}.5,{'yn'[i % 2]}" for i in range(20)]

    def read(payload: bytes) -> None:
        file.write_bytes(payload)
        with suppress(ThalwegError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Table(str(file), label="kind", client="who", time="time").load(None, 0)

    yield ["\n".join(lines).encode()], read


@contextmanager
def images(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    file = folder / "a-ubyte"
    header = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (5, 4, 4))

    def read(payload: bytes) -> None:
        file.write_bytes(payload)
        with suppress(ThalwegError):
            read_idx(file, 3)

    yield [header + bytes(80)], read


@contextmanager
def weights(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    plan = make_plan("fedavg", "digits-partial")
    net = make_net(plan.scenario, load_digits())
    tensors = net.saved_tensors(np.zeros(net.num_params, dtype=np.float32))
    file = folder / "model.safetensors"

    def read(payload: bytes) -> None:
        file.write_bytes(payload)
        with suppress(ThalwegError):
            load_parameters(file, net)

    yield [save({name: np.ascontiguousarray(each) for name, each in tensors.items()})], read


@cache
def load_digits() -> Dataset:
    return make_plan("fedavg", "digits-partial").scenario.data.load(None, 0)


@contextmanager
def checkpoints(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    """All files of a run folder, changed one at a time."""
    plan, whole = tiny_plan("fedavg", "digits-partial", 3), folder / "whole"
    run = RunFolder(whole)
    with using(FaultySystem()):
        run.open(plan, command="thalweg run ...", resume=False)
        for rnd in (1, 2):
            run.commit(rnd, [{"round": rnd}], {"rnd": rnd}, {0: [rnd]}, {0})
        run.close()
    names = [str(file.relative_to(whole)) for file in sorted(whole.rglob("*")) if file.is_file()]
    names.remove(".lock")
    states = {rnd: ({"rnd": rnd}, {0: [rnd]}) for rnd in (1, 2)}

    def read(payload: bytes) -> None:
        name, _, content = payload.partition(b"\0")
        path = folder / "run"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(whole, path)
        (path / name.decode()).write_bytes(content)
        changed = RunFolder(path)
        with suppress(ThalwegError), warnings.catch_warnings(), using(FaultySystem()):
            warnings.simplefilter("ignore", RunWarning)
            if changed.open(plan, command="", resume=True):
                found = changed.load()
                assert found == states[found[0]["rnd"]], "no silent change"
        changed.close()

    yield [f"{name}\0".encode() + (whole / name).read_bytes() for name in names], read


@contextmanager
def stores(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    """The database of a device: its content is unchanged, or an error is reported."""
    path = folder / "store"
    store = Store.open(path)
    identity, member = store.identity, Membership("a" * 32, 3, "seed = 7")
    store.join(member)
    store.commit(b"state" * 20, "request", b"response" * 20, rnd=4)
    store.close()

    def read(payload: bytes) -> None:
        for name in ("state.db-wal", "state.db-shm"):
            (path / name).unlink(missing_ok=True)
        (path / "state.db").write_bytes(payload)
        with suppress(ThalwegError), closing(Store.open(path)) as found:
            assert payload == b"" or found.identity in (identity, ""), found.identity
            assert found.read_membership() in (member, None)
            assert found.state() in (b"state" * 20, None)
            assert found.find_response("request") in (b"response" * 20, None)

    yield [(path / "state.db").read_bytes()], read


@contextmanager
def schemas(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    """The form of the data, in an invitation."""
    images = schema_to_json(describe_dataset(load_digits()))
    table = schema_to_json(DataSchema((3,), "float32", 0, columns=("a", "b", "c")))

    def read(payload: bytes) -> None:
        with suppress(ThalwegError):
            schema_to_json(schema_from_json(payload.decode(errors="replace")))

    yield [images.encode(), table.encode()], read


@contextmanager
def registries(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    file = folder / "clients.json"
    entries = {"a" * 32: {"number": 1, "node": 2}, "b" * 32: {"number": 0, "node": 3}}

    def read(payload: bytes) -> None:
        file.write_bytes(payload)
        with suppress(ThalwegError):
            found = ClientRegistry(folder, 3).entries
            numbers = {name: each.number for name, each in found.items()}
            assert numbers == {name: each["number"] for name, each in entries.items()}

    yield [seal({"run": "c" * 32, "clients": entries})], read


@contextmanager
def metrics(folder: Path) -> Iterator[tuple[list[bytes], Target]]:
    """Rows of metrics, as reports show them."""
    decision = {"what": "open-model", "reason": "labels contradict", "model": 1}
    rows = [
        {"round": 1, "seconds": 0.5, "prequential_accuracy": 0.5, "tested": 4, "session": 0},
        {"round": 2, "alarms": [0], "drifts": {"real": [0]}, "models": 2, "decisions": [decision]},
        {"round": 3, "serving_weights": {"latest": 0.25, "trained": 0.75}, "accuracy": 0.5},
    ]

    def read(payload: bytes) -> None:
        with suppress(ThalwegError, ValueError):
            changed = [parse_row(line) for line in payload.splitlines()]
            cell = Cell("auto", "digits-full", 0, "done", "", changed, "thalweg run", 1.0)
            assert all(line.isprintable() for line in explain_rows(changed))
            make_final_row(changed)
            assert "<script" not in decisions_section([cell]) + timeline_section([cell])

    yield (
        [json.dumps(row).encode() for row in rows]
        + [b"".join(json.dumps(row).encode() + b"\n" for row in rows)],
        read,
    )


TARGETS = {
    messages: 40_000,
    handshakes: 15_000,
    devices: 5_000,
    plans: 6_000,
    overrides: 12_000,
    archives: 5_000,
    tables: 3_000,
    images: 6_000,
    weights: 3_000,
    checkpoints: 4_000,
    registries: 3_000,
    schemas: 5_000,
    stores: 3_000,
    responses: 4_000,
    requests: 4_000,
    metrics: 5_000,
}
NAMED = (checkpoints, responses)  # examples begin with a name that is not changed


def fuzz(target: Callable[[Path], object], folder: Path, number: int, seed: int) -> None:
    mutator = Mutator(seed)
    with target(folder) as (examples, read):  # type: ignore[attr-defined]
        for example in examples:
            read(example)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(number):
            example = mutator.rng.choice(examples)
            payload = mutate_content(mutator, target, example, examples)
            began = time.process_time()
            try:
                read(payload)
            except Exception as error:
                raise AssertionError(
                    f"{type(error).__name__}: {error}: {payload[:300]!r}"
                ) from error
            seconds = time.process_time() - began
            assert seconds < MAX_SECONDS, f"{seconds:.2f} s of CPU time: {payload[:300]!r}"
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        assert grown < MAX_MB, f"{grown:.0f} MB"


def mutate_content(
    mutator: Mutator, target: object, example: bytes, examples: list[bytes]
) -> bytes:
    """Change an example, but not its name."""
    if target not in NAMED:
        return mutator.mutate(example, examples)
    name, _, content = example.partition(b"\0")
    return name + b"\0" + mutator.mutate(content, [each.partition(b"\0")[2] for each in examples])


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_changed_input_is_rejected_or_valid(
    target: Callable[[Path], object], tmp_path: Path
) -> None:
    fuzz(target, tmp_path, 20 if target is responses else 100, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.__name__)
def test_much_changed_input_is_rejected_or_valid(
    target: Callable[[Path], object], tmp_path: Path
) -> None:
    fuzz(target, tmp_path, TARGETS[target], seed=1)


def test_there_are_enough_inputs() -> None:
    assert sum(TARGETS.values()) > 100_000
