from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from thalweg.core.errors import ThalwegError
from thalweg.data import Dataset, HuggingFace
from thalweg.scenarios import find_scenario

datasets = pytest.importorskip("datasets")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of datasets and its dependencies

N = 10


def make_images(sizes: list[int]) -> Any:
    features = datasets.Features(
        {
            "photo": datasets.Image(),
            "label": datasets.ClassLabel(names=["zebra", "lion", "ant"]),
            "camera": datasets.Value("string"),
        }
    )
    photos = [Image.new("RGB", (size, 4), (i, 0, 0)) for i, size in enumerate(sizes)]
    columns = {
        "photo": photos,
        "label": [2 * (i % 2) for i in range(len(sizes))],
        "camera": ["north", "south"] * (len(sizes) // 2),
    }
    return datasets.Dataset.from_dict(columns, features=features)


def make_table(**more: Any) -> Any:
    columns = {"age": [float(i) for i in range(N)], "ill": [0, 1] * 5, **more}
    return datasets.Dataset.from_dict(columns)


def test_images_become_bytes_and_class_labels_names() -> None:
    data = Dataset.from_huggingface(make_images([5] * N), label="label", client="camera")
    assert data.x.dtype == np.uint8
    assert data.x.shape == (8, 4, 5, 3)
    assert data.class_names == ("zebra", "ant")  # lion has no row
    assert data.client_names == ("north", "south")
    assert sorted([*data.x[:, 0, 0, 0], *data.x_test[:, 0, 0, 0]]) == list(range(N))


def test_images_of_different_sizes_are_rejected_with_a_remedy() -> None:
    with pytest.raises(ThalwegError, match=r"row 1 has the shape \(4, 6, 3\).*Resize"):
        Dataset.from_huggingface(make_images([5, 6] * 5), label="label")


def test_columns_of_numbers_are_a_table() -> None:
    times = [datetime(2026, 1, 1, i) for i in range(N)]
    data = Dataset.from_huggingface(make_table(at=times), label="ill", time="at", name="mine")
    assert data.columns == ("age",)
    assert data.name == "mine"
    assert data.time is not None
    assert np.diff(data.time).tolist() == [3600] * 7


def test_given_test_split_is_the_test_part() -> None:
    splits = datasets.DatasetDict(train=make_table(), test=make_table().select(range(4)))
    data = Dataset.from_huggingface(splits, label="ill", test_split="test", standardise=False)
    assert data.x[:, 0].tolist() == list(range(N))
    assert data.x_test[:, 0].tolist() == [0, 1, 2, 3]


def test_column_of_arrays_is_the_sample() -> None:
    windows = np.arange(60.0).reshape(N, 3, 2)
    given = datasets.Dataset.from_dict({"x": windows.tolist(), "y": [0, 1] * 5})
    data = Dataset.from_huggingface(given, label="y", standardise=False)
    assert data.x.shape == (8, 3, 2)
    with pytest.raises(ThalwegError, match=r"'x' holds arrays.*drop=\['x'\]"):
        Dataset.from_huggingface(given.add_column("z", [1.0] * N), label="y")


def test_long_texts_are_rejected_with_a_remedy() -> None:
    given = datasets.Dataset.from_dict(
        {"text": [f"review {i}" for i in range(60)], "label": [0, 1] * 30}
    )
    with pytest.raises(ThalwegError, match=r"60 different texts.*Encode it as numbers.*Drop it"):
        Dataset.from_huggingface(given, label="label")


def test_rows_without_a_label_are_rejected() -> None:
    features = datasets.Features(
        {"a": datasets.Value("int64"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    given = datasets.Dataset.from_dict({"a": [1, 2], "label": [-1, -1]}, features=features)
    with pytest.raises(ThalwegError, match=r"no label. Choose another split"):
        Dataset.from_huggingface(given, label="label")


def test_class_labels_among_the_features_are_categories() -> None:
    features = datasets.Features(
        {"kind": datasets.ClassLabel(names=["cat", "dog"]), "y": datasets.Value("int64")}
    )
    given = datasets.Dataset.from_dict({"kind": [0, 1] * 5, "y": [1, 0] * 5}, features=features)
    assert Dataset.from_huggingface(given, label="y").columns == ("kind=cat", "kind=dog")


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"label": "sick"}, r"unknown label column in hf:huggingface: 'sick'; known: age, ill"),
        ({"label": "ill", "split": "dev"}, r"unknown split of huggingface: 'dev'; known: train"),
        ({"label": "ill", "limit": 3}, r"unknown argument 'limit'"),
        ({"label": "ill", "image": "a", "features": ["age"]}, r"exclude each other"),
    ],
)
def test_invalid_arguments_are_rejected(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ThalwegError, match=text):
        Dataset.from_huggingface(datasets.DatasetDict(train=make_table()), **settings)


def test_stream_of_the_hub_is_rejected_with_a_remedy() -> None:
    with pytest.raises(ThalwegError, match=r"Load it without streaming=True"):
        Dataset.from_huggingface(make_table().to_iterable_dataset(), label="ill")


def test_saved_folder_is_a_scenario(tmp_path: Path) -> None:
    make_images([5] * N).save_to_disk(str(tmp_path / "photos"))
    scenario = find_scenario(f"hf:{tmp_path / 'photos'}")
    data = scenario.data.load(None, 0)
    assert data.x.shape == (8, 4, 5, 3)
    assert "/" not in scenario.name


def test_missing_cache_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(ThalwegError, match=r"Searched: .*the cache .*offline.*load_dataset\('mn'"):
        HuggingFace("mn").load(None, 0)


def test_local_files_are_read_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "a.csv").write_text("x,label\n" + "".join(f"{i},{i % 2}\n" for i in range(N)))
    options = {"data_files": str(folder / "a.csv"), "cache_dir": str(tmp_path / "cache")}
    built = datasets.load_dataset("csv", **options)
    data = Dataset.from_huggingface(built, label="label")
    assert (data.columns, len(data.y), data.class_names) == (("x",), 8, ("0", "1"))
    again = datasets.load_dataset("csv", **options)  # from the cache
    assert Dataset.from_huggingface(again, label="label").x.tolist() == data.x.tolist()
