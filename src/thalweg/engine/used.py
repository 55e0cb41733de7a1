"""Models tested as clients use them: each with its own mixture, on its own view of the test samples."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from thalweg.core.transforms import Plain, Transform
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.core.views import concepts_of
from thalweg.data import Dataset
from thalweg.engine.embedded import Embedded
from thalweg.engine.scored import Answered, at_clients, parts_of, scores_on, validated
from thalweg.evaluation import ClientTests, Turnout, client_tests, purity
from thalweg.evaluation.clients import Bools
from thalweg.evaluation.sessions import session_accuracy
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
    """Scores of the test set, averaged over the clients, with a part of it set aside for validation.

    Accuracy is that of a client on the whole test set as it sees it; only what is said of clients is about data
    like their own, as everywhere.
    """
    world = federation.crowd.world
    for_test, for_choice = parts_of(data, validation)
    tests = _tests(book, use, federation, data, for_test)
    members = None
    if turnout is not None:
        members = _in_session(book, use, federation, for_test, turnout)
    answered = Answered(tests.right, tests.losses, tests.at_clients, members)
    row: dict[str, Any] = dict(scores_on(for_test, answered, data, world, turnout))
    if for_choice is not None:
        chosen_by = _tests(book, use, federation, data, for_choice)
        answered = Answered(chosen_by.right, chosen_by.losses, chosen_by.at_clients)
        row |= validated(scores_on(for_choice, answered, data, world))
    if use.concepts is not None:
        row |= _of_concepts(tests.accuracies, use, data)
    return row


def _tests(
    book: ScoreBook, use: Use, federation: Embedded, data: Dataset, rows: Ints
) -> ClientTests:
    """Some test samples, as each client answers them."""

    def own(right: Bools, labels: Ints) -> Floats:
        return at_clients(right, labels, rows, data, federation.crowd.world)

    scores, labels, mixtures = _asked(book, use, rows)
    return client_tests(scores, labels, use.views, mixtures, own)


def _in_session(
    book: ScoreBook, use: Use, federation: Embedded, rows: Ints, turnout: Turnout
) -> float:
    """The mean over members of their accuracy on labels that some of them have, as each of them sees them."""
    members, mixes = turnout.members, federation.crowd.world.mixes

    def on_their_labels(right: Bools, labels: Ints) -> Floats:
        return np.full(len(members), session_accuracy(right, labels, mixes, turnout))

    scores, labels, mixtures = _asked(book, use, rows)
    found = client_tests(scores, labels, use.views[members], mixtures[members], on_their_labels)
    known = found.at_clients[~np.isnan(found.at_clients)]
    return float(known.mean()) if len(known) else float("nan")


def _asked(
    book: ScoreBook, use: Use, rows: Ints
) -> tuple[dict[int, Floats32], dict[int, Ints], Floats]:
    """Scores and labels of some samples in every view that somebody has, and the mixtures of the models in use."""
    used = np.flatnonzero(use.mixtures.any(axis=0))
    met = np.unique(use.views).tolist()
    scores = {view: book.scores(view, used)[:, rows] for view in met}
    labels = {view: book.labels(view)[rows] for view in met}
    return scores, labels, use.mixtures[:, used]


def _of_concepts(accuracies: Floats, use: Use, data: Dataset) -> dict[str, Any]:
    """The mean accuracy of the clients of each concept, and how well models divide clients by it.

    Nothing unless there are two of each; a concept that nobody has now has None.
    """
    concepts = use.concepts
    if concepts is None or len(np.unique(concepts)) < 2:
        return {}
    number = int(concepts_of(data.views, data.num_classes).max()) + 1
    of_each = [accuracies[concepts == concept] for concept in range(number)]
    means = [float(mine.mean()) if len(mine) else None for mine in of_each]
    row: dict[str, Any] = {"concept_accuracy": means}
    if use.mixtures.shape[1] > 1:
        row["purity"] = purity(use.mixtures.argmax(axis=1), concepts)
    return row
