"""The privacy account of a device, and the limits that its owner sets on noise and epsilon."""

from __future__ import annotations

import os
import random
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from network.edge.doubles import SCHEMA, batch, plan_for
from network.edge.test_daemon import OTHER, Home, invitation, make_request, rejection_of
from network.edge.test_live_node import make_request as live_request
from network.flower.runs import tiny_plan
from thalweg.core.errors import RunError
from thalweg.engine.plan import plan_to_toml
from thalweg.network.edge.device_limits import DeviceLimits
from thalweg.network.edge.live_node import LiveNode
from thalweg.network.edge.privacy_ledger import PrivacyGuard, PrivacyLedger, name_data
from thalweg.network.edge.socket import Frame
from thalweg.network.edge.store import Store
from thalweg.network.rejections import Rejected
from thalweg.theory import PrivacyCost

DELTA = 1e-5
OMITTED = [f"privacy.{name}=omit" for name in ("losses", "counts", "predictions")]
PRIVATE = ["privacy=gaussian", "privacy.noise=20", *OMITTED]  # mu = 0.1 per response
COST = PrivacyCost(0.01)
TWO = COST.times(2).epsilon(DELTA)  # the budget of two responses
LABELS = ["selection=dpcs", "selection.privacy.epsilon=0.5"]


def plan_text(*overrides: str) -> str:
    return plan_to_toml(tiny_plan("fedavg", "digits-partial", 3, *overrides))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "state")
    yield home
    home.stop()


def options(folder: Path, **limits: Any) -> dict[str, Any]:
    return {"limits": DeviceLimits(**limits), "account": folder / "account" / "privacy.db"}


def join_private(home: Home, folder: Path, max_epsilon: float = TWO * 1.001) -> Any:
    daemon = home.start(**options(folder, max_epsilon=max_epsilon))
    assert daemon.handle(Frame("invitation", invitation(plan=plan_text(*PRIVATE)))).payload
    assert daemon.rejection_reason is None
    return daemon


# --- the account ---


def test_charges_are_added_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "new" / "privacy.db"
    ledger = PrivacyLedger(file, "a", 10.0, DELTA)
    assert ledger.read_epsilon() == 0
    ledger.charge(COST)
    ledger.charge(COST)
    ledger.charge(PrivacyCost(laplace={0.5: 1}))
    again = PrivacyLedger(file, "a", 10.0, DELTA).read_cost()
    assert (again.mu_squared, dict(again.laplace)) == (0.02, {0.5: 1})
    assert PrivacyLedger(file, "b", 10.0, DELTA).read_epsilon() == 0, "other data"
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert b"secret" not in file.read_bytes()


def test_password_of_a_source_is_not_stored(tmp_path: Path) -> None:
    file = tmp_path / "privacy.db"
    PrivacyLedger(file, "mqtt://user:secret@host/topic", 1.0, DELTA).charge(PrivacyCost(1e-6))
    assert b"secret" not in file.read_bytes()


def test_charge_beyond_the_budget_is_rejected_and_not_counted(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "privacy.db", "a", TWO * 1.001, DELTA)
    ledger.charge(COST)
    ledger.charge(COST)
    for method in (ledger.charge, ledger.check):
        with pytest.raises(Rejected, match="--max-epsilon") as found:
            method(COST)
        assert found.value.code == "budget"
    with pytest.raises(Rejected):
        ledger.charge(PrivacyCost.unlimited())
    assert ledger.read_epsilon() == pytest.approx(TWO)


def test_processes_share_one_account(tmp_path: Path) -> None:
    """Ten threads with their own connections charge; the budget suffices for five."""
    file, rejected = tmp_path / "privacy.db", list[Rejected]()
    five = COST.times(5).epsilon(DELTA) * 1.001

    def charge() -> None:
        try:
            PrivacyLedger(file, "a", five, DELTA).charge(COST)
        except Rejected as error:
            rejected.append(error)

    threads = [threading.Thread(target=charge) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rejected) == 5
    assert PrivacyLedger(file, "a", five, DELTA).read_cost().mu_squared == pytest.approx(0.05)


