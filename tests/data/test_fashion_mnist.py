from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from thalweg.core.errors import DataError
from thalweg.data import FashionMnist, Mnist
from thalweg.data.fashion_mnist import FASHION_MNIST

(DEBIAN,) = FASHION_MNIST.known
on_debian = pytest.mark.skipif(
    not DEBIAN.is_dir(), reason="needs Debian's package dataset-fashion-mnist"
)


@on_debian
def test_debian_fashion_mnist_files_are_found_and_read() -> None:
    data = FashionMnist().load(None, seed=0)
    assert data.x.shape == (60_000, 28, 28, 1)
    assert data.x_test.shape == (10_000, 28, 28, 1)
    assert data.x.dtype == np.uint8
    assert np.bincount(data.y).tolist() == [6000] * 10
    assert np.bincount(data.y_test).tolist() == [1000] * 10
    assert data.class_names[data.y[0]] == "ankle boot"
    pixels = data.x / 255
    assert data.mean == pytest.approx((pixels.mean(),), abs=5e-5)
    assert data.std == pytest.approx((pixels.std(),), abs=5e-5)


@on_debian
def test_fashion_mnist_files_are_rejected_as_mnist() -> None:
    with pytest.raises(DataError, match="labels of Fashion-MNIST, not of MNIST"):
        Mnist().load(DEBIAN, seed=0)


@on_debian
@pytest.mark.parametrize("remote", FASHION_MNIST.files, ids=lambda remote: remote.name)
def test_debian_files_with_the_published_header_match_the_checksum(remote) -> None:
    # Debian packed the files again without name and date. Both are in the gzip header, the packed
    # bytes behind it are the same.
    seconds = 1504176606 if remote.name.startswith("train") else 1504176627  # 31 August 2017
    header = b"\x1f\x8b\x08\x08" + struct.pack("<I", seconds) + b"\x00\x03"
    name = remote.name.removesuffix(".gz").encode() + b"\x00"
    published = header + name + (DEBIAN / remote.name).read_bytes()[10:]
    assert len(published) == remote.num_bytes
    assert hashlib.sha256(published).hexdigest() == remote.sha256


def test_fashion_mnist_split_does_not_depend_on_the_seed(tmp_path: Path, write_images) -> None:
    write_images(tmp_path / "FashionMNIST" / "raw")
    one, two = (FashionMnist().load(tmp_path, seed) for seed in (1, 2))
    np.testing.assert_array_equal(one.x, two.x)
    assert one.name == "fashion-mnist"
