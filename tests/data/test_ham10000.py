from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from thalweg.core.errors import ConfigError, DataError
from thalweg.data import Ham10000
from thalweg.data.ham10000 import COLUMNS, DIAGNOSES

NUMBERS = {"akiec": 0, "bcc": 1, "bkl": 2, "df": 3, "nv": 4, "vasc": 5, "mel": 6}  # as on Kaggle
CODES = [code for code in DIAGNOSES for _ in range(20)]  # 140 rows, 10 lesions of two images each


def pixels(n: int = len(CODES)) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, 2352))


def write(
    folder: Path, codes: list[str] = CODES, numbers: list[int] | None = None, columns=COLUMNS
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    numbers = [NUMBERS[code] for code in codes] if numbers is None else numbers
    rows = [",".join([*columns, "label"])]
    for row, number in zip(pixels(len(numbers)), numbers, strict=True):
        rows.append(",".join(map(str, [*row[: len(columns)], number])))
    (folder / "hmnist_28_28_RGB.csv").write_text("\n".join(rows) + "\n")
    rows = ["lesion_id,image_id,dx,dx_type,age,sex,localization"]
    rows += [f"HAM_{i // 2:07d},ISIC_{i},{code},histo,,male,ear" for i, code in enumerate(codes)]
    (folder / "HAM10000_metadata.csv").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ham")
    write(root / "ham10000")
    return root


def rows_of(images: np.ndarray) -> list[int]:
    """Return the indices of the written rows that these images show."""
    known = {row.astype(np.uint8).tobytes(): i for i, row in enumerate(pixels())}
    return [known[image.tobytes()] for image in images]


def test_ham10000_images_and_diagnoses_are_read(written: Path) -> None:
    data = Ham10000().load(written, seed=0)
    assert data.x.shape[1:] == (28, 28, 3)
    assert (data.x.dtype, data.num_classes) == (np.uint8, 7)
    assert data.class_names[4:6] == ("melanoma", "melanocytic nevus")
    codes = list(DIAGNOSES)
    assert [codes[label] for label in data.y] == [CODES[row] for row in rows_of(data.x)]
    assert [codes[label] for label in data.y_test] == [CODES[row] for row in rows_of(data.x_test)]


def test_ham10000_split_is_stratified_and_keeps_lesions_together(
    written: Path,
) -> None:
    data = Ham10000().load(written, seed=0)
    assert np.bincount(data.y_test).tolist() == [4] * 7
    train, test = rows_of(data.x), rows_of(data.x_test)
    assert sorted(train + test) == list(range(140))
    assert {row // 2 for row in train}.isdisjoint(row // 2 for row in test)


def test_ham10000_split_does_not_depend_on_the_seed(written: Path) -> None:
    one, two = (Ham10000().load(written, seed) for seed in (1, 2))
    np.testing.assert_array_equal(one.x_test, two.x_test)


def test_ham10000_files_with_different_row_order_are_rejected(tmp_path: Path) -> None:
    numbers = [NUMBERS[code] for code in CODES]
    numbers[33], numbers[77] = numbers[77], numbers[33]
    write(tmp_path / "ham10000", numbers=numbers)
    with pytest.raises(DataError, match="same rows in the same order: the labels of row 33"):
        Ham10000().load(tmp_path, seed=0)
    write(tmp_path / "ham10000", numbers=numbers[:-1])
    with pytest.raises(DataError, match=r"139 rows in hmnist_28_28_RGB\.csv but 140 in HAM10000"):
        Ham10000().load(tmp_path, seed=0)


def test_ham10000_label_used_for_two_diagnoses_is_rejected(tmp_path: Path) -> None:
    write(tmp_path / "ham10000", numbers=[0] * len(CODES))
    with pytest.raises(DataError, match="the labels of row 20 disagree with earlier rows"):
        Ham10000().load(tmp_path, seed=0)


def test_unknown_diagnosis_is_rejected(tmp_path: Path) -> None:
    write(tmp_path / "ham10000", codes=["nv", "flu"], numbers=[4, 5])
    with pytest.raises(DataError, match="unknown diagnosis 'flu' in column dx; known: akiec"):
        Ham10000().load(tmp_path, seed=0)


def test_ham10000_file_with_other_columns_is_rejected(tmp_path: Path) -> None:
    write(tmp_path / "ham10000", columns=COLUMNS[:784])
    with pytest.raises(DataError, match="pixel0000 to pixel2351 and label, got 785 columns"):
        Ham10000().load(tmp_path, seed=0)


@pytest.mark.parametrize("value", ["256", "-1", "x", ""])
def test_invalid_ham10000_pixel_is_rejected(tmp_path: Path, value: str) -> None:
    folder = write(tmp_path / "ham10000", codes=["nv", "mel"])
    file = folder / "hmnist_28_28_RGB.csv"
    head, first, second = file.read_text().splitlines()
    file.write_text("\n".join([head, value + first[first.index(",") :], second]))
    with pytest.raises(DataError, match=r"hmnist_28_28_RGB.csv: .*Nothing was loaded"):
        Ham10000().load(tmp_path, seed=0)


def test_incomplete_ham10000_folder_is_rejected(tmp_path: Path) -> None:
    (write(tmp_path / "ham10000", codes=["nv"]) / "HAM10000_metadata.csv").unlink()
    with pytest.raises(DataError, match="only 1 of the 2 parts of HAM10000; missing: HAM10000_met"):
        Ham10000().load(tmp_path, seed=0)


def test_missing_ham10000_files_give_one_message_with_remedies(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)HAM10000 is not on this machine.*kaggle.*--data-dir"):
        Ham10000().load(tmp_path, seed=0)


@pytest.mark.parametrize("fraction", [0.0, 1.0])
def test_invalid_test_fraction_is_rejected(fraction: float) -> None:
    with pytest.raises(ConfigError, match="test_fraction"):
        Ham10000(test_fraction=fraction)
