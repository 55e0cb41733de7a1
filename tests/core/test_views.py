"""Views: a transform of the input and a permutation of the labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError
from thalweg.core.transforms import Mirrored, Plain, Rotated
from thalweg.core.views import View, concept_map, concepts_of, distinct_views


def test_first_four_concepts_equal_those_of_the_paper() -> None:
    maps = [concept_map(concept, 10).tolist() for concept in range(4)]
    classes = range(10)
    assert maps[0] == list(classes)
    assert maps[1] == [9 - y for y in classes]
    assert maps[2] == [(y + 1) % 10 for y in classes]
    assert maps[3] == [(y + 2) % 10 for y in classes]


@given(num_classes=st.integers(2, 30), data=st.data())
def test_each_concept_is_a_permutation_of_labels(num_classes: int, data: st.DataObject) -> None:
    concept = data.draw(st.integers(0, num_classes))
    labels = np.array(data.draw(st.lists(st.integers(0, num_classes - 1), max_size=40)), dtype=int)
    changed = View(labels=concept).label_map(num_classes)[labels]
    before, after = (np.bincount(y, minlength=num_classes) for y in (labels, changed))
    assert sorted(before) == sorted(after)
    assert np.array_equal(after[concept_map(concept, num_classes)], before)


@given(num_classes=st.integers(2, 30))
def test_number_of_concepts_is_one_more_than_classes(num_classes: int) -> None:
    views = [View(labels=concept) for concept in range(num_classes + 1)]
    found = set(concepts_of(views, num_classes).tolist())
    assert len(found) == (num_classes + 1 if num_classes > 2 else 2)


@pytest.mark.parametrize(
    "view, message",
    [
        (View(labels=4), "with 3 classes there are concepts 0 to 3, got 4"),
        (View(labels=(0, 1)), "do not fit 3 classes; expected 3 numbers"),
        (View(labels=(0, 1, 3)), "each from 0 to 2"),
        (View(labels=()), "do not fit 3 classes"),
    ],
)
def test_label_maps_of_another_number_of_classes_are_rejected(view: View, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        view.label_map(3)


@pytest.mark.parametrize("labels", [-1, (0, -1)])
def test_negative_labels_are_rejected(labels: Any) -> None:
    with pytest.raises(ConfigError, match="counted from 0"):
        View(labels=labels)


def test_views_with_the_same_labels_have_the_same_concept() -> None:
    views = [View(), View(Rotated(90)), View(labels=1), View(Mirrored(), (2, 1, 0)), View(labels=0)]
    assert concepts_of(views, 3).tolist() == [0, 0, 1, 1, 0]


def test_distinct_views_are_unique_and_start_with_the_plain_view() -> None:
    turned = View(Rotated(90), 1)
    found, places = distinct_views([turned, View(labels=2), turned, View(labels=(0, 1, 2))], 3)
    assert found == (View(), View(Rotated(90), (2, 1, 0)), View(labels=(1, 2, 0)))
    assert places == [1, 2, 1, 0]


def test_resolve_gives_a_label_map_or_none() -> None:
    assert View(labels=1).resolve(3).labels == (2, 1, 0)
    assert View(labels=(0, 1, 2)).resolve(3).labels is None
    assert View(Mirrored()).resolve(3) == View(Mirrored())


@pytest.mark.parametrize("view", [View(), View(Rotated(30.0), 2), View(Plain(), (1, 0))])
def test_view_round_trips_through_a_dict(view: View) -> None:
    assert from_dict(View, to_dict(view)) == view


def test_view_fields_can_be_overridden() -> None:
    words = ["transform=rotated", "transform.degrees=30", "labels=[1, 0]"]
    assert with_overrides(View(), words) == View(Rotated(30.0), (1, 0))
