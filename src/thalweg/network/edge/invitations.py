"""Validation of invitations, and creation of the client that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thalweg.core.registry import Registry
from thalweg.core.toml import parse_toml
from thalweg.data.in_memory import InMemory
from thalweg.engine.plan import Plan, plan_from_dict
from thalweg.network.edge.device_client import DeviceClient, DeviceOptions, make_replay_client
from thalweg.network.edge.live_setup import make_live_client
from thalweg.network.edge.sources import find_replay_data
from thalweg.network.edge.store import Membership, Store
from thalweg.network.handshake import Invitation
from thalweg.network.rejections import Rejected, RejectionCode

MAX_DIFFERENCES = 20  # lines of a message


def make_device_client(
    plan: Plan, invitation: Invitation, store: Store, options: DeviceOptions
) -> DeviceClient:
    """Create the client of an invitation with the data of this device."""
    if options.data == "replay" and invitation.live:
        raise Rejected(
            RejectionCode.DATA_MODE,
            "the server has a live run, whose clients have their own samples, but this client has "
            "--data replay. Set the source of its samples (--data SOURCE).",
        )
    if not invitation.live and not options.can_replay:
        raise Rejected(
            RejectionCode.DATA_MODE,
            "the server has a run that replays the samples of its scenario, but this client has "
            f"--data {options.data}. Join with --data replay or replay:NAME, or serve the run with "
            "--live.",
        )
    if not invitation.live:
        return make_replay_client(plan, invitation, store, options)
    return make_live_client(plan, invitation, store, options)


def read_server_plan(text: str, options: DeviceOptions, is_live: bool = False) -> Plan:
    """Parse a plan from the network.

    It can name the registered components and those of the owner (`options.objects`), but no file,
    module or path of this device. The owner chooses the data: those of `options.data` replace
    those of the plan. With ``--data replay`` the plan can name a built-in data set.
    """
    plain = _parse(text)
    scenario = plain.get("scenario")
    if not isinstance(scenario, dict):
        raise Rejected(RejectionCode.PLAN, "the server's plan has no scenario.")
    _check_model(scenario, options.model)
    if is_live or not options.can_replay:
        scenario["data"] = InMemory("the data of this device")  # never loaded
    elif options.data != "replay":
        scenario["data"] = find_replay_data(options.data)
    elif "data" not in scenario:
        raise Rejected(
            RejectionCode.DATA,
            "the server replays a file of its own, and the owner of a device chooses its data. "
            "Join with --data replay:FILE and a copy of the file; columns of a table are named as "
            "in --data 'replay:FILE?label=NAME&time=NAME'.",
        )
    return plan_from_dict(plain, "the server's plan", Registry.from_paths(options.objects))


def _parse(text: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except ValueError as error:
        raise Rejected(RejectionCode.PLAN, f"the server's plan is not TOML: {error}.") from error


def _check_model(scenario: dict[str, Any], model: str | None) -> None:
    """Check that both sides train a module of the same name, or none.

    The path of the server is never imported: the name is looked up among the owner's objects. The
    digest of the server's file is not compared, because a file with another text can define the
    same model; `check_tensors` compares tensors.
    """
    net = scenario.get("net")
    if not isinstance(net, dict) or net.get("kind") != "module":
        if model is not None:
            raise Rejected(
                RejectionCode.MODEL,
                f"this client has --model {model}, but the server trains the net "
                f"{net.get('kind') if isinstance(net, dict) else net}. Join without --model.",
            )
        return
    theirs = str(net.get("path", "")).rpartition(":")[2]
    if model is None:
        raise Rejected(
            RejectionCode.MODEL,
            f"the server trains the module {theirs}, and this client imports nothing that a server "
            f"names. Join with the module in a file of this device: --model FILE.py:{theirs}.",
        )
    if model.rpartition(":")[2] != theirs:
        raise Rejected(
            RejectionCode.MODEL,
            f"the server trains the module {theirs}, but this client has --model {model}. Use the "
            "same model on both sides.",
        )
    net["digest"] = ""


def check_client_number(invitation: Invitation, wanted_client: int | None) -> None:
    """Reject a client number that differs from the requested one."""
    if wanted_client is not None and wanted_client != invitation.client:
        raise Rejected(
            RejectionCode.CLIENT_NUMBER,
            f"the server has this client as number {invitation.client}, but this client has "
            f"--client {wanted_client}; use the same number or none, or join with another state "
            "folder (--state).",
        )


def check_same_plan(before: Membership | None, now: Membership) -> None:
    """Reject a different plan of the same run. (The store rejects other runs and clients.)"""
    if before is None or (before.run, before.client) != (now.run, now.client):
        return
    if before.plan != now.plan:
        old, new = (dict(_flatten(_parse(each.plan))) for each in (before, now))
        different = [
            f"{path}: {old.get(path, 'absent')} -> {new.get(path, 'absent')}"
            for path in sorted(old.keys() | new.keys())
            if old.get(path) != new.get(path)
        ]
        raise Rejected(
            RejectionCode.RUN,
            "the server has another plan than this client's state folder for the same run:\n  "
            + "\n  ".join(different[:MAX_DIFFERENCES]),
        )


def _flatten(plain: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return all values of a plan with their paths, without building it."""
    found: list[tuple[str, Any]] = []
    for name, value in plain.items():
        is_table = isinstance(value, Mapping)
        found += _flatten(value, f"{prefix}{name}.") if is_table else [(prefix + name, value)]
    return found


def check_same_invitation(now: Invitation, before: Invitation) -> None:
    """Reject a second, different invitation."""
    if now == before:
        return
    for name in ("run", "client", "shape", "num_classes", "num_params", "live", "schema", "plan"):
        there, here = (str(getattr(each, name))[:200] for each in (now, before))
        if getattr(now, name) != getattr(before, name):
            raise Rejected(
                RejectionCode.RUN,
                f"the server has {name} {there}, but this client has {name} {here}; join with "
                "another state folder (--state).",
            )
