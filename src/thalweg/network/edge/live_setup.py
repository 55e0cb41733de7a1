"""Creates the client of a live run from an invitation."""

from __future__ import annotations

from thalweg.engine.plan import Plan
from thalweg.network.edge.device_client import (
    DeviceOptions,
    check_shapes,
    check_tensors,
    make_mask_identity,
)
from thalweg.network.edge.live_client import LiveClient
from thalweg.network.edge.live_node import choose_sizes
from thalweg.network.edge.schema import schema_from_json
from thalweg.network.edge.sources import open_live_source
from thalweg.network.edge.store import Membership, Store
from thalweg.network.handshake import Invitation


def make_live_client(
    plan: Plan, invitation: Invitation, store: Store, options: DeviceOptions
) -> LiveClient:
    """Create the client that an invitation names, and start reading its source."""
    store.check(
        Membership(invitation.run, invitation.client, invitation.plan)
    )  # checked before anything is written
    schema = schema_from_json(invitation.schema)
    mask_identity = make_mask_identity(plan.recipe, invitation.run, options)
    source = open_live_source(
        options.data, schema.sample_format, name=store.identity, data_dir=options.data_dir
    )
    try:
        client = LiveClient(
            store,
            plan,
            invitation.client,
            schema,
            source,
            choose_sizes(options.capacity, options.queue),
            mask_identity=mask_identity,
        )
    except BaseException:
        source.close()
        raise
    try:
        check_tensors(invitation, client.net)
        check_shapes(invitation, schema.input_shape, schema.num_classes, client.net.num_params)
    except BaseException:
        client.close()
        raise
    client.start()
    return client
