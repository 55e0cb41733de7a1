"""Faults at every change of the files of a device: its store, samples and privacy account.

After a fault the store contains the state before or after the transaction in progress, and the
account contains at least the confirmed charges. `test_all_faults` injects faults at every change;
the other tests inject a sample of them.
"""

from __future__ import annotations

import random
import shutil
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import pytest

from contracts.sqlite_faults import (
    FULL,
    WRITE_ERROR,
    FailingDisk,
    FullDisk,
    KillingDisk,
    PowerLossDisk,
    SqliteDisk,
    using,
)
from network.edge.killable_device import SCHEMA
from thalweg.core.errors import RunError
from thalweg.network.edge.inbox import Inbox
from thalweg.network.edge.privacy_ledger import PrivacyLedger
from thalweg.network.edge.store import KEPT_ROUNDS, Store, write_facts
from thalweg.network.sources import LiveBatch
from thalweg.theory import PrivacyCost

STEPS = 5
PLENTY = 1 << 40
COST = PrivacyCost(0.01)


class Device(ABC):
    """Steps 1, 2, ... of a device, with the numbers of those that were confirmed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.confirmed = 0  # steps that have returned
        self.attempted = 0

    @abstractmethod
    def play(self) -> None:
        """Continue until step STEPS."""

    @abstractmethod
    def check(self) -> int:
        """Check that the files have no mixture of states; return the number of steps in them."""

    def check_recovers(self) -> None:
        """Open the files without faults, check them, and continue."""
        with using(SqliteDisk(self.folder)):
            found = self.check()
            assert self.confirmed <= found <= self.attempted, "no confirmed step is lost"
            self.play()
            assert self.check() >= STEPS

    def run(self, disk: SqliteDisk) -> str:
        """Continue until an error; return its message."""
        with using(disk):
            try:
                self.play()
            except RunError as error:
                message = str(error)
                assert "\n" not in message
                assert str(self.folder) in message
                return message
        return ""


def state_of(number: int) -> bytes:
    """A state of several pages, with the size of a client's state, which varies."""
    return f"{number} ".encode() * (1000 + 500 * (number % 3))


class StoreDevice(Device):
    """Each step stores a state, a response and a fact in one transaction."""

    identity = ""

    def play(self) -> None:
        store = Store.open(self.folder)
        try:
            assert self.identity in ("", store.identity)
            self.identity = store.identity
            for number in range(self.read(store) + 1, STEPS + 1):
                self.attempted = max(self.attempted, number)
                self.commit(store, number)
                self.confirmed = number
                if number % 2:
                    store.erase_deleted()
        finally:
            store.close()

    def commit(self, store: Store, number: int) -> None:
        store.commit(
            state_of(number),
            f"request {number}",
            f"response {number}".encode() * 300,
            rnd=number,
            extra_write=lambda db: write_facts(db, {"number": str(number)}),
        )

    def read(self, store: Store) -> int:
        return int(store.read_fact("number") or 0)

    def check(self) -> int:
        store = Store.open(self.folder)
        try:
            number = self.read(store)
            assert store.state() == (state_of(number) if number else None)
            kept = range(max(number - KEPT_ROUNDS, 1), number + 1)
            for each in range(1, STEPS + 2):
                expected = f"response {each}".encode() * 300 if each in kept else None
                assert store.find_response(f"request {each}") == expected
            with store.read_transaction() as db:
                assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            return number
        finally:
            store.close()


class AccountDevice(Device):
    """Each step charges the privacy account."""

    def _open(self) -> PrivacyLedger:
        return PrivacyLedger(self.folder / "privacy.db", "data", 1e9, 1e-5)

    def play(self) -> None:
        ledger = self._open()
        for number in range(self._read(ledger) + 1, STEPS + 1):
            self.attempted = max(self.attempted, number)
            ledger.charge(COST)
            self.confirmed = number

    def _read(self, ledger: PrivacyLedger) -> int:
        return round(ledger.read_cost().mu_squared / COST.mu_squared)

    def check(self) -> int:
        ledger = self._open()
        number = self._read(ledger)
        least = COST.times(self.confirmed).epsilon(1e-5) if self.confirmed else 0.0
        assert ledger.read_epsilon() >= least * (1 - 1e-9), "what was spent stays spent"
        return number


