from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from thalweg.core.errors import DataError
from thalweg.data import TinyImagenet, image_files

CLASSES = ("n03", "n01", "n02")  # as in the published list, not in order


def write(folder: Path) -> Path:
    """Write two training images and one test image per class; grey values encode them."""
    for c, code in enumerate(CLASSES):
        images = folder / "train" / code / "images"
        images.mkdir(parents=True)
        (images.parent / f"{code}_boxes.txt").write_text("not needed")
        for i in (1, 0):
            paint(images / f"{code}_{i}.JPEG", 60 + 40 * c + 10 * i)
    (folder / "val" / "images").mkdir(parents=True)
    lines = []
    for i, code in enumerate(("n02", "n03", "n01")):
        paint(folder / "val" / "images" / f"val_{i}.JPEG", 200 + 10 * i)
        lines.append(f"val_{i}.JPEG\t{code}\t0\t0\t63\t63\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "wnids.txt").write_text("\n".join(CLASSES) + "\n")
    (folder / "words.txt").write_text("n00\tentity\nn02\ttabby, tabby cat\nn01\tgoldfish\n")
    return folder


def paint(file: Path, grey: int, size: tuple[int, int] = (64, 64)) -> None:
    Image.new("RGB", size, (grey, grey, grey)).save(file, format="JPEG")


@pytest.mark.parametrize("layout", ["", "tiny-imagenet-200", "tiny-imagenet/tiny-imagenet-200"])
def test_tiny_imagenet_folder_is_found_in_every_layout(tmp_path: Path, layout: str) -> None:
    write(tmp_path / "mine" / layout)
    data = TinyImagenet().load(tmp_path / "mine", seed=0)
    assert (data.x.shape, data.x.dtype) == ((6, 64, 64, 3), np.uint8)
    assert data.y.tolist() == [0, 0, 1, 1, 2, 2]
    # In order of the codes: n01 is the second of the list, then n02, n03.
    assert data.x[:, 9, 9, 0].tolist() == [100, 110, 140, 150, 60, 70]
    assert data.y_test.tolist() == [1, 2, 0]
    assert data.x_test[:, 9, 9, 1].tolist() == [200, 210, 220]
    assert data.class_names == ("goldfish", "tabby", "n03")
    assert data.num_classes == 3
    assert data.input_shape == (3, 64, 64)


def test_tiny_imagenet_grey_images_become_rgb(tmp_path: Path) -> None:
    file = write(tmp_path) / "val" / "images" / "val_1.JPEG"
    Image.new("L", (64, 64), 7).save(file, format="JPEG")
    assert TinyImagenet().load(tmp_path, seed=0).x_test[1, 3, 3].tolist() == [7, 7, 7]


def test_tiny_imagenet_images_are_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "tiny-imagenet-200")
    first = TinyImagenet().load(tmp_path, seed=0)
    assert len(list((tmp_path / "cache" / "tiny-imagenet").iterdir())) == 2

    def fail_to_decode(*files: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(image_files, "_decode_images", fail_to_decode)
    second = TinyImagenet().load(tmp_path, seed=0)
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.x_test, second.x_test)


def test_validation_images_follow_the_order_of_the_annotations(tmp_path: Path) -> None:
    folder = write(tmp_path)
    TinyImagenet().load(tmp_path, seed=0)  # the cache of this order must not be used below
    (folder / "val" / "val_annotations.txt").write_text("val_2.JPEG\tn01\t\nval_0.JPEG\tn02\t\n")
    data = TinyImagenet().load(tmp_path, seed=0)
    assert data.y_test.tolist() == [0, 1]
    assert data.x_test[:, 0, 0, 0].tolist() == [220, 200]


@pytest.mark.parametrize("fault", ["larger", "text", "cut", "png"])
def test_invalid_tiny_imagenet_images_are_rejected_with_their_name(
    tmp_path: Path, fault: str
) -> None:
    file = write(tmp_path) / "train" / "n02" / "images" / "n02_1.JPEG"
    if fault == "larger":
        paint(file, 9, (64, 65))
    elif fault == "text":
        file.write_text("not an image")
    elif fault == "cut":
        file.write_bytes(file.read_bytes()[:650])
    else:
        Image.new("RGB", (64, 64)).save(file, format="PNG")
    with pytest.raises(DataError, match=r"n02_1.JPEG: expected a JPEG image of 64 x 64 pixels"):
        TinyImagenet().load(tmp_path, seed=0)


@pytest.mark.parametrize(
    "file, content, message",
    [
        ("wnids.txt", "n01\nn02\nn03\nn04\n", "CLASS/images for each of the 4 .* first is n04"),
        ("wnids.txt", "n01\nn02\nn01\n", "each once, got 3 lines with 2 classes"),
        ("wnids.txt", "", "expected lines, got none"),
        ("wnids.txt", "n01\n\nn02\n", "line 2: expected 1 columns"),
        ("words.txt", "n01 goldfish\n", "line 1: expected 2 columns with a tab .* 'n01 goldfish'"),
        ("val/val_annotations.txt", "val_9.JPEG\tn01\n", "line 1: .* got val_9.JPEG and n01"),
        ("val/val_annotations.txt", "val_0.JPEG\tn09\n", "line 1: .* got val_0.JPEG and n09"),
    ],
)
def test_lists_that_do_not_match_the_images_are_rejected(
    tmp_path: Path, file: str, content: str, message: str
) -> None:
    (write(tmp_path) / file).write_text(content)
    with pytest.raises(DataError, match=message):
        TinyImagenet().load(tmp_path, seed=0)


def test_lists_that_are_not_text_are_rejected(tmp_path: Path) -> None:
    (write(tmp_path) / "wnids.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match=r"wnids.txt is not a readable text file"):
        TinyImagenet().load(tmp_path, seed=0)


def test_incomplete_tiny_imagenet_folder_is_rejected(tmp_path: Path) -> None:
    (write(tmp_path / "tiny-imagenet-200") / "words.txt").unlink()
    with pytest.raises(DataError, match=r"4 of the 5 parts of Tiny ImageNet; missing: words.txt"):
        TinyImagenet().load(tmp_path, seed=0)


def test_missing_tiny_imagenet_folder_gives_one_message_with_remedies(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)Tiny ImageNet is not on this machine.*--data-dir"):
        TinyImagenet().locate(tmp_path)
