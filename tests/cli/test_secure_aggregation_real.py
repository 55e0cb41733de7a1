"""Secure aggregation with `thalweg serve` and `thalweg join`: TLS, node keys, pinned peers."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from cli.test_serve_real import command, free_port, join, serve, wait_for
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import read_plan
from thalweg.network.flower.certs import make_certs
from thalweg.network.rejections import TEXTS, RejectionCode

KEY_REASON = TEXTS[RejectionCode.KEY]

# Imported by every Python process of the server. The server gives client 2 other public keys,
# signed with a node key of its own: it would then know the masks between client 2 and the others.
SWAP_KEYS = """
import sys
if any("serverapp" in word for word in sys.orig_argv):
    import numpy as np
    from thalweg.network.secure_aggregation import keys, server
    make_directory = server._make_directory
    def swap_keys(received, run, request):
        private = keys.restore_node_key(keys.make_node_key())
        own = keys.derive_public_key(bytes(32 * [7]))
        commitment = received[2].values["commitments"][0].tobytes()
        digest = keys.compute_keys_digest(
            run, request.rnd, request.probe_round, 2, own, own, commitment
        )
        swapped = {
            "mask_keys": own,
            "channel_keys": own,
            "node_keys": keys.get_public_node_key(private),
            "signatures": keys.sign(private, digest),
        }
        for name, octets in swapped.items():
            received[2].values[name] = np.frombuffer(octets, dtype=np.uint8)[None]
        return make_directory(received, run, request)
    server._make_directory = swap_keys
"""


def run_masked(folder: Path, num_clients: int, rounds: int) -> list[dict[str, Any]]:
    """Serve a run with a sum in each round, and return its metrics. Devices trust 0 to 2."""
    make_certs(folder / "keys", ["127.0.0.1"], num_clients)
    (folder / "peers").mkdir()
    for number in range(3):
        key = folder / f"keys/nodes/{number}/node.pub"
        shutil.copy(key, folder / f"peers/{number}.pub")
    run, port, log = folder / "run", free_port(), folder / "serve.log"
    options = ["--certs", str(folder / "keys/server"), "--rounds", str(rounds)]
    options += ["--set", "secure_aggregation=masked"]
    trust = ["--peers", str(folder / "peers"), "--min-participants", "3"]
    with ExitStack() as stack:
        for number in range(num_clients):
            words = [*join(folder, number, port), *trust]
            stack.enter_context(command(folder / f"{number}.log", *words))
        words = serve(run, port, *options, clients=num_clients)
        server = stack.enter_context(command(log, *words))
        wait_for(lambda: server.poll() is not None, log, 900)
        assert server.returncode == 0, log.read_text()
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def read_reasons(run: Path) -> dict[int, set[str]]:
    """Return the reasons for which requests were lost, by client."""
    reasons: dict[int, set[str]] = {}
    for line in (run / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "lost":
            reasons.setdefault(event["client"], set()).add(event["reason"])
    return reasons


@pytest.mark.slow
def test_masked_run_over_tls_with_pinned_peers_equals_the_simulated_run(tmp_path: Path) -> None:
    rows = run_masked(tmp_path, num_clients=3, rounds=3)
    assert [row["cohort"] for row in rows] == [3, 3, 3]
    assert not any("too_few" in row or "rejected" in row for row in rows)
    run = tmp_path / "run"
    plan, model = replace(read_plan(run), engine="reference"), load_file(run / "model.safetensors")
    expected = run_plan(plan)
    for name, value in expected.net.named_parameters(expected.model).items():
        np.testing.assert_array_equal(model[name], value, err_msg=name)
    for number in range(3):
        log = (tmp_path / f"{number}.log").read_text()
        assert "the protocol has not been reviewed externally" in log
        assert "refused" not in log


@pytest.mark.slow
def test_devices_refuse_a_sum_with_a_client_that_is_not_among_their_peers(tmp_path: Path) -> None:
    """The server knows the key of client 3, the devices do not list it."""
    rows = run_masked(tmp_path, num_clients=4, rounds=1)
    assert (rows[0]["cohort"], rows[0]["too_few"]) == (0, 1)
    reasons = read_reasons(tmp_path / "run")
    assert all(reasons[number] == {KEY_REASON} for number in range(3)), reasons
    for number in range(3):
        log = (tmp_path / f"{number}.log").read_text()
        assert "of client 3 is not one of the 3 keys that this device trusts (--peers)" in log
    assert "no round has changed the model" in (tmp_path / "serve.log").read_text()


@pytest.mark.slow
def test_devices_refuse_public_keys_that_the_server_has_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server/sitecustomize.py").write_text(SWAP_KEYS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'server'}:{':'.join(filter(None, sys.path))}")
    rows = run_masked(tmp_path, num_clients=3, rounds=1)
    assert (rows[0]["cohort"], rows[0]["too_few"]) == (0, 1)
    assert read_reasons(tmp_path / "run") == {key: {KEY_REASON} for key in range(3)}
    for number in range(2):
        log = (tmp_path / f"{number}.log").read_text()
        assert "of client 2 is not one of the 3 keys that this device trusts (--peers)" in log
    assert "wrong public keys for client 2, which is this one" in (tmp_path / "2.log").read_text()
