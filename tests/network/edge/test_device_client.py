"""Options of the owner of a device, also for secure aggregation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from thalweg.aggregation import Masked
from thalweg.core.errors import BadMessage, ThalwegError
from thalweg.network.edge.__main__ import _parser, _run
from thalweg.network.edge.device_client import DeviceOptions, check_options, make_mask_identity
from thalweg.network.edge.device_limits import DeviceLimits
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


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--component", "missing.py:Recent"], "there is no file missing.py"),
        (["--component", "OWN:Recnt"], r"there is no Recnt\. It defines Recent"),
        (["--model", "OWN:Net"], "there is no Net"),
        (["--component", "OWN:Recent", "--model", "other.py:Recent"], "have the name Recent"),
        (["--capacity", "0"], "capacity must be at least 1"),
        (["--queue", "1"], "queue must be at least 2"),
        (["--min-participants", "2"], "min_participants must be at least 3"),
        (["--max-epsilon", "1", "--privacy-account", "EMPTY"], "privacy account .* cannot be used"),
    ],
)
def test_unusable_options_end_the_daemon_at_its_start(
    options: list[str], match: str, tmp_path: Path
) -> None:
    own, empty = tmp_path / "own.py", tmp_path / "empty.db"
    own.write_text("class Recent:\n    pass\n")
    empty.touch()
    words = [word.replace("OWN", str(own)).replace("EMPTY", str(empty)) for word in options]
    where = ["--state", str(tmp_path / "state"), "--socket", str(tmp_path / "socket")]
    with pytest.raises(ThalwegError, match=match):
        _run(_parser().parse_args([*where, *words]))
    assert not (tmp_path / "socket").exists()


def test_account_and_components_of_the_owner_are_accepted(tmp_path: Path) -> None:
    own, account = tmp_path / "own.py", tmp_path / "privacy.db"
    own.write_text("class Recent:\n    pass\n")
    limits = DeviceLimits(max_epsilon=1.0)
    check_options(DeviceOptions(components=(f"{own}:Recent",), limits=limits, account=account))
    assert account.exists()
