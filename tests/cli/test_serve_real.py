"""A server and its clients as real processes on loopback, over TLS, some of them killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from thalweg.engine.loop import run_plan
from thalweg.engine.plan import read_plan
from thalweg.network.flower.certs import make_certs
from thalweg.network.flower.node_keys import compute_key_digest
from thalweg.network.flower.registry import ClientRegistry

# A test run in the background inherits "ignore Ctrl-C"; a user's terminal does not.
RUN_WITH_SIGINT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from thalweg.cli.main import main
main()
"""
TINY = ["capacity=16", "local.passes=1", "ticks=2", "evaluate_every=1"]
ALWAYS_AVAILABLE = ["world.availability=1", "world.availability_spread=0"]
SETS = [word for each in (*TINY, *ALWAYS_AVAILABLE) for word in ("--set", each)]


@contextmanager
def command(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a new process and end it with all processes it has started."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN_WITH_SIGINT, *words], stdout=file, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(condition: Callable[[], bool], log: Path, seconds: float = 300) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.2)


def rounds_of(run: Path) -> int:
    file = run / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def pids_with(*words: str) -> list[int]:
    """Return processes whose command line has all of these words, without guards."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command_line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if all(word in command_line for word in words) and "guard.py" not in command_line:
            found.append(int(file.parent.name))
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def serve(run: Path, port: int, *more: str, clients: int = 2) -> list[str]:
    count = str(clients)
    words = ["serve", "fedavg", "--on", "digits-partial", "--clients", count, *SETS, "--seed", "3"]
    words += ["--min-clients", count, "--deadline", "120", "--share", "1"]  # wait for all clients
    words += ["--port", str(port), "--out", str(run)]
    return [*words, *more]


def join(tmp_path: Path, number: int, port: int) -> list[str]:
    words = ["join", f"127.0.0.1:{port}", "--data", "replay", "--client", str(number)]
    keys = str(tmp_path / "keys/nodes" / str(number))
    return [*words, "--state", str(tmp_path / f"client{number}"), "--certs", keys]


def check_equals_simulation(run: Path) -> None:
    expected = run_plan(read_plan(run))
    got = load_file(run / "model.safetensors")
    for name, value in expected.net.named_parameters(expected.model).items():
        np.testing.assert_allclose(got[name], value, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("clients", [1, 2])
def test_clients_with_keys_train_with_a_server_over_tls(clients: int, tmp_path: Path) -> None:
    make_certs(tmp_path / "keys", ["127.0.0.1"], clients)
    run, port, log = tmp_path / "run", free_port(), tmp_path / "serve.log"
    certs = ["--certs", str(tmp_path / "keys/server"), "--rounds", "2", "--json"]
    with ExitStack() as stack:
        first, *_ = [
            stack.enter_context(command(tmp_path / f"{number}.log", *join(tmp_path, number, port)))
            for number in range(clients)
        ]
        server = stack.enter_context(command(log, *serve(run, port, *certs, clients=clients)))
        wait_for(lambda: server.poll() is not None, log)
        assert server.returncode == 0, log.read_text()
        first.send_signal(signal.SIGINT)
        assert first.wait(60) == 0
    last = json.loads(log.read_text().splitlines()[-1])
    assert last["final"]["round"] == 2
    assert last["final"]["cohort"] == clients
    check_equals_simulation(run)
    keys = [compute_key_digest(file) for file in (tmp_path / "keys/server/nodes").glob("*.pub")]
    entries = ClientRegistry(run, clients).entries.values()
    assert sorted(entry.key for entry in entries) == sorted(keys), "identities belong to keys"
    assert "stopped; the state is kept in" in (tmp_path / "0.log").read_text()
    wait_for(lambda: pids_with(str(tmp_path)) == [], log, 30)


@pytest.mark.slow
def test_run_survives_a_kill_of_each_process_in_turn(tmp_path: Path) -> None:
    make_certs(tmp_path / "keys", ["127.0.0.1"], 2)
    run, port, log = tmp_path / "run", free_port(), tmp_path / "serve.log"
    certs = ["--certs", str(tmp_path / "keys/server"), "--rounds", "14", "--resume"]
    with (
        command(tmp_path / "0.log", *join(tmp_path, 0, port)),
        command(tmp_path / "1.log", *join(tmp_path, 1, port)),
    ):
        with command(log, *serve(run, port, *certs)) as server:
            for rounds, words in (
                (1, ["loopback_only.py", str(port)]),
                (3, ["flwr-serverapp", str(port)]),
                (5, ["flower-superexec", str(port)]),
                (6, ["thalweg.network.edge", "client1"]),
                (8, ["quick_node", "client1"]),
            ):
                wait_for(lambda rounds=rounds: rounds_of(run) >= rounds, log)
                os.kill(pids_with(*words)[0], signal.SIGKILL)
            wait_for(lambda: rounds_of(run) >= 10, log)
            server.kill()
            server.wait()
        wait_for(lambda: pids_with(str(port), "loopback_only.py") == [], log, 30)
        with command(log, *serve(run, port, *certs)) as server:
            wait_for(lambda: rounds_of(run) >= 12, log)
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 130
        assert f"continue with: thalweg serve {run}" in log.read_text()
        with command(log, *serve(run, port, *certs)) as server:
            wait_for(lambda: server.poll() is not None, log)
            assert server.returncode == 0, log.read_text()
    assert rounds_of(run) == 14
    assert json.loads((run / "summary.json").read_text())["rounds"] == 14
    wait_for(lambda: pids_with(str(tmp_path)) == [], log, 30)
