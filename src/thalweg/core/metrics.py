"""All metrics, declared once.

A run writes one row of metrics per round. This module declares the name, the unit and the meaning
of every metric. Terminal tables, HTML pages, CSV columns, figures and ``docs/reference-metrics.md``
are derived from these declarations.

To add a metric, declare it here and put its value into the row of a round where it is computed. A
metric that is not declared, such as one of a user-defined policy, is shown under its own name
(`get_metric`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

Unit = Literal["share", "count", "number", "bytes", "MB", "s", "record"]
Place = Literal["run", "table", "figure", "bank figure", "study", "policy table"]


@dataclass(frozen=True)
class Metric:
    """One metric: its name, what it means, how it is aggregated and where it is shown."""

    name: str
    """The key in ``metrics.jsonl`` and in the rows of a result."""
    description: str
    """What is measured, without a full stop."""
    unit: Unit = "number"
    """share: from 0 to 1, shown in per cent. record: a list or a table, not aggregated."""
    better: Literal["higher", "lower", ""] = ""
    over_rounds: Literal["last", "mean", "sum", "max"] = "last"
    """How the rounds of a run become one number; over seeds, mean and standard deviation."""
    weight: str = ""
    """The metric that weights the rounds of a mean; empty: all rounds count equally."""
    applies: str = "every round"
    """When a row has this metric."""
    heading: str = ""
    """The heading of its column; by default the name with spaces."""
    title: str = ""
    """The title of its panel in a figure; by default the description."""
    places: tuple[Place, ...] = ()
    """Where it is shown beside the metrics file."""
    sum_of: tuple[str, ...] = ()
    """The metrics of which this is the sum; rows then do not contain it."""
    divisor: float = 1.0
    """Of that sum."""
    redundant_with: str = ""
    """It is not shown where it equals this metric for every recipe."""
    tolerance: float = 1e-9
    """Differences up to this one count as equal."""
    note: str = ""
    """Text in the legend of a table."""
    note_if_repeated: str = ""
    """The same if a sample can arrive more than once; empty: `note`."""

    @property
    def column(self) -> str:
        return self.heading or self.name.replace("_", " ")

    @property
    def csv_field(self) -> str:
        """The beginning of its field names in CSV files."""
        return f"{self.name}_percent" if self.unit == "share" else self.name

    @property
    def scale(self) -> float:
        """The factor from the stored value to the shown one."""
        return 100.0 if self.unit == "share" else 1.0

    def get_note(self, *, repeats_rows: bool) -> str:
        """Return the text in a legend, which depends on whether samples can arrive again.

        >>> METRICS["prequential_mae"].get_note(repeats_rows=True)
        'arriving rows; some were seen before (test-then-train)'
        """
        return (self.note_if_repeated if repeats_rows else "") or self.note

    def aggregate(self, rows: Iterable[Mapping[str, Any]]) -> float | None:
        """One number for a run; None: no row has a finite value.

        A mean with a `weight`, such as that of test-then-train, is the mean over all samples: a
        round counts as often as its number of samples. Rows without this number, such as those of
        runs before it was recorded, count once each.

        >>> rows = [{"prequential_accuracy": 0.25, "tested": 4}, {},
        ...         {"prequential_accuracy": 0.75, "tested": 12}]
        >>> METRICS["prequential_accuracy"].aggregate(rows)
        0.625
        >>> METRICS["megabytes"].aggregate([{"bytes_up": 1_000_000, "bytes_down": 500_000}])
        1.5
        """
        if self.sum_of:
            total = sum(float(row.get(name, 0)) for row in rows for name in self.sum_of)
            return total / self.divisor
        known = [row for row in rows if is_measured(row.get(self.name))]
        if self.weight:
            known = [row for row in known if row.get(self.weight, 1) > 0]
        values = [float(row[self.name]) for row in known]
        if not values:
            return None
        match self.over_rounds:
            case "last":
                return values[-1]
            case "mean":
                counts = [float(row.get(self.weight, 1)) for row in known]
                return fmean(values, weights=counts if self.weight else None)
            case "sum":
                return sum(values)
            case "max":
                return max(values)


def make_final_row(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the metrics of the last round, with those of arriving samples over all rounds.

    >>> make_final_row([{"round": 1, "prequential_accuracy": 1.0, "tested": 1},
    ...                 {"round": 2, "prequential_accuracy": 0.0, "tested": 3}])
    {'round': 2, 'prequential_accuracy': 0.25, 'tested': 4}
    """
    found = {each.name: each.aggregate(rows) for each in METRICS.values() if each.weight}
    known: dict[str, Any] = {name: value for name, value in found.items() if value is not None}
    if tested := sum(row.get("tested", 0) for row in rows):
        known["tested"] = tested
    return {**rows[-1], **known}