class SampleDevice(Device):
    """Each step receives three samples; every second one keeps the newest four."""

    def _open(self) -> tuple[Store, Inbox]:
        store = Store.open(self.folder)
        try:
            return store, Inbox(store, SCHEMA, 4, queue=12)
        except BaseException:
            store.close()
            raise

    def play(self) -> None:
        store, inbox = self._open()
        try:
            for number in range(inbox.counts.received // 3 + 1, STEPS + 1):
                self.attempted = max(self.attempted, number)
                samples = np.arange(3 * number, 3 * number + 3)
                inputs = np.stack([samples, -samples], axis=1).astype(np.float32)
                inbox.receive(
                    LiveBatch(inputs, samples % 3, samples.astype(float), ("", "", ""), f"{number}")
                )
                self.confirmed = number
                if number % 2 == 0:
                    inbox.mark(number)
                    held = inbox._table.slots_before(number + 1)
                    newest = held[np.argsort(inbox.slots.x[held, 0])][-4:]
                    inbox.commit(f"{number}".encode(), number + 1, newest)
        finally:
            inbox.close()
            store.close()

    def check(self) -> int:
        store, inbox = self._open()  # verifies the checksums of all samples
        try:
            counts = inbox.counts
            number, rest = divmod(counts.received, 3)
            assert rest == 0
            assert inbox.cursor == (f"{number}" if number else "", 0)
            present = inbox.slots.x[inbox._is_taken]
            assert len(present) == counts.received - counts.evicted, "none lost"
            values = present[:, 0].tolist()
            assert len(set(values)) == len(values), "none twice"
            assert set(values) <= set(range(3, 3 * number + 3))
            assert set(range(3 * number, 3 * number + 3)) <= set(values) or number == 0
            np.testing.assert_array_equal(present[:, 1], -present[:, 0])
            return number
        finally:
            inbox.close()
            store.close()


each_device = pytest.mark.parametrize("kind", [StoreDevice, AccountDevice, SampleDevice])


class Folders:
    """New devices in folders that are removed after use."""

    def __init__(self, path: Path, kind: type[Device]) -> None:
        self._path, self._kind, self.number = path, kind, 0

    def new(self) -> Device:
        self.number += 1
        shutil.rmtree(self._path / f"{self.number - 1}", ignore_errors=True)
        return self._kind(self._path / f"{self.number}")


def count_changes(folders: Folders) -> int:
    device = folders.new()
    disk = SqliteDisk(device.folder)
    assert device.run(disk) == ""
    assert device.confirmed == STEPS
    return disk.calls


def check_kills(folders: Folders, every: int) -> None:
    for at in range(0, count_changes(folders), every):
        for half in (False, True):
            device = folders.new()
            device.run(KillingDisk(device.folder, at, half))
            device.check_recovers()


def check_errors(folders: Folders, every: int) -> None:
    for at in range(0, count_changes(folders), every):
        for code, half in ((WRITE_ERROR, False), (WRITE_ERROR, True), (FULL, True)):
            device = folders.new()
            device.run(FailingDisk(device.folder, at, code, half))
            device.check_recovers()


def check_full_disks(folders: Folders, every: int) -> None:
    device = folders.new()
    disk = FullDisk(device.folder, PLENTY)
    assert device.run(disk) == ""
    for space in range(0, PLENTY - disk.left, every):
        device = folders.new()
        message = device.run(FullDisk(device.folder, space))
        assert "full" in message or device.confirmed == STEPS
        device.check_recovers()


def check_power_losses(folders: Folders, every: int, repeat: int) -> None:
    for at in range(0, count_changes(folders) + 1, every):
        for seed in range(repeat):
            device = folders.new()
            disk = PowerLossDisk(device.folder, at)
            device.run(disk)
            disk.lose_power(random.Random(1000 * at + seed))
            device.check_recovers()


@pytest.fixture
def folders(tmp_path: Path, kind: type[Device]) -> Folders:
    return Folders(tmp_path, kind)


@each_device
def test_kill_at_a_change_keeps_confirmed_steps(folders: Folders) -> None:
    check_kills(folders, every=5)


@each_device
def test_io_error_or_short_write_is_one_line_and_keeps_confirmed_steps(folders: Folders) -> None:
    check_errors(folders, every=7)


@each_device
def test_full_disk_is_reported_and_keeps_confirmed_steps(folders: Folders) -> None:
    check_full_disks(folders, every=4999)


@each_device
def test_power_cut_keeps_confirmed_steps(folders: Folders) -> None:
    check_power_losses(folders, every=5, repeat=2)


def check_continues(folders: Folders, every: int) -> None:
    """Fail one change of a store that stays open; the same step then succeeds."""
    at, is_over = 0, False
    while not is_over:
        device = folders.new()
        assert isinstance(device, StoreDevice)
        disk = FailingDisk(device.folder, -1, FULL, half=True)
        with using(disk):
            store = Store.open(device.folder)
            disk.at = disk.calls + at
            for number in range(1, STEPS + 1):
                device.attempted = number
                try:
                    device.commit(store, number)
                except RunError:
                    assert device.read(store) in (number - 1, number)
                    device.commit(store, number)
                device.confirmed = number
            store.close()
        is_over = disk.calls <= disk.at
        device.check_recovers()
        at += every


@pytest.mark.parametrize("kind", [StoreDevice])
def test_open_store_continues_after_an_error(folders: Folders) -> None:
    check_continues(folders, every=5)


@pytest.mark.slow
@each_device
def test_all_faults(folders: Folders, kind: type[Device]) -> None:
    check_kills(folders, every=1)
    check_errors(folders, every=1)
    check_full_disks(folders, every=101)
    check_power_losses(folders, every=1, repeat=20)
    if kind is StoreDevice:
        check_continues(folders, every=1)
    assert folders.number > 1000
