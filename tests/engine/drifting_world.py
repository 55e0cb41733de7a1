"""A small world whose clients have different views, and models with given predictions."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from thalweg.core.transforms import Inverted
from thalweg.core.views import View, concepts_of
from thalweg.data import Dataset
from thalweg.streams import StateTable
from thalweg.streams.base import DriftEvent

# Two kinds of images, black and white; plain, with other labels, inverted, and both.
VIEWS = (
    View(),
    View(labels=(1, 0)),
    View(transform=Inverted()),
    View(transform=Inverted(), labels=(1, 0)),
)
X = np.array([0, 0, 0, 255], dtype=np.uint8).reshape(4, 1, 1, 1)
Y = np.array([0, 0, 0, 1])


def some_data(views=VIEWS) -> Dataset:
    """Four test samples: three black ones of class 0, a white one of class 1."""
    return Dataset("toy", X, Y, X, Y, 2, (0.5,), (0.5,), views=views)


@dataclass
class FakeWorld:
    """Client k has the view `plan[r][k]` from round r on."""

    plan: dict[int, list[int]]
    collects_when_absent: bool = True
    views: tuple[View, ...] = VIEWS
    has_clients_of_data: bool = False

    @property
    def num_clients(self):
        return len(self.plan[0])

    @property
    def state_table(self):
        return StateTable(np.array([[0.5, 0.5]]), np.ones(1))

    @property
    def mixes(self):
        return np.tile([1.0, 0.0], (self.num_clients, 1))

    def views_at(self, rnd):
        rounds = np.broadcast_to(rnd, self.num_clients)
        rows = [self.plan[max(r for r in self.plan if r <= now)] for now in rounds.tolist()]
        return np.array([row[client] for client, row in enumerate(rows)])

    def concepts_at(self, rnd):
        return concepts_of(self.views, 2)[self.views_at(rnd)]

    def drift_events(self):
        found = []
        for rnd in sorted(self.plan)[1:]:
            before, now = self.views_at(rnd - 1), self.views_at(rnd)
            found += [DriftEvent(rnd, int(k), "real") for k in np.flatnonzero(before != now)]
        return found


@dataclass
class FakeFederation:
    """Model m predicts class 1 for a pixel p with probability `class_one_probs[m][p > 127]`."""

    world: FakeWorld
    class_one_probs: list[list[float]]
    data: Dataset = field(default_factory=some_data)
    asked: list[tuple[int, int]] = field(default_factory=list)

    @property
    def client_pool(self):
        return SimpleNamespace(world=self.world, clock=lambda rnd: rnd, timetable=None)

    def scores_many(self, models, part, rows):
        return np.stack([self.scores(model, part, rows) for model in models])

    def scores(self, model, part, rows):
        self.asked.append((int(model[0]), len(rows)))
        white = (self.data.samples(part, rows).reshape(-1) > 127).astype(int)
        one = np.array(self.class_one_probs[int(model[0])])[white]
        return np.log(np.column_stack([1 - one, one])).astype(np.float32)

    @property
    def models(self):
        return np.arange(len(self.class_one_probs), dtype=np.float32)[:, None]
