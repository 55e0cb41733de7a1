"""A data set on a device gives the same samples as one in this process."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from thalweg.core.transforms import Inverted, Mirrored
from thalweg.core.views import View
from thalweg.data.base import Dataset
from thalweg.engine import device_gather
from thalweg.engine.device_gather import DeviceGather
from thalweg.engine.gather import Gather

CPU, META = torch.device("cpu"), torch.device("meta")
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (7, 4, 5, 3), dtype=np.uint8)
LABELS = np.arange(7) % 2
ROWS = np.array([[6, 0, 1], [2, 2, 5]], dtype=np.int32)


def images(views=()):
    return Dataset(
        "toy",
        *(IMAGES, LABELS, IMAGES[:3], LABELS[:3], 2),
        mean=(0.1, 0.2, 0.3),
        std=(0.5, 0.6, 0.7),
        views=views,
    )


def features():
    x = RNG.normal(size=(7, 3)).astype(np.float32)
    y = RNG.normal(size=(7, 2)).astype(np.float32)
    return Dataset("toy", x, y, x[:2], y[:2], 0)


def codes(dtype):
    x = RNG.integers(0, 90, (7, 6)).astype(dtype)
    return Dataset("toy", x, LABELS, x[:3], LABELS[:3], 2, num_codes=90)


def read_all(gather, rows):
    ready = gather.prepare_rows(rows)
    found = [gather.get_single("train", ready[0]), gather.get_stacked("train", ready)]
    return found + ([gather.get_vectors("train", ready)] if gather.has_vectors else [])


@pytest.mark.parametrize(
    "data", [images(), features(), codes(np.uint8), codes(np.uint16)], ids=["x", "f", "u8", "u16"]
)
def test_samples_have_the_same_bits(data):
    for (x, y), (x_here, y_here) in zip(
        read_all(DeviceGather(data, CPU), ROWS), read_all(Gather(data), ROWS), strict=True
    ):
        assert torch.equal(x, x_here)
        assert x.stride() == x_here.stride()
        assert torch.equal(y, y_here)


def test_rows_that_are_not_prepared_will_do():
    on_device, here = DeviceGather(images(), CPU), Gather(images())
    for found, expected in zip(
        on_device.get_single("test", ROWS[0] % 3), here.get_single("test", ROWS[0] % 3), strict=True
    ):
        assert torch.equal(found, expected)


def test_views_with_the_same_transform_are_stored_once():
    swapped = View(labels=(1, 0))
    views = (View(), View(Mirrored()), swapped, View(Mirrored(), labels=(1, 0)), View(Inverted()))
    data = images(views)
    rows = np.arange(5 * 7).reshape(5, 7)
    on_device = DeviceGather(data, CPU)
    for found, expected in zip(
        read_all(on_device, rows), read_all(Gather(data), rows), strict=True
    ):
        assert all(map(torch.equal, found, expected))
    stored = on_device._stored["train"]
    assert stored.x.shape == (3 * 7, 4, 5, 3)
    assert stored.x.dtype == torch.uint8


def test_views_of_labels_need_no_further_samples():
    data = images((View(), View(labels=(1, 0))))
    on_device, rows = DeviceGather(data, CPU), np.arange(2 * 7).reshape(2, 7)
    stored = on_device._stored["train"]
    assert stored.x.shape == (7, 4, 5, 3)
    assert stored.labels.tolist() == [*LABELS, *(1 - LABELS)]
    for found, expected in zip(
        read_all(on_device, rows), read_all(Gather(data), rows), strict=True
    ):
        assert all(map(torch.equal, found, expected))


def test_samples_are_changed_in_this_process():
    found, _ = DeviceGather(images(), CPU).get_single("train", ROWS[0], lambda x: 255 - x)
    expected, _ = Gather(replace(images(), x=255 - IMAGES)).get_single("train", ROWS[0])
    assert torch.equal(found, expected)


@pytest.mark.parametrize(("free", "is_stored"), [(1360, True), (1358, False)])
def test_a_data_set_larger_than_half_of_the_memory_is_not_stored(monkeypatch, free, is_stored):
    """Ten images of 60 bytes and ten labels of 8: 680 bytes."""
    monkeypatch.setattr(device_gather, "find_free_memory", lambda device: free)
    gather = DeviceGather(images(), CPU)
    assert bool(gather._stored) is is_stored
    assert isinstance(gather.prepare_rows(ROWS), torch.Tensor) is is_stored
    for found, expected in zip(
        read_all(gather, ROWS), read_all(Gather(images()), ROWS), strict=True
    ):
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("views", [(), (View(), View(Mirrored()))], ids=["plain", "views"])
def test_everything_is_on_the_device(views):
    gather = DeviceGather(images(views), META)
    assert gather.device == META
    for x, y in read_all(gather, ROWS):
        assert x.is_meta
        assert y.is_meta
    changed, labels = gather.get_stacked("train", ROWS, lambda x: x)
    assert changed.is_meta
    assert labels.is_meta
