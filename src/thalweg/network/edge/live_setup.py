"""Creates the client of a live run from an invitation."""

from __future__ import annotations

import numpy as np

from thalweg.engine.plan import Plan
from thalweg.engine.task import make_net
from thalweg.network.edge.device_client import (
    DeviceOptions,
    check_shapes,
    check_tensors,
    make_charge,
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
    mask_identity = make_mask_identity(plan.recipe, invitation.common_digest, options)
    sizes = choose_sizes(options.capacity, options.queue)
    one = np.broadcast_to(np.zeros((), schema.dtype), (1, *schema.shape))
    net = make_net(plan.scenario, schema.make_dataset(one, schema.zero_targets(1)))
    options.limits.check_params(net.num_params)
    capacity = sizes.capacity or plan.scenario.capacity
    options.limits.check_work(plan, capacity)
    num_samples = capacity + sizes.queue
    options.limits.check_memory(net.num_params, num_samples, one.nbytes)
    check_tensors(invitation, net)
    check_shapes(invitation, schema.input_shape, schema.num_classes, net.num_params)
    charge = make_charge(plan.recipe, options, store)
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
            sizes,
            mask_identity=mask_identity,
            charge=charge,
        )
    except BaseException:
        source.close()
        raise
    client.start()
    return client
