"""Validation of invitations, and creation of the client that they describe."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import tomli_w

from thalweg.core.errors import BadMessage
from thalweg.engine.plan import Plan, plan_differences, plan_from_toml
from thalweg.network.edge.device_client import DeviceClient, DeviceOptions, make_replay_client
from thalweg.network.edge.live_setup import make_live_client
from thalweg.network.edge.store import Membership, Store
from thalweg.network.handshake import Invitation

CLASS_PATH = re.compile(r".+:\w+", re.DOTALL)  # package.module:Class or path/to/file.py:Class


def make_device_client(
    plan: Plan, invitation: Invitation, store: Store, options: DeviceOptions
) -> DeviceClient:
    """Create the client of an invitation with the data of this device."""
    is_replay = options.data == "replay"
    if is_replay and invitation.live:
        raise BadMessage(
            "the server has a live run, whose clients have their own samples, but this client has "
            "--data replay. Set the source of its samples (--data SOURCE)."
        )
    if not is_replay and not invitation.live:
        raise BadMessage(
            "the server has a run that replays the samples of its scenario, but this client has "
            f"--data {options.data}. Join with --data replay, or serve the run with --live."
        )
    if is_replay:
        return make_replay_client(plan, invitation, store, options)
    return make_live_client(plan, invitation, store, options)


def read_server_plan(text: str, options: DeviceOptions) -> Plan:
    """Parse a plan from the network; it may not run code from files of this device."""
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadMessage(f"the server's plan is not TOML: {error}.") from error
    _set_model(plain, options.model)
    texts = [text for text in _list_strings(plain) if text != options.model]
    foreign = [text for text in texts if CLASS_PATH.fullmatch(text)]
    if foreign and not options.allows_own_code:
        raise BadMessage(
            f"the server's plan names a class of a file, {foreign[0]}, but this client runs no "
            "code named by a server. If the file exists here and you trust it, join with "
            "--own-code."
        )
    return plan_from_toml(tomli_w.dumps(plain), "the server's plan")


def _set_model(plain: dict[str, Any], model: str | None) -> None:
    """Replace the path of the plan's module by that of this device.

    A path from the network is never imported. The digest of the server's file is not compared,
    because a file with another text can define the same model; `check_tensors` compares tensors.
    """
    scenario = plain.get("scenario")
    net = scenario.get("net") if isinstance(scenario, dict) else None
    if not isinstance(net, dict) or net.get("kind") != "module":
        if model is not None:
            raise BadMessage(
                f"this client has --model {model}, but the server trains the net "
                f"{net.get('kind') if isinstance(net, dict) else net}. Join without --model."
            )
        return
    theirs = str(net.get("path", "")).rpartition(":")[2]
    if model is None:
        raise BadMessage(
            f"the server trains the module {theirs}, and this client imports nothing that a server "
            f"names. Join with the module in a file of this device: --model FILE.py:{theirs}."
        )
    if model.rpartition(":")[2] != theirs:
        raise BadMessage(
            f"the server trains the module {theirs}, but this client has --model {model}. Use the "
            "same model on both sides."
        )
    net["path"], net["digest"] = model, ""


def _list_strings(plain: Any) -> list[str]:
    """All strings of a plan, at any depth."""
    if isinstance(plain, str):
        return [plain]
    parts = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    return [text for part in parts for text in _list_strings(part)]


def check_client_number(invitation: Invitation, wanted_client: int | None) -> None:
    """Reject a client number that differs from the requested one."""
    if wanted_client is not None and wanted_client != invitation.client:
        raise BadMessage(
            f"the server has this client as number {invitation.client}, but this client has "
            f"--client {wanted_client}; use the same number or none, or join with another state "
            "folder (--state)."
        )


def check_same_plan(before: Membership | None, now: Membership) -> None:
    """Reject a different plan of the same run. (The store rejects other runs and clients.)"""
    if before is None or (before.run, before.client) != (now.run, now.client):
        return
    if before.plan != now.plan:
        plans = (plan_from_toml(each.plan, "a plan") for each in (before, now))
        raise BadMessage(
            "the server has another plan than this client's state folder for the same run:\n  "
            + "\n  ".join(plan_differences(*plans))
        )


def check_same_invitation(now: Invitation, before: Invitation) -> None:
    """Reject a second, different invitation."""
    if now == before:
        return
    for name in ("run", "client", "shape", "num_classes", "num_params", "live", "schema", "plan"):
        there, here = (str(getattr(each, name))[:200] for each in (now, before))
        if there != here:
            raise BadMessage(
                f"the server has {name} {there}, but this client has {name} {here}; join with "
                "another state folder (--state)."
            )
