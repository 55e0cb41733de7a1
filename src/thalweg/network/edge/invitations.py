"""What a client looks at before it accepts an invitation, and becomes if it does."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from thalweg.core.errors import BadMessage
from thalweg.engine.plan import Plan, plan_differences, plan_from_toml
from thalweg.network.edge.device_client import DeviceClient, DeviceOptions, make_replay_client
from thalweg.network.edge.live_setup import make_live_client
from thalweg.network.edge.store import Membership, Store
from thalweg.network.handshake import Invitation

CLASS_PATH = re.compile(r"[\w./\\~-]+:\w+")  # package.module:Class, path/to/file.py:Class


def make_device_client(
    plan: Plan, invitation: Invitation, store: Store, options: DeviceOptions
) -> DeviceClient:
    """The client of an invitation, on the data that this device has."""
    is_replay = options.data == "replay"
    if is_replay and invitation.live:
        raise BadMessage(
            "the server has a live run, whose clients bring their own samples; this client has --data replay. "
            "Say where its samples come from (--data SOURCE)."
        )
    if not is_replay and not invitation.live:
        raise BadMessage(
            f"the server has a run that replays its scenario's samples; this client has --data {options.data}. "
            "Join it with --data replay, or serve it with --live."
        )
    if is_replay:
        return make_replay_client(plan, invitation, store, options.data_dir)
    return make_live_client(plan, invitation, store, options)


def read_server_plan(text: str, options: DeviceOptions) -> Plan:
    """A plan that came over the network: it may not make this device run code of its own files."""
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadMessage(f"the server's plan is not TOML: {error}.") from error
    foreign = [text for text in _list_strings(plain) if CLASS_PATH.fullmatch(text)]
    if foreign and not options.allows_own_code:
        raise BadMessage(
            f"the server's plan names a class of its own, {foreign[0]}, and this client takes code from nobody. "
            "If the file is here and you trust it, join with --own-code."
        )
    return plan_from_toml(text, "the server's plan")


def _list_strings(plain: Any) -> list[str]:
    """All texts of a plan, at any depth."""
    if isinstance(plain, str):
        return [plain]
    parts = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    return [text for part in parts for text in _list_strings(part)]


def check_client_number(invitation: Invitation, wanted_client: int | None) -> None:
    """Refuse another number than was wished for."""
    if wanted_client is not None and wanted_client != invitation.client:
        raise BadMessage(
            f"the server has this client as number {invitation.client}, this client has --client {wanted_client}; "
            "say the same number, or none, or join with another state folder (--state)."
        )


def check_same_plan(before: Membership | None, now: Membership) -> None:
    """The store refuses another run or client; another plan of the same run is as bad."""
    if before is None or (before.run, before.client) != (now.run, now.client):
        return
    if before.plan != now.plan:
        plans = (plan_from_toml(each.plan, "a plan") for each in (before, now))
        raise BadMessage(
            "the server has another plan than this client's state folder for the same run:\n  "
            + "\n  ".join(plan_differences(*plans))
        )


def check_same_invitation(now: Invitation, before: Invitation) -> None:
    """An invitation may come twice, but not two of them."""
    if now == before:
        return
    for name in ("run", "client", "shape", "num_classes", "num_params", "live", "schema", "plan"):
        there, here = (str(getattr(each, name))[:200] for each in (now, before))
        if there != here:
            raise BadMessage(
                f"the server has {name} {there}, this client has {name} {here}; join with another state "
                "folder (--state)."
            )
