from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError, DataError
from thalweg.data import Arrays, Dataset

FEATURES = np.arange(20.0).reshape(10, 2)
LABELS = np.array([0, 1] * 5)


def load(folder: Path, *, options: dict[str, Any] | None = None, **arrays: Any) -> Dataset:
    np.savez(folder / "mine.npz", **({"x": FEATURES, "y": LABELS} | arrays))
    return Arrays("mine.npz", **(options or {})).load(folder, seed=0)


def test_features_are_split_by_class_and_standardised(tmp_path: Path) -> None:
    data = load(tmp_path)
    assert (len(data.x), len(data.x_test)) == (8, 2)
    assert sorted(data.y_test) == [0, 1]
    assert data.x.dtype == np.float32
    np.testing.assert_allclose(data.x.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(data.x.std(axis=0), 1, atol=1e-6)
    assert (data.name, data.num_classes, data.is_image) == ("mine", 2, False)


def test_standardisation_can_be_disabled(tmp_path: Path) -> None:
    data = load(tmp_path, options={"standardise": False})
    both = np.concatenate([data.x, data.x_test])
    assert sorted(both[:, 0]) == FEATURES[:, 0].tolist()


def test_given_test_arrays_are_used(tmp_path: Path) -> None:
    x_test, y_test = np.array([[1.0, 2.0]]), np.array([1])
    data = load(tmp_path, x_test=x_test, y_test=y_test, options={"standardise": False})
    np.testing.assert_array_equal(data.x, FEATURES)
    np.testing.assert_array_equal(data.x_test, x_test)
    assert data.y_test.tolist() == [1]


def test_images_stay_bytes_and_get_a_scale_per_channel(tmp_path: Path) -> None:
    images = np.zeros((4, 2, 2, 2), dtype=np.uint8)
    images[:2, ..., 0] = 255  # channel 0: half of it white
    images[..., 1] = 51  # channel 1: the same everywhere
    data = load(tmp_path, x=images, y=LABELS[:4], x_test=images, y_test=LABELS[:4])
    assert data.x.dtype == np.uint8
    assert data.mean == pytest.approx((0.5, 0.2))
    assert data.std == pytest.approx((0.5, 1.0))
    assert data.input_shape == (2, 2, 2)


def test_grey_images_need_no_channel_axis(tmp_path: Path) -> None:
    assert load(tmp_path, x=np.zeros((10, 6, 5), dtype=np.uint8)).x.shape == (8, 6, 5, 1)


def test_text_labels_and_clients_are_numbered_in_sorted_order(tmp_path: Path) -> None:
    y = np.array(["no", "yes"] * 5)
    data = load(tmp_path, y=y, client=np.array(["b", "a"] * 5), time=np.arange(10))
    assert data.class_names == ("no", "yes")
    assert data.client_names == ("a", "b")
    assert data.y.tolist() == [0, 1] * 4
    assert data.client is not None
    assert data.client.tolist() == [1, 0] * 4
    assert data.client_test is not None
    assert data.client_test.tolist() == [1, 0]


def test_time_array_puts_the_end_of_each_history_in_the_test_part(tmp_path: Path) -> None:
    time = np.arange("2026-01-01", "2026-01-11", dtype="datetime64[D]")
    data = load(tmp_path, time=time, client=np.repeat([7, 9], 5), options={"standardise": False})
    assert data.x_test[:, 0].tolist() == [8.0, 18.0]  # rows 4 and 9
    assert data.time is not None
    assert data.time[1] - data.time[0] == 86_400
    assert data.client_names == ("7", "9")


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({"x": FEATURES[:, 0]}, r"expected x to be uint8 images .* got float64 of shape \(10,\)"),
        ({"x": np.zeros((10, 4, 4), complex)}, "got complex128 of shape"),
        ({"x": np.zeros((10, 0))}, "x has no values"),
        ({"x": np.full((10, 2), "a")}, "got <U1 of shape"),
        ({"y": LABELS[:9]}, r"expected y of shape \(10,\), one entry for each row, got \(9,\)"),
        ({"y": LABELS * 1j}, "expected y to be whole numbers or text, got complex128"),
        ({"y": np.where(LABELS, np.nan, 0.5)}, "the target in row 1 is nan; expected a finite"),
        ({"y": np.zeros((10, 0))}, r"numbers of shape \(n,\) or \(n, D\)"),
        ({"y": LABELS * 0}, "every y is 0; expected at least two classes"),
        ({"client": np.zeros(3)}, r"expected client of shape \(10,\)"),
        ({"client": np.zeros(10)}, "expected client to be whole numbers or text"),
        ({"time": np.full(10, "a")}, "time, row 0 is 'a'; expected ISO 8601"),
        ({"time": np.array([0.0] * 9 + [np.inf])}, r"time\[9\] is inf"),
        ({"time": np.array(["NaT"] * 10, dtype="datetime64[s]")}, r"time\[0\] is NaT"),
        ({"x_test": FEATURES}, "expected x_test and y_test together"),
        ({"x_test": FEATURES[:, :1], "y_test": LABELS}, "expected x_test like x"),
        ({"x": np.array([[{}, 1]] * 10)}, "x is not an array of numbers or text"),
    ],
)
def test_mismatched_arrays_are_rejected(tmp_path: Path, arrays: Any, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(tmp_path, **arrays)
    assert "mine.npz" in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_non_finite_feature_is_reported_with_its_index(tmp_path: Path, value: float) -> None:
    x = FEATURES.copy()
    x[6, 1] = value
    with pytest.raises(DataError, match=r"mine.npz: x\[6, 1\] is "):
        load(tmp_path, x=x)
    with pytest.raises(DataError, match=r"mine.npz: x_test\[6, 1\] is "):
        load(tmp_path, x_test=x, y_test=LABELS)


def test_misspelt_array_name_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'clients'; known: .* Did you mean 'client'"):
        load(tmp_path, clients=LABELS)


def test_missing_array_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=FEATURES)
    with pytest.raises(DataError, match="expected x and y, but y is missing"):
        Arrays("mine.npz").load(tmp_path, seed=0)


