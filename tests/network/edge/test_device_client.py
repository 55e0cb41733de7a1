"""What the owner of a device requires of secure aggregation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from thalweg.aggregation import Masked
from thalweg.core.errors import BadMessage
from thalweg.network.edge.device_client import DeviceOptions, make_mask_identity
from thalweg.network.flower.certs import make_certs
from thalweg.network.secure_aggregation.keys import get_public_node_key
from thalweg.recipes import fedavg

MASKED = replace(fedavg(), secure_aggregation=Masked())


def test_device_without_options_trusts_on_first_use_in_sums_of_three() -> None:
    identity = make_mask_identity(MASKED, "run", DeviceOptions())
    assert (identity.run, identity.node_key, identity.trusted_keys) == ("run", None, None)
    assert identity.min_participants == 3
    assert make_mask_identity(fedavg(), "run", DeviceOptions()) is None


def test_owner_chooses_key_trusted_nodes_and_number_of_participants(tmp_path: Path) -> None:
    make_certs(tmp_path, num_nodes=2)
    options = DeviceOptions(
        node_key=tmp_path / "nodes" / "1" / "node.key",
        peers=tmp_path / "server" / "nodes",
        min_participants=5,
    )
    identity = make_mask_identity(MASKED, "run", options)
    assert identity.min_participants == 5
    assert len(identity.trusted_keys) == 2
    assert get_public_node_key(identity.node_key) in identity.trusted_keys


def test_plan_without_secure_aggregation_is_rejected_if_the_owner_requires_it() -> None:
    with pytest.raises(BadMessage, match=r"sum of at least 4 clients \(--min-participants\), but"):
        make_mask_identity(fedavg(), "run", DeviceOptions(min_participants=4))
