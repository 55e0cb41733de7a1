"""The learners of a baseline on the arrivals and on the test set of a scenario."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.baselines import Baseline, Learner, Majority, NoChange
from thalweg.baselines.simple import Mean
from thalweg.core.errors import require
from thalweg.core.metrics import HEADLINES, make_final_row
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32, Ints
from thalweg.data import Dataset
from thalweg.engine.builders import apply_views, make_timetable, make_world
from thalweg.engine.metrics import sample_bytes
from thalweg.engine.plan import BaselinePlan, Plan
from thalweg.engine.scores import get_session_context, score_predictions, split_test_set
from thalweg.evaluation.numbers import score_numbers
from thalweg.streams import World

TEST_BATCH = 4096  # test samples that are read at once
BEFORE_ROUND = -1  # the tick of samples that arrived before the round


def knows_test_clients(data: Dataset, world: World) -> bool:
    """Return whether the test samples belong to clients."""
    return world.has_clients_of_data and data.client_test is not None


def can_score_test_set(plan: BaselinePlan, data: Dataset, world: World) -> bool:
    """Return whether a baseline has scores on the test set.

    It has none with sessions and with several views of the data, if it needs the label of the
    previous sample, and if there is one learner per client, the learners use the features and the
    clients of the test samples are unknown.
    """
    learner, scenario = plan.baseline.learner, plan.scenario
    return (
        len(data.y_test) > 0
        and not data.views
        and scenario.sessions is None
        and not getattr(learner, "needs_last_label", False)
        and (
            plan.baseline.pooled
            or getattr(learner, "ignores_features", False)
            or knows_test_clients(data, world)
        )
    )


def score_simple_predictions(plan: Plan, data: Dataset) -> dict[str, dict[str, float]]:
    """Return the scores of predictions that use no features, on the data of a run.

    ``majority`` (classification) and ``mean`` (regression) predict from all labels so far, and
    ``no-change`` repeats the last label of a client. Labels become known at the end of a round, as
    in a federation.
    """
    if data.is_sequence or data.y.ndim > 1:
        return {}
    scenario = replace(plan.scenario, prequential=max(plan.scenario.prequential, 1))
    first = Mean() if data.task == "regression" else Majority()
    name = "mean" if data.task == "regression" else "majority"
    found = {}
    for baseline in (Baseline(name, first, pooled=True), Baseline("no-change", NoChange())):
        online = OnlineBaseline(BaselinePlan(baseline, scenario, plan.seed), data)
        rows = [online.run_round(rnd) for rnd in range(scenario.rounds)]
        final = make_final_row(rows) | online.evaluate()
        wanted = ("accuracy", "mae") if plan.scenario.prequential == 0 else HEADLINES
        found[baseline.name] = {metric: final[metric] for metric in wanted if metric in final}
    return {name: scores for name, scores in found.items() if scores}


class RoundSamples(NamedTuple):
    """Samples of one round, in the order of arrival."""

    rows: Ints  # (n,) of the data set
    clients: Ints  # (n,)
    is_tested: list[bool]  # False for samples that arrived before the round


class OnlineBaseline:
    """The learners of all clients, and the streams that they are tested and trained on."""

    def __init__(self, plan: BaselinePlan, data: Dataset) -> None:
        require(
            not data.is_sequence,
            f"baselines need features or images, but the samples of {data.name} are sequences of "
            "codes; choose other data.",
        )
        task = getattr(plan.baseline.learner, "task", data.task)
        require(
            task == data.task and data.y.ndim == 1,
            f"baseline {plan.baseline.name} is for {task} with one target, but the targets of "
            f"{data.name} are for {data.task}, of shape {data.y.shape}. Baselines of a regression: "
            "running-mean, no-change, river-linear and river-tree-regressor.",
        )
        self._world: World = make_world(plan.scenario, data, plan.seed)
        self._plan, self._data = plan, apply_views(data, self._world)
        self._num_features = int(np.prod(data.x.shape[1:]))
        self._timetable = make_timetable(plan, self._world.num_clients)
        self._streams: dict[int, tuple[Any, int]] = {}  # client -> stream state, rounds
        self._learners: dict[int, Learner] = {}
        self._get_learner(0)  # fails if its package is missing
        self._ignores_features = getattr(plan.baseline.learner, "ignores_features", False)

    def run_round(self, rnd: int) -> dict[str, Any]:
        """Run one round: the clients that are present predict and learn their arrivals."""
        present, session_context = (
            self._world.present(rnd),
            get_session_context(self._timetable, rnd),
        )
        if self._timetable is not None:
            members = self._timetable.session(rnd).members
            present = np.intersect1d(present, members, assume_unique=True)
        samples = self._collect_arrivals(rnd, present.tolist())
        errors = self._test_and_train(samples)
        row: dict[str, Any] = {"round": rnd + 1, "cohort": len(present)}
        if session_context is not None:
            row |= {
                "session": session_context.session,
                "session_round": session_context.session_round,
            }
        if errors and self._data.task == "regression":
            row["prequential_mae"] = sum(errors) / len(errors)
        elif errors:
            row["prequential_accuracy"] = errors.count(0) / len(errors)
        row |= {"tested": len(errors)} if errors else {}
        sent = len(samples.rows) * sample_bytes(self._data) if self._plan.baseline.pooled else 0
        return {**row, "bytes_down": 0, "bytes_up": sent}

    def evaluate(self) -> dict[str, float]:
        """Return the scores on the test set; empty if `can_score_test_set` is False.

        A sample of a known client is predicted by the learner of its client. Otherwise the scores
        are averaged over the learners.
        """
        if not can_score_test_set(self._plan, self._data, self._world):
            return {}
        rows = [self._score(predicted) for predicted in self._predict_test_set()]
        return {name: fmean(row[name] for row in rows) for name in rows[0]} if rows else {}

    def _predict_test_set(self) -> list[npt.NDArray[Any]]:
        """Return predictions (n,) of the whole test set, by one or by each of the learners."""
        number = len(self._data.y_test)
        if self._ignores_features and not self._has_owners:
            nothing = np.zeros(0, dtype=np.float32)
            return [np.full(number, each.predict(nothing)) for each in self._learners.values()]
        owners = self._data.client_test if self._has_owners else None
        predicted = []
        for start in range(0, number, TEST_BATCH):
            rows = np.arange(start, min(start + TEST_BATCH, number))
            samples = self._inputs(rows, "test")
            clients = [0] * len(rows) if owners is None else owners[rows].tolist()
            predicted += [
                self._get_learner(client).predict(x)
                for client, x in zip(clients, samples, strict=True)
            ]
        return [np.array(predicted)]

    @property
    def _has_owners(self) -> bool:
        return knows_test_clients(self._data, self._world) and not self._plan.baseline.pooled

    def _score(self, predicted: npt.NDArray[Any]) -> dict[str, float]:
        validation = self._plan.scenario.validation
        if self._data.task == "regression":
            rows, _ = split_test_set(self._data, validation)
            return score_numbers(predicted[rows], self._data.y_test[rows])
        unknown = np.full(len(predicted), np.nan, dtype=np.float32)  # there are no losses
        found = score_predictions(predicted, unknown, self._data, self._world, validation)
        return {name: value for name, value in found.items() if name != "test_loss"}

    def _test_and_train(self, met: RoundSamples) -> list[float]:
        """Return the absolute error of each tested sample, predicted before it was learnt.

        It is 0 for a correct label.
        """
        samples = self._inputs(met.rows, "train")
        labels = self._data.labels("train", met.rows).tolist()
        learners = [self._get_learner(client) for client in met.clients.tolist()]
        errors = []
        at_once = self._plan.baseline.feedback == "sample"
        for learner, x, label, is_tested in zip(
            learners, samples, labels, met.is_tested, strict=True
        ):
            if is_tested:
                errors.append(abs(learner.predict(x) - label))
            if at_once:
                learner.learn(x, label)
        if not at_once:
            for learner, x, label in zip(learners, samples, labels, strict=True):
                learner.learn(x, label)
        return errors

    def _collect_arrivals(self, rnd: int, present: list[int]) -> RoundSamples:
        """Return the samples of a round, ordered by tick and by the time of the data, if any."""
        parts: list[tuple[Ints, int, int, int]] = []  # rows, client, tick, number tested
        for client in present:
            if client not in self._streams:
                state, start = self._world.begin(client)
                held = start.items[: self._world.capacity(client)]  # samples from the start
                parts.append((held, client, BEFORE_ROUND, 0))
                self._streams[client] = (state, 0)
            state, stream_round = self._streams[client]
            while self._world.collects_when_absent and stream_round < rnd:
                state, arrivals = self._world.emit(state, client, stream_round)
                parts += [(arrival.items, client, BEFORE_ROUND, 0) for arrival in arrivals]
                stream_round += 1
            state, arrivals = self._world.emit(state, client, stream_round)
            for tick, arrival in enumerate(arrivals):
                parts.append((arrival.items, client, tick, self._plan.scenario.prequential))
            self._streams[client] = (state, stream_round + 1)
        return self._sort_by_time(parts)

    def _sort_by_time(self, parts: list[tuple[Ints, int, int, int]]) -> RoundSamples:
        none = np.empty(0, dtype=np.int64)
        rows = np.concatenate([none, *(items for items, *_ in parts)])
        clients = np.concatenate([none, *(np.full(len(i), client) for i, client, _, _ in parts)])
        ticks = np.concatenate([none, *(np.full(len(i), tick) for i, _, tick, _ in parts)])
        tested = np.concatenate([none, *(np.arange(len(i)) < most for i, _, _, most in parts)])
        time = np.zeros(len(rows))
        if self._data.time is not None:
            time = self._data.time[rows % self._data.num_samples("train")]  # in any view
        order = np.lexsort((time, ticks))
        return RoundSamples(rows[order], clients[order], tested[order].astype(bool).tolist())

    def _get_learner(self, client: int) -> Learner:
        baseline = self._plan.baseline
        owner = 0 if baseline.pooled else client
        if owner not in self._learners:
            seed = int(rng_for(self._plan.seed, Draw.BASELINE, 0, owner).integers(2**31))
            self._learners[owner] = baseline.learner.begin(self._data.num_classes, seed)
        return self._learners[owner]

    def _inputs(self, rows: Ints, part: Literal["train", "test"]) -> Floats32:
        """Return float32 features (n, F); pixels of images lie in [0, 1].

        A learner that ignores them gets none, so that large data are not read.
        """
        if self._ignores_features:
            return np.zeros((len(rows), 0), dtype=np.float32)
        seen = self._data.samples(part, rows)
        samples = seen.reshape(len(rows), self._num_features).astype(np.float32)
        return samples / np.float32(255) if self._data.is_image else samples
