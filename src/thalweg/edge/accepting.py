"""What a client looks at before it accepts an invitation, and becomes if it does."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from thalweg.core.errors import BadMessage
from thalweg.edge.lodging import lodger
from thalweg.edge.resident import Means, Resident, tenant
from thalweg.edge.store import Member, Store
from thalweg.engine.plan import Plan, differences, plan_from_toml
from thalweg.recipes.joining import Invitation

CODE = re.compile(r"[\w./\\~-]+:\w+")  # package.module:Class, path/to/file.py:Class


def resident_of(plan: Plan, invitation: Invitation, store: Store, means: Means) -> Resident:
    """The client of an invitation, on the data that this device has."""
    is_replay = means.data == "replay"
    if is_replay and invitation.live:
        raise BadMessage(
            "the server has a live run, whose clients bring their own samples; this client has --data replay. "
            "Say where its samples come from (--data SOURCE)."
        )
    if not is_replay and not invitation.live:
        raise BadMessage(
            f"the server has a run that replays its scenario's samples; this client has --data {means.data}. "
            "Join it with --data replay, or serve it with --live."
        )
    if is_replay:
        return tenant(plan, invitation, store, means.data_dir)
    return lodger(plan, invitation, store, means)


def plan_from_the_server(text: str, means: Means) -> Plan:
    """A plan that came over the network: it may not make this device run code of its own files."""
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadMessage(f"the server's plan is not TOML: {error}.") from error
    foreign = [text for text in _texts(plain) if CODE.fullmatch(text)]
    if foreign and not means.takes_code:
        raise BadMessage(
            f"the server's plan names a class of its own, {foreign[0]}, and this client takes code from nobody. "
            "If the file is here and you trust it, join with --own-code."
        )
    return plan_from_toml(text, "the server's plan")


def _texts(plain: Any) -> list[str]:
    """All texts of a plan, at any depth."""
    if isinstance(plain, str):
        return [plain]
    parts = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    return [text for part in parts for text in _texts(part)]


def check_wish(invitation: Invitation, wish: int | None) -> None:
    """Refuse another number than was wished for."""
    if wish is not None and wish != invitation.client:
        raise BadMessage(
            f"the server has this client as number {invitation.client}, this client has --client {wish}; "
            "say the same number, or none, or join with another state folder (--state)."
        )


def check_member(before: Member | None, now: Member) -> None:
    """The store refuses another run or client; another plan of the same run is as bad."""
    if before is None or (before.run, before.client) != (now.run, now.client):
        return
    if before.plan != now.plan:
        plans = (plan_from_toml(each.plan, "a plan") for each in (before, now))
        raise BadMessage(
            "the server has another plan than this client's state folder for the same run:\n  "
            + "\n  ".join(differences(*plans))
        )


def check_is_the_same(now: Invitation, before: Invitation) -> None:
    """An invitation may come twice, but not two of them."""
    if now == before:
        return
    for name in ("run", "client", "shape", "num_classes", "num_params", "live", "blank", "plan"):
        there, here = (str(getattr(each, name))[:200] for each in (now, before))
        if there != here:
            raise BadMessage(
                f"the server has {name} {there}, this client has {name} {here}; join with another state "
                "folder (--state)."
            )
