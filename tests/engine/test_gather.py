"""Rows of a data set as the input of a net."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from thalweg.core.transforms import Inverted, Mirrored
from thalweg.core.views import View
from thalweg.data.base import Dataset
from thalweg.engine.gather import Gather


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (7, 4, 5, 3), dtype=np.uint8)
    x.flags.writeable = False  # a file that is mapped read-only will do
    y = np.arange(7) % 2
    return Dataset("toy", x, y, x[:3], y[:3], 2, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))


def normalised(images, rows):
    """(..., C, H, W), in double precision."""
    x = (images.x[rows] / 255 - np.array(images.mean)) / np.array(images.std)
    return np.moveaxis(x, -1, -3)


def test_single_images_are_normalised_and_channels_last(images):
    rows = np.array([6, 0, 0])
    x, labels = Gather(images).get_single("train", rows)
    assert x.shape == (3, 3, 4, 5)
    assert x.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(x.numpy(), normalised(images, rows), atol=1e-6)
    assert labels.tolist() == [0, 0, 0]


def test_stacked_images_have_the_batch_innermost(images):
    rows = np.array([[6, 0, 1], [2, 2, 5]], dtype=np.int32)
    x, labels = Gather(images).get_stacked("train", rows)
    assert x.shape == (2, 3, 3, 4, 5)
    assert x.movedim(1, -1).is_contiguous()
    np.testing.assert_allclose(x.numpy(), normalised(images, rows), atol=1e-6)
    assert labels.tolist() == [[0, 0, 1], [0, 0, 1]]


def test_single_and_stacked_inputs_have_the_same_bits(images):
    rows = np.array([3, 1, 4])
    gather = Gather(images)
    single, stacked = (
        gather.get_single("test", rows % 3)[0],
        gather.get_stacked("test", rows[None] % 3)[0],
    )
    assert torch.equal(single, stacked[0])


def test_features_are_not_changed():
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    gather = Gather(Dataset("toy", x, np.array([0, 1, 1, 0]), x[:1], np.zeros(1, dtype=int), 2))
    assert gather.get_single("train", np.array([3, 0]))[0].tolist() == [[6, 7], [0, 1]]
    stacked, labels = gather.get_stacked("train", np.array([[3], [1]]))
    assert stacked.tolist() == [[[6, 7]], [[2, 3]]]
    assert labels.tolist() == [[0], [1]]
    assert (gather.num_samples("train"), gather.num_samples("test")) == (4, 1)


def test_codes_of_sequences_become_whole_numbers():
    x = np.array([[0, 4, 2], [3, 3, 1]], dtype=np.uint8)
    gather = Gather(Dataset("toy", x, np.array([0, 1]), x[:1], np.zeros(1, int), 2, num_codes=5))
    codes, labels = gather.get_single("train", np.array([1, 0, 1]))
    assert codes.dtype == torch.int64
    assert codes.tolist() == [[3, 3, 1], [0, 4, 2], [3, 3, 1]]
    assert labels.tolist() == [1, 0, 1]
    stacked, _ = gather.get_stacked("test", np.array([[0, 0]]))
    assert stacked.dtype == torch.int64
    assert stacked.tolist() == [[[0, 4, 2], [0, 4, 2]]]


def test_a_row_that_does_not_exist_is_an_error(images):
    with pytest.raises(IndexError, match="7"):
        Gather(images).get_single("train", np.array([7]))


def test_rows_are_gathered_in_their_views(images):
    views = (View(), View(Mirrored(), (1, 0)), View(Inverted()))
    gather, rows = Gather(replace(images, views=views)), np.array([[6, 7 + 6], [14 + 1, 7 + 2]])
    x, labels = gather.get_stacked("train", rows)
    plain = Gather(images).get_stacked("train", rows % 7)[0]
    assert torch.equal(x[0, 0], plain[0, 0])
    assert torch.equal(x[0, 1], plain[0, 1].flip(-1))
    assert torch.equal(x[1, 1], plain[1, 1].flip(-1))
    negative = replace(images, x=255 - images.x)
    assert torch.equal(x[1, 0], Gather(negative).get_stacked("train", rows[1:, :1] % 7)[0][0, 0])
    assert labels.tolist() == [[0, 1], [1, 1]]
    single, right = gather.get_single("train", rows.ravel())
    assert torch.equal(single, x.reshape(single.shape))
    assert right.tolist() == [0, 1, 1, 1]
    assert gather.num_samples("train") == 7


def test_views_are_applied_before_augmentation(images):
    gather = Gather(replace(images, views=(View(), View(Inverted()))))
    seen = []
    gather.get_single(
        "train", np.array([7]), lambda samples: seen.append(samples.copy()) or samples
    )
    assert np.array_equal(seen[0], 255 - images.x[:1])
