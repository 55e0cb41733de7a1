"""Models tested as clients use them: each with its own mixture, on its own view of the test samples."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from thalweg.core.transforms import Plain, Transform
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.core.views import View, concepts_of
from thalweg.data import Dataset
from thalweg.engine.building import Embedded
from thalweg.engine.scored import Answered, at_clients, parts_of, scores_on, validated
from thalweg.evaluation import Turnout, client_tests, purity
from thalweg.evaluation.clients import Bools
from thalweg.recipes.state import Served
from thalweg.streams import HasViews


class Use(NamedTuple):
    """Which models each client uses, and how it sees the samples."""

    mixtures: Floats  # (N, models) rows sum to one
    views: Ints  # (N,)
    concepts: Ints | None  # (N,) the true ones; none: nobody speaks of concepts in this world


class ScoreBook:
    """What models say of the test samples in every view. Views that share their inputs are asked about once."""

    def __init__(self, federation: Embedded, models: Floats32, data: Dataset) -> None:
        self._federation, self._models, self._data = federation, models, data
        self._said: dict[tuple[int, Transform], Floats32] = {}

    @property
    def num_models(self) -> int:
        return len(self._models)

    def scores(self, view: int, models: Ints) -> Floats32:
        """(models, n, C) logarithms of the probabilities that some models give the classes."""
        return np.stack([self._of_one(view, model) for model in models.tolist()])

    def labels(self, view: int) -> Ints:
        """(n,) of the test samples, as the view has them."""
        return self._data.labels("test", self._rows(view))

    def _of_one(self, view: int, model: int) -> Floats32:
        key = (model, self._data.views[view].transform if self._data.views else Plain())
        if key not in self._said:
            rows = self._rows(view)
            self._said[key] = self._federation.scores(self._models[model], "test", rows)
        return self._said[key]

    def _rows(self, view: int) -> Ints:
        number = self._data.num_samples("test")
        return np.arange(view * number, (view + 1) * number)


def use_of(served: Served, federation: Embedded, rnd: int) -> Use:
    """How clients use what they are served after a round, counted from 0.

    If the bank does not say who uses what, everybody uses all models, as many as use each.
    """
    world = federation.crowd.world
    mixtures = served.mixtures
    if mixtures is None:
        mixtures = np.tile(served.shares, (world.num_clients, 1))
    if not isinstance(world, HasViews):
        return Use(mixtures, np.zeros(world.num_clients, dtype=np.int64), None)
    when = federation.crowd.clock(rnd)
    return Use(mixtures, world.view_of(when), world.concept_of(when))


def scored_as_used(
    book: ScoreBook,
    use: Use,
    federation: Embedded,
    data: Dataset,
    validation: float = 0.0,
    turnout: Turnout | None = None,
) -> dict[str, Any]:
    """Scores of the test set at all clients, with a part of it set aside for validation.

    Where clients see samples in views of their own, every one of them is tested on the whole test set, unless it
    has a part of that for itself.
    """
    world = federation.crowd.world
    for_test, for_choice = parts_of(data, validation)
    answered = _answered(book, use, federation, data, for_test, turnout)
    row: dict[str, Any] = dict(scores_on(for_test, answered, data, world, turnout))
    if for_choice is not None:
        chosen_by = _answered(book, use, federation, data, for_choice)
        row |= validated(scores_on(for_choice, chosen_by, data, world))
    if use.concepts is not None:
        row |= _of_concepts(answered.at_clients, use.concepts, data.views, data.num_classes)
        if use.mixtures.shape[1] > 1:
            row["purity"] = purity(use.mixtures.argmax(axis=1), use.concepts)
    return row


def _answered(
    book: ScoreBook,
    use: Use,
    federation: Embedded,
    data: Dataset,
    rows: Ints,
    turnout: Turnout | None = None,
) -> Answered:
    """Some test samples, as each client answers them."""
    world = federation.crowd.world
    used = np.flatnonzero(use.mixtures.any(axis=0))
    met = np.unique(use.views).tolist()
    scores = {view: book.scores(view, used)[:, rows] for view in met}
    labels = {view: book.labels(view)[rows] for view in met}
    has_own_part = world.clients_are_groups and data.group_test is not None

    def own(right: Bools) -> Floats:
        return at_clients(right, rows, data, world)

    mixtures, by_members = use.mixtures[:, used], None
    on_all = use.concepts is not None and not has_own_part
    everybody = client_tests(scores, labels, use.views, mixtures, None if on_all else own)
    if turnout is not None:
        mine = turnout.members
        by_members = client_tests(scores, labels, use.views[mine], mixtures[mine]).right
    return Answered(everybody.right, everybody.losses, everybody.at_clients, by_members)


def _of_concepts(
    accuracies: Floats, concepts: Ints, views: tuple[View, ...], num_classes: int
) -> dict[str, Any]:
    """The mean accuracy of the clients of each concept; None where nobody has it now."""
    number = int(concepts_of(views, num_classes).max()) + 1
    if number < 2:
        return {}
    of_each = [accuracies[concepts == concept] for concept in range(number)]
    return {"concept_accuracy": [float(mine.mean()) if len(mine) else None for mine in of_each]}