_SIMPLE = {
    "majority": "predicting the majority class",
    "mean": "predicting the mean",
    "no-change": "repeating the last label",
}


def describe_simple(name: str) -> str:
    """Return a prediction without features in words.

    >>> describe_simple("majority")
    'predicting the majority class'
    """
    return _SIMPLE[name]


def is_measured(value: object) -> bool:
    """Whether a value of a row is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


_EVALUATED = "evaluated rounds, if there is a test set"
_SESSIONS = "evaluated rounds, if the scenario has sessions"
_SESSION_ERRORS = f"{_SESSIONS}, in a regression with known clients of the test samples"
_DRIFTS = "drifting streams"
_REQUESTED = "classification, evaluated rounds, if the scenario requests it (metrics)"
_REGRESSION = "regression, evaluated rounds, if there is a test set"

_DECLARED = (
    # Every round.
    Metric("round", "Number of the round, counted from 1", "count"),
    Metric("cohort", "Clients whose updates were used", "count", over_rounds="mean"),
    Metric(
        "loss",
        "Mean training loss of the clients",
        better="lower",
        applies="rounds with training",
    ),
    Metric(
        "session_accuracy",
        "Test accuracy on the labels of a session's members",
        "share",
        "higher",
        applies=_SESSIONS,
        heading="session",
        places=("run", "study"),
        note="accuracy on the labels of the session's members",
    ),
    Metric(
        "accuracy",
        "Test accuracy of the final model",
        "share",
        "higher",
        applies=_EVALUATED,
        title="Test accuracy",
        places=("run", "table", "figure", "study"),
        note="final model on held-out rows (test)",
    ),
    Metric(
        "best_accuracy",
        "Highest test accuracy of the evaluated rounds, chosen by the test set itself",
        "share",
        "higher",
        applies="derived from accuracy",
        places=("study",),
    ),
    Metric(
        "last_ten_accuracy",
        "Test accuracy averaged over the last ten evaluated rounds",
        "share",
        "higher",
        applies="derived from accuracy",
        places=("study",),
    ),
    Metric(
        "balanced_accuracy",
        "Test accuracy averaged over the classes, so that rare classes count as much as others",
        "share",
        "higher",
        applies=f"{_EVALUATED}; shown where it differs from accuracy by more than half a point",
        heading="balanced",
        places=("run", "table"),
        redundant_with="accuracy",
        tolerance=0.005,
        note="accuracy averaged over the classes, rare ones included",
    ),
    Metric(
        "test_loss",
        "Mean loss on the test set: the cross-entropy, or the loss of the scenario",
        better="lower",
        applies=_EVALUATED,
        heading="test loss",
        places=("run",),
        note="mean loss on the test set",
    ),
    Metric(
        "state_accuracy",
        "Test accuracy averaged over the latent states, weighted by their importance",
        "share",
        "higher",
        applies=f"{_EVALUATED} and several latent states",
        heading="mean state",
        places=("run", "table"),
        redundant_with="worst_state_accuracy",
        note="accuracy averaged over the latent states",
    ),
    Metric(
        "worst_state_accuracy",
        "Test accuracy in the latent state where it is lowest",
        "share",
        "higher",
        applies=f"{_EVALUATED} and several latent states",
        heading="worst state",
        title="Test accuracy in the worst latent state",
        places=("run", "table", "figure", "study"),
        redundant_with="state_accuracy",
        note="accuracy in the latent state where it is lowest",
    ),
    Metric(
        "client_accuracy",
        "Test accuracy of the final model on data distributed like each client's, averaged over "
        "clients",
        "share",
        "higher",
        applies=f"{_EVALUATED} and the distribution of the clients' data is known",
        heading="mean client",
        places=("run", "study"),
        note="accuracy on data like each client's, averaged",
    ),
    Metric(
        "worst_client_accuracy",
        "Test accuracy on data distributed like a client's, for the client where it is lowest",
        "share",
        "higher",
        applies=f"{_EVALUATED} and the distribution of the clients' data is known",
        heading="worst client",
        places=("run", "study"),
        note="accuracy on data like a client's, where it is lowest",
    ),
    Metric(
        "mean_client_accuracy",
        "Test accuracy on data distributed like each client's, averaged over clients and evaluated "
        "rounds",
        "share",
        "higher",
        "mean",
        applies="derived from client_accuracy",
        places=("study",),
    ),
    Metric(
        "prequential_accuracy",
        "Prequential (test-then-train) accuracy: on samples as they arrive, before training on "
        "them, averaged over all tested samples of the run",
        "share",
        "higher",
        "mean",
        "tested",
        applies="rounds in which samples arrive and are tested",
        heading="prequential",
        title="Prequential (test-then-train) accuracy",
        places=("run", "table", "figure", "study"),
        note="arriving rows before training on them (test-then-train)",
        note_if_repeated="arriving rows; some were seen before (test-then-train)",
    ),
    Metric(
        "mae",
        "Mean absolute error on the test set",
        better="lower",
        applies=_REGRESSION,
        title="Mean absolute error on the test set",
        heading="MAE",
        places=("run", "table", "figure", "study"),
        note="absolute error of the final model, held-out rows (test)",
    ),
    Metric(
        "rmse",
        "Root mean squared error on the test set",
        better="lower",
        applies=_REGRESSION,
        heading="RMSE",
        places=("run", "table"),
        note="root mean squared error on the test set",
    ),
    Metric(
        "r2",
        "Coefficient of determination on the test set: 1 is perfect, 0 is as good as the mean",
        better="higher",
        applies=f"{_REGRESSION} and the targets are not constant",
        heading="R2",
        places=("run", "table"),
        note="1 is perfect, 0 is as good as the mean",
    ),
    Metric(
        "client_mae",
        "Mean absolute error on the test samples of each client, averaged over clients",
        better="lower",
        applies=f"{_REGRESSION} and the clients of the test samples are known",
        heading="client MAE",
        places=("run", "study"),
        note="absolute error at each client, averaged",
    ),
    Metric(
        "worst_client_mae",
        "Mean absolute error on the test samples of a client, where it is highest",
        better="lower",
        applies=f"{_REGRESSION} and the clients of the test samples are known",
        heading="worst MAE",
        places=("run",),
        note="at the client where it is highest",
    ),
    Metric(
        "prequential_mae",
        "Prequential (test-then-train) mean absolute error: on samples as they arrive, before "
        "training on them, averaged over all tested samples of the run",
        "number",
        "lower",
        "mean",
        "tested",
        applies="regression, in rounds in which samples arrive and are tested",
        heading="prequential MAE",
        title="Prequential (test-then-train) mean absolute error",
        places=("run", "table", "figure", "study"),
        note="arriving rows before training on them (test-then-train)",
        note_if_repeated="arriving rows; some were seen before (test-then-train)",
    ),
    Metric(
        "tested",
        "Arriving samples that were predicted before training on them",
        "count",
        over_rounds="sum",
        applies="rounds in which samples arrive and are tested",
    ),
    Metric(
        "f1",
        "F1 score on the test set, averaged over the classes that it has",
        "share",
        "higher",
        applies=_REQUESTED,
        heading="F1",
        places=("run", "table"),
        note="F1 score, averaged over the classes",
    ),
    Metric(
        "auroc",
        "Area under the ROC curve on the test set; with several classes one against the rest, "
        "averaged over the classes that it has",
        "share",
        "higher",
        applies=_REQUESTED,
        heading="AUROC",
        places=("run", "table"),
        note="area under the ROC curve",
    ),
    Metric(
        "log_loss",
        "Mean negative log-probability of the right class on the test set",
        better="lower",
        applies=_REQUESTED,
        heading="log loss",
        places=("run", "table"),
        note="negative log-probability of the right class",
    ),
    Metric(
        "validation_mae",
        "Mean absolute error on the part of the test set by which variants are chosen",
        better="lower",
        applies="regression, evaluated rounds, if the scenario has a validation part",
    ),
    Metric("bytes_down", "Bytes sent from the server to the clients", "bytes", "lower", "sum"),
    Metric("bytes_up", "Bytes sent from the clients to the server", "bytes", "lower", "sum"),
    Metric(
        "megabytes",
        "Megabytes sent in both directions",
        "MB",
        "lower",
        "sum",
        applies="derived from bytes_up and bytes_down",
        heading="MB sent",
        places=("table", "study"),
        sum_of=("bytes_up", "bytes_down"),
        divisor=1e6,
        note="in both directions",
    ),
    Metric(
        "seconds",
        "Seconds of computing time",
        "s",
        "lower",
        "sum",
        heading="time, s",
        places=("table",),
    ),
    Metric(
        "core_seconds",
        "Processor seconds of the process that runs the rounds, over all its threads, without "
        "evaluation on the test set and without other processes in which clients train",
        "s",
        "lower",
        "sum",
        heading="core-seconds",
        places=("study",),
    ),
    Metric(
        "validation_accuracy",
        "Accuracy on the part of the test set by which variants are chosen",
        "share",
        "higher",
        applies="evaluated rounds, if the scenario has a validation part",
        places=("study",),
    ),
    Metric(
        "validation_client_accuracy",
        "client_accuracy on the part of the test set by which variants are chosen",
        "share",
        "higher",
        applies="evaluated rounds, if the scenario has a validation part",
        places=("study",),
    ),
    # Sessions.
    Metric("session", "Number of the session, counted from 0", "count", applies="sessions"),
    Metric("session_round", "Round of the session, counted from 1", "count", applies="sessions"),
    Metric(
        "stayers_accuracy",
        "Test accuracy at members that were members of the previous session, averaged over them",
        "share",
        "higher",
        applies=f"{_SESSIONS}, from the second session on",
        heading="stayers",
        places=("study",),
    ),
    Metric(
        "newcomers_accuracy",
        "Test accuracy at members that were not members of the previous session, averaged over "
        "them",
        "share",
        "higher",
        applies=f"{_SESSIONS}, from the second session on",
        heading="newcomers",
        places=("study",),
    ),
    Metric(
        "transition_accuracy",
        "Test accuracy on the labels of a session's members, averaged over its first ten rounds",
        "share",
        "higher",
        applies="sessions; derived from session_accuracy",
        places=("study",),
    ),
    Metric(
        "crossing_accuracy",
        "Mean of the last session_accuracy of the previous session, on the labels of its members, "
        "and of the session_accuracy of the first four rounds",
        "share",
        "higher",
        applies="sessions, from the second one on; derived from session_accuracy",
        places=("study",),
    ),
    Metric(
        "session_mae",
        "Mean absolute error on the test samples of a session's members, averaged over them",
        better="lower",
        applies=_SESSION_ERRORS,
        heading="session MAE",
        places=("run", "study"),
        note="absolute error at the session's members, averaged",
    ),
    Metric(
        "stayers_mae",
        "Mean absolute error at members that were members of the previous session, averaged over "
        "them",
        better="lower",
        applies=f"{_SESSION_ERRORS}, from the second session on",
        places=("study",),
    ),
    Metric(
        "newcomers_mae",
        "Mean absolute error at members that were not members of the previous session, averaged "
        "over them",
        better="lower",
        applies=f"{_SESSION_ERRORS}, from the second session on",
        places=("study",),
    ),
    Metric(
        "probe_rounds",
        "Probe rounds before the session",
        "count",
        over_rounds="sum",
        applies="first rounds of sessions whose start needs probe rounds",
        places=("policy table",),
    ),
    Metric(
        "probe_round_steps",
        "Local steps of the probe rounds",
        "count",
        over_rounds="sum",
        applies="first rounds of sessions whose start needs probe rounds",
    ),
    Metric(
        "blend",
        "Past sessions of which the first model is a blend: their numbers (sessions), distances of "
        "their fingerprints (distances) and weights (weights)",
        "record",
        applies="warm start, first rounds of sessions with past models",
    ),
    Metric(
        "judged",
        "Candidates for the first model of a session with their mean losses, the chosen one, and "
        "the numbers of clients that evaluated them and of stored models",
        "record",
        applies="session_start=judged, first rounds of sessions with several candidates",
    ),
    # Drift.
    Metric("drifted", "Clients that drifted in this round", "count", "", "sum", applies=_DRIFTS),
    Metric(
        "drifts", "Ids of the clients that drifted, by kind of drift", "record", applies=_DRIFTS
    ),
    Metric(
        "alarms",
        "Ids of the clients for which an alarm was raised",
        "record",
        applies="recipes with a drift detector",
    ),
    Metric(
        "decisions",
        "Decisions of adaptive policies: what was done (what), the reason, and numbers",
        "record",
        applies="recipes whose policies take decisions; in sentences: thalweg explain",
    ),
    Metric(
        "step_accuracy",
        "Test accuracy of the clients, each with its own models and its own view of the test set, "
        "averaged over clients and over the ends of the steps between drifts",
        "share",
        "higher",
        applies=f"{_DRIFTS}; derived from accuracy",
        places=("study",),
    ),
    Metric(
        "tasks",
        "Accuracy on every task, with the way in which the mixture of models was chosen",
        "record",
        applies="scenarios with tasks, at the end of steps",
    ),
    Metric(
        "task_accuracy",
        "Test accuracy on tasks after the last step",
        "share",
        "higher",
        applies="derived from tasks",
        places=("study",),
    ),
    Metric(
        "two_step_accuracy",
        "Mean of the accuracy on the current data and on those of the previous step, averaged over "
        "clients and over the ends of the steps (FedDAA, equation 1); the previous data are tasks",
        "share",
        "higher",
        applies="derived from accuracy and tasks",
        places=("study",),
    ),
    Metric(
        "forgetting",
        "Best accuracy on a task after any earlier step minus the accuracy after the last step, "
        "averaged over tasks (lower is better)",
        "share",
        "lower",
        applies="derived from tasks",
        places=("study",),
    ),
    Metric(
        "concept_accuracy",
        "Mean accuracy of the clients of each concept",
        "record",
        applies=f"{_DRIFTS} with several concepts",
    ),
    Metric(
        "purity",
        "Share of the clients whose concept is the most common one among the users of the same "
        "model",
        "share",
        "higher",
        "mean",
        applies="banks of several models, if the concepts are known",
    ),
    # Banks of models.
    Metric(
        "models",
        "Models in the bank",
        "count",
        applies="banks, in rounds with more than one model",
        places=("bank figure",),
    ),
    Metric(
        "clusters_found",
        "Clusters found",
        "count",
        applies="FedDAA, after its first clustering",
        places=("bank figure",),
    ),
    Metric(
        "drifts_found",
        "Clients found to have drifted",
        "count",
        over_rounds="sum",
        applies="FedDAA, in rounds with a clustering",
        places=("bank figure",),
    ),
    Metric(
        "judged_clients",
        "Ids of the clients that were tested for drift",
        "record",
        applies="FedDAA, in the first round of a step",
    ),
    Metric(
        "drifted_clients",
        "Ids of the clients found to have drifted",
        "record",
        applies="FedDAA, in the first round of a step",
    ),
    Metric(
        "drift_precision",
        "Share of the drifts found by the bank that are true drifts",
        "share",
        "higher",
        "mean",
        applies="FedDAA, in rounds with a clustering",
        heading="precision",
    ),
    Metric(
        "drift_recall",
        "Share of the true drifts that the bank found",
        "share",
        "higher",
        "mean",
        applies="FedDAA, in rounds with a clustering",
        heading="recall",
    ),
    # Unreliable and hostile clients.
    Metric(
        "missing",
        "Clients that did not respond in time",
        "count",
        "lower",
        "sum",
        applies="rounds with missing responses",
        places=("policy table",),
    ),
    Metric(
        "rejected",
        "Updates and responses that were rejected",
        "count",
        "lower",
        "sum",
        applies="rounds with rejections",
        places=("policy table",),
    ),
    Metric(
        "bounded",
        "Responses with implausible values, which were replaced by the median of all clients or "
        "reduced",
        "count",
        over_rounds="sum",
        applies="remote clients",
        places=("policy table",),
    ),
    Metric(
        "late",
        "Updates of earlier rounds that were used",
        "count",
        over_rounds="sum",
        applies="rounds with late updates",
        places=("policy table",),
    ),
    Metric(
        "mean_staleness",
        "Mean age of the late updates in rounds",
        better="lower",
        over_rounds="mean",
        applies="rounds with late updates",
        places=("policy table",),
    ),
    Metric(
        "hostile",
        "Hostile clients among those that responded",
        "count",
        over_rounds="sum",
        applies="scenarios with hostile clients",
        places=("policy table",),
    ),
    Metric(
        "too_few",
        "Rounds without a usable result because too few clients responded",
        "count",
        "lower",
        "sum",
        applies="robust aggregation and secure aggregation",
        places=("policy table",),
    ),
    Metric(
        "invalid_sum",
        "Rounds without a usable result because the masks could not be removed from the sum",
        "count",
        "lower",
        "sum",
        applies="secure aggregation with remote clients",
        places=("policy table",),
    ),
    Metric(
        "clipped",
        "Updates that were shortened to the largest allowed norm",
        "count",
        over_rounds="sum",
        applies="robust aggregation by norm clipping",
        places=("policy table",),
    ),
    # Privacy.
    Metric(
        "simulated_noise",
        "1 if privacy noise depends on the seed of a simulation and protects no data, 0 if "
        "devices draw it from their operating systems",
        "count",
        applies="recipes with privacy noise",
        places=("policy table",),
    ),
    Metric(
        "update_epsilon",
        "Privacy loss (epsilon) of the updates of one client against the server; losses, counts "
        "and predictions are not covered",
        better="lower",
        applies="recipes with privacy",
        places=("policy table",),
    ),
    Metric(
        "round_epsilon",
        "Privacy loss (epsilon) of all that one client sends in rounds and surveys, against the "
        "server",
        better="lower",
        applies="recipes with privacy that send nothing without noise",
        places=("policy table",),
    ),
    Metric(
        "model_epsilon",
        "Privacy loss (epsilon) of one client against those who see the models, but neither the "
        "seed nor who takes part",
        better="lower",
        applies="recipes with privacy, uniform selection and equal weights",
        places=("policy table",),
    ),
    Metric(
        "epsilon_spent_max",
        "Privacy loss (epsilon) of label counts, as reported by the clients and not verified by "
        "the server, highest of all clients",
        better="lower",
        applies="DPCS and balanced-cohort with label privacy",
        places=("policy table",),
    ),
    Metric(
        "epsilon_spent_mean",
        "Privacy loss (epsilon) of label counts, as reported by the clients and not verified by "
        "the server, averaged over clients",
        better="lower",
        applies="DPCS and balanced-cohort with label privacy",
        places=("policy table",),
    ),
    # Selection.
    Metric(
        "forecast_states",
        "Mean number of latent states that a client's forecast has learned",
        applies="forecasts that learn states",
    ),
    Metric(
        "loss_change",
        "Relative change of a candidate's loss on its memory by the samples that arrive in a round",
        "share",
        "lower",
        over_rounds="mean",
        applies="power-of-choice with selection.measure_change",
        places=("study", "policy table"),
    ),
    Metric(
        "serving_weights",
        "Mean weight of each kind of predictor at the clients: latest, averaged, trained, "
        "last_label, adjusted and model",
        "record",
        applies="recipes with serving, in evaluated rounds of simulations",
    ),
    Metric(
        "overdue",
        "Clients that entered the cohort because they had waited too long",
        "count",
        over_rounds="mean",
        applies="balanced-cohort",
    ),
    Metric(
        "cohort_mix",
        "Label distribution of the cohort",
        "record",
        applies="DPCS and balanced-cohort",
    ),
    *(
        Metric(
            f"{mix}_mix_{norm}",
            f"{norm.upper()} distance of the {mix} label distribution from the goal",
            better="lower",
            over_rounds="mean",
            applies="DPCS and balanced-cohort" if mix == "cohort" else "DPCS",
            places=("policy table",) if norm == "l2" else (),
        )
        for mix in ("cohort", "expected")
        for norm in ("l1", "l2")
    ),
)
METRICS: dict[str, Metric] = {metric.name: metric for metric in _DECLARED}


# The metrics by which runs are compared: the first one that a run has. On data that arrive in the
# order of time, the prequential ones come first: a test set is not what the model meets next.
HEADLINES = ("accuracy", "mae", "prequential_accuracy", "prequential_mae")
HEADLINE_WORDS = {
    "accuracy": "test accuracy",
    "mae": "mean absolute error",
    "prequential_accuracy": "test-then-train accuracy",
    "prequential_mae": "test-then-train mean absolute error",
}
HEADLINES_IN_TIME = ("prequential_accuracy", "prequential_mae", "accuracy", "mae")


def choose_headline(
    measured: Collection[str], *, is_time_ordered: bool, requested: str | None = None
) -> str:
    """Return the metric that ranks runs, is tested and is shown first.

    `measured` are the names of the metrics that some run has; `requested` is the headline of the
    scenario, which replaces the default.

    >>> both = {"accuracy", "prequential_accuracy"}
    >>> choose_headline(both, is_time_ordered=True)
    'prequential_accuracy'
    >>> choose_headline(both, is_time_ordered=False)
    'accuracy'
    >>> choose_headline(both, is_time_ordered=True, requested="f1")
    'f1'
    """
    if requested:
        return requested
    names = HEADLINES_IN_TIME if is_time_ordered else HEADLINES
    default = "prequential_accuracy" if measured else "accuracy"
    return next((name for name in names if name in measured), default)


def get_metric(name: str) -> Metric:
    """The declaration of a metric.

    Of an undeclared one, a default that shows it under its own name.

    >>> get_metric("accuracy").better, get_metric("my_metric").column
    ('higher', 'my metric')
    """
    return METRICS.get(name) or Metric(
        name,
        f"{name.replace('_', ' ').capitalize()} (not declared)",
        applies="user-defined",
        places=("policy table",),
    )


def metrics_in(place: Place) -> list[Metric]:
    """The declared metrics that are shown in a place, in the order of their declaration."""
    return [metric for metric in METRICS.values() if place in metric.places]


def is_redundant(metric: Metric, values: Sequence[Mapping[str, float | None]]) -> bool:
    """Whether a metric repeats another one in every one of some runs or summaries.

    >>> mean = METRICS["state_accuracy"]
    >>> is_redundant(mean, [{"state_accuracy": 0.5, "worst_state_accuracy": 0.5}])
    True
    >>> is_redundant(mean, [{"state_accuracy": 0.5, "worst_state_accuracy": 0.25}])
    False
    """
    if not metric.redundant_with:
        return False
    pairs = [(each.get(metric.name), each.get(metric.redundant_with)) for each in values]
    known = [(a, b) for a, b in pairs if a is not None]
    return all(b is not None and abs(a - b) <= metric.tolerance for a, b in known)


def find_undeclared(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names in some rows that are not declared."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name not in METRICS]


def to_markdown() -> str:
    """The page ``docs/reference-metrics.md``; ``python -m thalweg.core.metrics`` prints it."""
    lines = [
        "# Metrics",
        "",
        "Every round of a run writes one row of metrics into `metrics.jsonl`. This page lists all "
        "of",
        "them. It is generated from `src/thalweg/core/metrics.py`; do not edit it by hand:",
        "",
        "```",
        "python -m thalweg.core.metrics > docs/reference-metrics.md",
        "```",
        "",
        "Shares lie between 0 and 1; tables show them in per cent. *Over rounds* is how a table "
        "makes",
        "one number out of a run. Over seeds, tables show the mean and the standard deviation.",
        "Metrics that do not apply to a run are absent from its rows and from all tables.",
        "",
        "| name | unit | better | over rounds | description | applies to |",
        "|---|---|---|---|---|---|",
    ]
    for metric in METRICS.values():
        over: str = "" if metric.unit == "record" else metric.over_rounds
        over += f", weighted by {metric.weight}" if metric.weight else ""
        lines.append(
            f"| `{metric.name}` | {metric.unit} | {metric.better} | {over} | {metric.description} "
            f"| {metric.applies} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(to_markdown(), end="")