def make_npz_bytes() -> bytes:
    with tempfile.TemporaryFile() as file:
        np.savez_compressed(file, x=FEATURES, y=LABELS)
        file.seek(0)
        return file.read()


SAVED = make_npz_bytes()


def load_bytes(content: bytes) -> Dataset:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mine.npz").write_bytes(content)
        return Arrays(f"{folder}/mine.npz").load(None, seed=0)


@settings(deadline=None)
@given(st.integers(0, len(SAVED) - 1))
def test_truncated_npz_file_is_rejected(length: int) -> None:
    with pytest.raises(DataError, match=r"mine.npz is not a readable \.npz file"):
        load_bytes(SAVED[:length])


@settings(deadline=None)
@given(st.integers(0, len(SAVED) - 1), st.integers(0, 7))
def test_npz_file_with_a_flipped_bit_is_rejected_or_read_correctly(byte: int, bit: int) -> None:
    content = bytearray(SAVED)
    content[byte] ^= 1 << bit
    try:
        data = load_bytes(bytes(content))
    except (DataError, ConfigError):  # a flipped letter of a name is an unknown name
        return
    np.testing.assert_array_equal(data.x, load_bytes(SAVED).x)


def test_npz_header_with_a_huge_shape_is_rejected(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999, 2), }"
    header = header.ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
        for name in ("x.npy", "y.npy"):
            archive.writestr(name, b"\x93NUMPY\x01\x00" + bytes([118, 0]) + header)
    with pytest.raises(DataError, match="x is not an array of numbers or text"):
        Arrays("mine.npz").load(tmp_path, seed=0)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Arrays("mine.npy"), "expected a path ending in .npz, got 'mine.npy'"),
        (lambda: Arrays("a.npz", test_fraction=0.0), r"test_fraction must lie in \(0, 1\), got 0"),
    ],
)
def test_invalid_arrays_options_are_rejected(make, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_fractional_targets_are_a_regression_and_stay_unscaled(tmp_path: Path) -> None:
    data = load(tmp_path, y=np.arange(10) / 4)
    assert (data.task, data.num_classes, data.num_outputs) == ("regression", 0, 1)
    assert data.y.dtype == np.float32
    assert sorted([*data.y, *data.y_test]) == (np.arange(10) / 4).tolist()
    assert data.class_names == ()


def test_several_target_columns_are_a_regression(tmp_path: Path) -> None:
    data = load(tmp_path, y=np.arange(30).reshape(10, 3))
    assert (data.task, data.num_outputs, data.y.shape) == ("regression", 3, (8, 3))


def test_given_task_overrides_the_inferred_one(tmp_path: Path) -> None:
    assert load(tmp_path, options={"task": "regression"}).task == "regression"
    whole = load(tmp_path, y=LABELS * 2.0, options={"task": "classification"})
    assert (whole.task, whole.class_names) == ("classification", ("0", "2"))
    with pytest.raises(ConfigError, match="unknown task 'regresion'"):
        Arrays("a.npz", task="regresion")  # type: ignore[arg-type]


def test_more_than_twenty_distinct_integers_need_an_explicit_task(tmp_path: Path) -> None:
    x, counts = np.zeros((5000, 2)), np.arange(5000) % 21  # as the counts of a bike counter
    message = r"21 distinct whole numbers in 5000 rows, from 0 to 20; .*'task': 'regression'"
    with pytest.raises(DataError, match=message):
        load(tmp_path, x=x, y=counts)
    with pytest.raises(DataError, match=message):
        load(tmp_path, x=x, y=counts.astype(float))
    assert load(tmp_path, x=x, y=counts, options={"task": "regression"}).task == "regression"
    assert load(tmp_path, x=x, y=counts, options={"task": "classification"}).num_classes == 21
    assert load(tmp_path, x=x, y=counts % 20).num_classes == 20
    assert load(tmp_path, x=x, y=counts.astype(str)).num_classes == 21  # text is always classes


def test_windows_are_scaled_by_channel(tmp_path: Path) -> None:
    x = np.arange(10 * 3 * 2, dtype=float).reshape(10, 3, 2) * [1.0, 100.0]
    np.savez(tmp_path / "windows.npz", x=x, y=np.arange(10) % 2)
    data = Arrays(str(tmp_path / "windows.npz")).load(None, 0)
    assert (data.kind, data.input_shape, data.x.dtype) == ("features", (3, 2), np.float32)
    np.testing.assert_allclose(data.x.std(axis=(0, 1)), 1, rtol=1e-5)
    np.testing.assert_allclose(data.x.mean(axis=(0, 1)), 0, atol=1e-6)
    assert np.isin(np.round(data.unscale(data.x), 3), x).all()
