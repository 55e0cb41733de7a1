from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import ConfigError, DataError
from thalweg.data import MnistWriters

REAL = Path(os.environ.get("THALWEG_DATA", "nowhere"))

# 12 training images by writers 4 (6 of them), 9 (5) and 2 (1), 5 test images by 2 (2) and 11 (3).
TRAIN = np.array([4, 9, 4, 9, 4, 9, 4, 9, 4, 9, 4, 2], dtype=np.int16)
TEST = np.array([11, 2, 11, 2, 11], dtype=np.int16)


@pytest.fixture
def written(tmp_path: Path, write_images: Any) -> Path:
    write_images(tmp_path / "MNIST" / "raw")
    np.savez(tmp_path / "mnist_writers.npz", train=TRAIN, test=TEST)
    return tmp_path


def images_of(data: Any, client: int) -> set[bytes]:
    """A client's images of both parts."""
    parts = ((data.x, data.client), (data.x_test, data.client_test))
    return {image.tobytes() for x, group in parts for image in x[group == client]}


def test_every_writer_keeps_a_fifth_of_its_rows_for_testing(written: Path) -> None:
    data = MnistWriters(min_samples=5).load(written, seed=0)
    assert data.client_names == ("4", "9")
    assert np.bincount(data.client).tolist() == [5, 4]
    assert np.bincount(data.client_test).tolist() == [1, 1]
    assert (data.name, data.num_classes, data.mean) == ("mnist-writers", 10, (0.1307,))


def test_images_labels_and_writers_stay_aligned(written: Path, write_images: Any) -> None:
    content = write_images(written / "again")
    pixels = np.concatenate([content["train-images"], content["t10k-images"]])
    labels = np.concatenate([content["train-labels"], content["t10k-labels"]])
    writers = np.concatenate([TRAIN, TEST])
    data = MnistWriters(min_samples=1, test_fraction=0.4).load(written, seed=0)
    label_of = {image.tobytes(): label for image, label in zip(pixels, labels, strict=True)}
    for client, writer in enumerate((2, 4, 9, 11)):
        assert data.client_names[client] == str(writer)
        assert images_of(data, client) == {x.tobytes() for x in pixels[writers == writer]}
    assert [label_of[x.tobytes()] for x in data.x_test] == data.y_test.tolist()
    assert [label_of[x.tobytes()] for x in data.x] == data.y.tolist()
    assert len(data.y) + len(data.y_test) == 17


def test_writer_in_both_mnist_parts_is_one_client(written: Path) -> None:
    data = MnistWriters(min_samples=3).load(written, seed=0)
    assert data.client_names == ("2", "4", "9", "11")
    assert len(images_of(data, 0)) == 3


def test_mnist_writers_split_does_not_depend_on_the_seed(written: Path) -> None:
    one, other = (MnistWriters(min_samples=1).load(written, seed) for seed in (1, 2))
    np.testing.assert_array_equal(one.x_test, other.x_test)


def test_writers_file_is_also_found_next_to_the_images(written: Path) -> None:
    (written / "mnist_writers.npz").rename(written / "MNIST" / "raw" / "mnist_writers.npz")
    assert MnistWriters(min_samples=6).load(written, seed=0).client_names == ("4",)
    assert MnistWriters().locate(written)


def test_missing_writers_file_gives_one_message_with_remedies(written: Path) -> None:
    (written / "mnist_writers.npz").unlink()
    for ask in (lambda: MnistWriters().load(written, 0), lambda: MnistWriters().locate(written)):
        with pytest.raises(
            DataError, match=r"(?s)mnist_writers.npz is not on.*QMNIST.*Looked in"
        ) as caught:
            ask()
        assert f"put it in {written / 'MNIST' / 'raw'} or {written}" in str(caught.value)


def test_missing_mnist_images_are_reported(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist_writers.npz", train=TRAIN, test=TEST)
    with pytest.raises(DataError, match="MNIST is not on this machine"):
        MnistWriters().load(tmp_path, seed=0)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"train": TRAIN[1:], "test": TEST}, r"train .*\(12,\), one writer .* got int16 .*\(11,\)"),
        ({"train": TRAIN, "test": TEST / 2}, r"test to be whole numbers .* got float64"),
        ({"train": TRAIN}, "expected train and test, but test is missing"),
        ({"train": TRAIN, "test": TEST.astype(object)}, "test is not an array of numbers or text"),
    ],
)
def test_invalid_writers_files_are_rejected(written: Path, arrays: Any, words: str) -> None:
    np.savez(written / "mnist_writers.npz", **arrays)
    with pytest.raises(DataError, match=words):
        MnistWriters().load(written, seed=0)


def test_min_samples_that_excludes_all_writers_is_rejected(written: Path) -> None:
    with pytest.raises(DataError, match="no writer has 7 images, the largest has 6"):
        MnistWriters(min_samples=7).load(written, seed=0)


@pytest.mark.parametrize("changes", [{"min_samples": 0}, {"test_fraction": 1.0}])
def test_invalid_mnist_writers_options_are_rejected(changes: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        MnistWriters(**changes)


@pytest.mark.skipif(
    not (REAL / "mnist_writers.npz").is_file(),
    reason="needs MNIST and mnist_writers.npz in THALWEG_DATA",
)
def test_real_mnist_has_836_writers() -> None:
    data = MnistWriters(min_samples=1).load(REAL, seed=0)
    assert len(data.client_names) == 836
    assert len(data.y) + len(data.y_test) == 70_000
    assert np.bincount(data.client_test, minlength=836).min() >= 1