@pytest.mark.parametrize(
    "content", [b"", b"not a database" * 100, b"SQLite format 3\0" + b"x" * 5000]
)
def test_damaged_account_is_reported_and_never_reset(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "privacy.db"
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"privacy account .* cannot be used"):
        PrivacyLedger(file, "a", 1.0, DELTA)
    assert file.read_bytes() == content


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE charges SET count = 1",
        "UPDATE charges SET size = size / 2",
        "DELETE FROM charges",
        "DELETE FROM account",
    ],
)
def test_changed_charges_are_damage(statement: str, tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "privacy.db", "a", 1.0, DELTA)
    ledger.charge(COST)
    ledger.charge(COST)
    with ledger._open() as db:
        db.execute(statement)
    for method in (ledger.charge, ledger.check):
        with pytest.raises(RunError, match="its checksum does not match its charges"):
            method(COST)


def test_no_flipped_bit_or_missing_end_lowers_the_account(tmp_path: Path) -> None:
    """Bits of all bytes with content, and of some others; all damage is reported or harmless."""
    file, rng = tmp_path / "privacy.db", random.Random(0)
    ledger = PrivacyLedger(file, "a", 10.0, DELTA)
    ledger.charge(COST)
    ledger.charge(PrivacyCost(laplace={0.5: 1}))
    intact, spent = file.read_bytes(), ledger.read_epsilon()
    damaged = list[bytes]()
    for at in (at for at, byte in enumerate(intact) if byte or at % 101 == 0):
        flipped = bytearray(intact)
        flipped[at] ^= 1 << rng.randrange(8)
        damaged.append(bytes(flipped))
    damaged += [intact[:size] for size in range(0, len(intact), 499)]
    damaged += [intact[:-1], intact + b"\0"]
    reports = list[str]()
    for content in damaged:
        file.write_bytes(content)
        try:
            assert PrivacyLedger(file, "a", 10.0, DELTA).read_epsilon() == spent
        except RunError as error:
            reports.append(str(error))
    assert len(damaged) > len(reports) > 400, "some bits, such as those of free space, are harmless"
    assert all(report.isprintable() for report in reports)


def test_removed_account_is_not_created_again_by_a_running_device(tmp_path: Path) -> None:
    ledger = PrivacyLedger(tmp_path / "privacy.db", "a", 1.0, DELTA)
    ledger.file.unlink()
    with pytest.raises(RunError, match="cannot be used"):
        ledger.charge(COST)
    assert not ledger.file.exists()


@pytest.mark.parametrize("exists", [True, False])
def test_all_texts_for_a_file_are_one_name(
    exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if exists:
        Path("sales.csv").touch()
    whole = str(tmp_path.resolve() / "sales.csv")
    texts = ["sales.csv", "./sales.csv", "sales.csv?", "sales.csv?columns=a", "x/../sales.csv?y=b"]
    for text in [*texts, *(f"replay:{each}" for each in texts), whole]:
        assert name_data(text) == whole
    assert name_data("images/") == name_data("images") == str(tmp_path.resolve() / "images")
    assert name_data("read.py:sales") == f"{tmp_path.resolve() / 'read.py'}:sales"
    assert name_data("12:30.csv") == str(tmp_path.resolve() / "12:30.csv")


def test_replayed_file_of_the_data_folder_has_the_name_of_its_path(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").touch()
    name = name_data("replay:sales.csv", tmp_path)
    assert name == name_data(f"{tmp_path}/sales.csv") == str(tmp_path.resolve() / "sales.csv")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("replay", "replay"),
        ("replay:digits?client=3", "digits"),
        ("replay:digits-partial", "digits-partial"),
        ("river:Elec2?wait=no", "river:Elec2"),
        ("replay:river:Elec2", "river:Elec2"),
        ("mqtt://localhost/x/y", "mqtt://localhost/x/y"),
        ("mqtts://me@LOCALHOST:8883/x/y?qos=0", "mqtt://localhost/x/y"),
        ("package.sensors:read?y=b", "package.sensors:read"),
    ],
)
def test_names_of_other_sources(text: str, name: str) -> None:
    assert name_data(text) == name


# --- the account of a daemon ---


def test_device_stops_responding_when_its_budget_is_used_up(home: Home, tmp_path: Path) -> None:
    daemon = join_private(home, tmp_path)
    sent = [daemon.handle(make_request(rnd)) for rnd in range(2)]
    assert [frame.kind for frame in sent] == ["request", "request"]
    assert home.store is not None
    before = home.store.state()
    assert daemon.handle(make_request(2)) == Frame("rejected", reason="budget")
    assert home.store.state() == before
    daemon = join_private(home, tmp_path)  # a restart
    assert daemon.handle(make_request(2)) == Frame("rejected", reason="budget")
    assert daemon.handle(make_request(1)) == sent[1], "a stored response is not charged again"


