"""From an invitation to a live run to the client that takes part in it, with samples of this device's own."""

from __future__ import annotations

from thalweg.edge.blank import blank_from_json
from thalweg.edge.live_client import LiveClient
from thalweg.edge.live_node import sizes_of
from thalweg.edge.resident import Means, check_form
from thalweg.edge.sources import open_live
from thalweg.edge.store import Member, Store
from thalweg.engine.plan import Plan
from thalweg.recipes.joining import Invitation


def lodger(plan: Plan, invitation: Invitation, store: Store, means: Means) -> LiveClient:
    """The client that an invitation names; its source is being read when this returns."""
    store.check(Member(invitation.run, invitation.client, invitation.plan))  # before we write to it
    blank = blank_from_json(invitation.blank)
    source = open_live(means.data, blank.form, name=store.identity, data_dir=means.data_dir)
    try:
        client = LiveClient(
            store, plan, invitation.client, blank, source, sizes_of(means.capacity, means.queue)
        )
    except BaseException:
        source.close()
        raise
    try:
        check_form(invitation, blank.input_shape, blank.num_classes, client.num_params)
    except BaseException:
        client.close()
        raise
    client.start()
    return client