def test_other_server_and_other_folder_use_the_same_budget(home: Home, tmp_path: Path) -> None:
    daemon = join_private(home, tmp_path)
    for rnd in range(2):
        daemon.handle(make_request(rnd))
    other = Home(tmp_path / "other state")
    limits = options(tmp_path, max_epsilon=TWO * 1.001)
    letter = invitation(run=OTHER, plan=plan_text(*PRIVATE))
    assert "--max-epsilon" in rejection_of(other.start(**limits), letter, "budget")
    other.stop()


def test_response_is_charged_before_it_is_stored(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = join_private(home, tmp_path)

    def fail(*arguments: Any, **others: Any) -> None:
        raise KeyboardInterrupt  # the process ends

    monkeypatch.setattr(Store, "commit", fail)
    with pytest.raises(KeyboardInterrupt):
        daemon.handle(make_request(0))
    ledger = PrivacyLedger(tmp_path / "account" / "privacy.db", "replay", 1.0, DELTA)
    assert ledger.read_cost().mu_squared == pytest.approx(0.01)


def test_invalid_requests_are_not_charged(home: Home, tmp_path: Path) -> None:
    daemon = join_private(home, tmp_path)
    daemon.handle(make_request(1))
    assert daemon.handle(make_request(0)).reason == "round"
    assert daemon.handle(Frame("request", b"nothing")).kind == "rejected"
    ledger = PrivacyLedger(tmp_path / "account" / "privacy.db", "replay", 1.0, DELTA)
    assert ledger.read_cost().mu_squared == pytest.approx(0.01)


def test_live_device_charges_surveys_and_responses(tmp_path: Path) -> None:
    plan, store = plan_for("fedavg", *PRIVATE), Store.open(tmp_path / "state")
    ledger = PrivacyLedger(tmp_path / "privacy.db", "a", TWO * 1.001, DELTA)
    node = LiveNode(store, plan, 2, SCHEMA, charge=PrivacyGuard(ledger, plan.recipe).charge)
    node.inbox.receive(batch(range(5)))
    for rnd in range(2):
        node.handle(live_request(node, rnd))
    with pytest.raises(Rejected, match="--max-epsilon"):
        node.handle(live_request(node, 2))
    node.close()
    store.close()


# --- plans ---


@pytest.mark.parametrize(
    ("overrides", "limits", "match"),
    [
        ([], {"min_noise": 1.0}, "without noise: updates, losses, counts, predictions"),
        (["privacy=gaussian"], {"max_epsilon": 9.0}, "without noise: losses, counts, predictions"),
        (PRIVATE, {"min_noise": 20.5}, "has noise 20, but this client requires at least 20.5"),
        ([*PRIVATE, *LABELS], {"min_noise": 5.0}, "has noise 4, but"),  # 2 / 0.5
        ([*PRIVATE, "selection=dpcs"], {"max_epsilon": 9.0}, "survey responses of the selection"),
        (PRIVATE, {"max_epsilon": 0.01}, "with one more response, epsilon"),
    ],
)
def test_plan_with_less_noise_than_the_owner_requires_is_rejected(
    overrides: list[str], limits: dict[str, float], match: str, home: Home, tmp_path: Path
) -> None:
    daemon = home.start(**options(tmp_path, **limits))
    reason = rejection_of(daemon, invitation(plan=plan_text(*overrides)))
    assert match in reason
    assert home.store is not None
    assert home.store.read_membership() is None


def test_plan_with_enough_noise_is_accepted(home: Home, tmp_path: Path) -> None:
    daemon = home.start(**options(tmp_path, min_noise=4.0))
    daemon.handle(Frame("invitation", invitation(plan=plan_text(*PRIVATE, *LABELS))))
    assert daemon.rejection_reason is None
    assert not (tmp_path / "account").exists(), "no account without a budget"


def test_damaged_account_stops_the_device(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "account" / "privacy.db"
    file.parent.mkdir()
    file.write_bytes(b"not a database" * 100)
    daemon = home.start(**options(tmp_path, max_epsilon=1.0))
    rejection_of(daemon, invitation(plan=plan_text(*PRIVATE)), "state")
    assert file.read_bytes() == b"not a database" * 100, "evidence of the damage stays"


def test_limits_of_privacy_are_ranges() -> None:
    for wrong in ({"min_noise": -1.0}, {"max_epsilon": 0.0}, {"delta": 1.0}):
        with pytest.raises(Exception, match=next(iter(wrong))):
            replace(DeviceLimits(), **wrong)  # type: ignore[arg-type]
