"""The result of a run: metrics, models and predictions. `load` reads it from a run folder."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError, RunError, UnknownName
from thalweg.core.metrics import (
    HEADLINES,
    Metric,
    choose_headline,
    describe_simple,
    get_metric,
    make_final_row,
)
from thalweg.core.remedies import format_setting
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.data.columns import read_names, to_arrow
from thalweg.data.preprocessing import Preprocessing
from thalweg.data.row_hashes import Hashes, hash_rows
from thalweg.engine.bank_file import read_bank
from thalweg.engine.plan import Plan, read_plan, with_model
from thalweg.engine.prediction import (
    compute_scores,
    find_loss,
    get_input_shape,
    make_trained_module,
)
from thalweg.engine.run_folder import RunFolder
from thalweg.federation import ServedModels
from thalweg.losses import count_outputs
from thalweg.nets import Net, build_net, load_parameters
from thalweg.nets.module import IN_PYTHON, Module

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.figure import Figure
    from torch import nn

MetricsRow = Mapping[str, Any]
FORMAT = 1  # of preprocessing.json
TRAINING_ROWS = "training_rows.safetensors"  # hashes of the training rows
NUM_LISTED = 2  # headline values in a repr
MAX_NAMES = 10  # clients in a message
ClientLike = int | str | Sequence[int | str] | npt.NDArray[Any] | None


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a run: metrics, the final model, and predictions for new rows."""

    plan: Plan
    metrics: list[MetricsRow]  # one per round
    net: Net
    model: Floats32  # (P,) the final model; of a bank, the one that most clients use
    folder: Path | None
    served: ServedModels
    """All models and their use by the clients, including those that clients keep themselves."""
    preprocessing: Preprocessing
    clients: tuple[str, ...]
    """Names of the clients; their numbers if they have no names."""
    alarms: MetricsRow | None = None  # scores of the recipe's alarm; None without an alarm
    task: str = ""  # such as "regression, 1 output"
    is_time_ordered: bool = False  # samples arrive in the order of their times
    simple_scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """On data of the user: the metrics of predictions that use no features, by their name."""
    training_rows: Hashes | None = None  # of the training samples; None: not known

    @property
    def final(self) -> MetricsRow:
        """The metrics of the last round, which is always evaluated.

        Those of arriving samples (test-then-train) are over the samples of all rounds, as in tables
        and in the summary of the command line.
        """
        return make_final_row(self.metrics)

    def table(self) -> pa.Table:
        """Return the metrics as an Arrow table with one row per round."""
        import pyarrow as pa

        names = dict.fromkeys(name for row in self.metrics for name in row)
        return pa.table({name: [row.get(name) for row in self.metrics] for name in names})

    def to_pandas(self) -> Any:
        """Return the metrics as a pandas frame with one row per round."""
        return table_to_pandas(self.table())

    def predict(self, X: Any, client: ClientLike = None) -> npt.NDArray[Any]:
        """Return predictions (n,) for raw rows: names of classes, class numbers, or numbers.

        `X` is an array or a tensor with the columns of the training data, or a table (pandas,
        Polars, Arrow, or a mapping of names to columns) that contains them; it is encoded and
        scaled as the training data. With several outputs, the result is (n, D).

        `client` is the number or the name of a client, or a sequence of them, one for each row: the
        model or the mixture of models of the client predicts. Without it, the client column of `X`
        gives the client of each row if clients have different models (`has_client_models`) and
        `X` is a table with this column; otherwise the model that most clients use predicts.

        >>> import thalweg
        >>> result = thalweg.run("fedavg", "digits-partial", rounds=2)
        >>> result.predict(np.zeros((3, 8, 8, 1), dtype=np.uint8)).shape
        (3,)
        """
        return self.preprocessing.decode(self._compute_scores(X, client))

    def predict_proba(self, X: Any, client: ClientLike = None) -> Floats32:
        """Return the probabilities (n, C) of the classes; arguments as in `predict`.

        The columns follow `preprocessing.class_names`.
        """
        if self.preprocessing.task == "regression":
            raise ConfigError(
                "probabilities need classes, but this model predicts numbers "
                f"({self.task or 'regression'}). Use predict."
            )
        found: Floats32 = np.exp(self._compute_scores(X, client))
        return found

    def module(self, client: int | str | None = None) -> nn.Module:
        """Return a new ``torch.nn.Module`` with the trained weights, in evaluation mode.

        Of a user's module it is a copy of this module. Its `forward` takes the inputs of the net:
        features that `preprocessing.transform` returns, normalised images (B, C, H, W), or codes.
        `client` is as in `predict`; a client with a mixture of several models has no single module.
        """
        return make_trained_module(self.net, self.get_model(client))

    def get_model(self, client: int | str | None = None) -> Floats32:
        """Return the parameters (P,) of the model of a client, or of that of most clients."""
        used = np.flatnonzero(self.get_mixture(client))
        if len(used) > 1:
            raise ConfigError(
                f"client {client} uses a mixture of {len(used)} models (recipe "
                f"{self.plan.recipe.name}); expected a client with one model. Use predict(X, "
                "client), or export it (thalweg export RUN --to model.pt2 --client NAME)."
            )
        return np.asarray(self.served.models[used[0]])

    def get_mixture(self, client: int | str | None = None) -> Floats:
        """Return (models,) the weight of each model at a client, or of that of most clients."""
        number = None if client is None else self._find_client(client)
        if number is not None and self.served.mixtures is not None:
            return np.asarray(self.served.mixtures.get_rows([number])[0])
        weights = np.zeros(len(self.served.models))
        weights[int(self.served.shares.argmax())] = 1.0
        return weights

    def plot(self) -> Figure:
        """Return a figure of the headline metrics over the rounds.

        It shows the metric on the test set and that of test-then-train, if the run has both.
        """
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for metric in self._headlines:
            rows = [row for row in self.metrics if row.get(metric.name) is not None]
            rounds, values = [row["round"] for row in rows], [row[metric.name] for row in rows]
            label = metric.get_note(repeats_rows=self.plan.scenario.repeats_rows)
            axes.plot(rounds, values, marker="." if len(rows) < 30 else None, label=label)
        axes.set(xlabel="round", title=self.plan.title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(loc="outside lower left", fontsize="small", frameon=False)
        return figure

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {value:.4f}" for name, value in self._headline_values())
        where = "not saved" if self.folder is None else str(self.folder)
        return f"<Result: {self.plan.title}, {len(self.metrics)} rounds: {values}; {where}>"

    def _repr_html_(self) -> str:
        rows = {
            "recipe": self.plan.recipe.name,
            "data": f"{self.plan.scenario.name}, seed {self.plan.seed}",
            "task": self.task,
            "rounds": str(len(self.metrics)),
            **{name: f"{value:.4f}" for name, value in self._headline_values()},
            **self._simple_rows(),
            "folder": "not saved" if self.folder is None else str(self.folder),
        }
        return rows_to_html(rows)

    @property
    def _headlines(self) -> list[Metric]:
        """The declarations of the headline metrics that the run has."""
        own = self.plan.scenario.own_metrics
        measured = {
            name for row in self.metrics for name, value in row.items() if value is not None
        }
        first = choose_headline(
            measured,
            is_time_ordered=self.is_time_ordered,
            requested=self.plan.scenario.headline,
        )
        found = [name for name in dict.fromkeys([first, *HEADLINES]) if name in measured]
        return [own.get(name) or get_metric(name) for name in found[:NUM_LISTED]]

    def _simple_rows(self) -> dict[str, str]:
        metric = self._headlines[0].name
        return {
            describe_simple(name): f"{scores[metric]:.4f}"
            for name, scores in self.simple_scores.items()
            if metric in scores
        }

    def _headline_values(self) -> list[tuple[str, float]]:
        values = [(each.column, each.aggregate(self.metrics)) for each in self._headlines]
        return [(name, value) for name, value in values if value is not None]

    @property
    def has_client_models(self) -> bool:
        """Whether clients predict with different models, or different mixtures of models."""
        mixtures = self.served.mixtures
        return mixtures is not None and not mixtures.equal(self.get_mixture()).all()

    def find_client_column(self, X: Any) -> list[str] | None:
        """Return the client of each row of a table; None: there is no such column."""
        name = self.preprocessing.client_column
        table = None if not name or isinstance(X, np.ndarray) else to_arrow(X)
        if table is None or name not in table.column_names:
            return None
        return read_names(table, name, "the table")

    def count_training_rows(self, X: Any) -> int | None:
        """Return how many rows have the features of a training row; None: it is not known.

        It is known for data of the user that are not memory-mapped.
        """
        if self.training_rows is None:
            return None
        found = np.isin(hash_rows(self.preprocessing.transform(X)), self.training_rows)
        return int(found.sum())

    def _compute_scores(self, X: Any, client: ClientLike) -> Floats32:
        if client is None and self.has_client_models:
            client = self.find_client_column(X)
        if client is None or isinstance(client, int | str | np.integer):
            mixture = self.get_mixture(client)
            return self.score_samples(self.preprocessing.transform(X), mixture)
        numbers = self._find_clients(client)
        samples = self.preprocessing.transform(X)
        if len(numbers) != len(samples):
            raise ConfigError(
                f"client: expected one client, or one for each of {len(samples)} rows, got "
                f"{len(numbers)}."
            )
        scores = self.score_samples(samples, self.get_mixture())
        for number in np.unique(numbers):
            rows = np.flatnonzero(numbers == number)
            scores[rows] = self.score_samples(samples[rows], self.get_mixture(int(number)))
        return scores

    def _find_clients(self, given: Sequence[Any] | npt.NDArray[Any]) -> Ints:
        """Return (n,) the numbers of the clients of rows."""
        given = np.asarray(given).tolist()
        known = {name: number for number, name in enumerate(self.clients)}
        names = [self.clients[each] if _is_number(each, len(known)) else each for each in given]
        unknown = dict.fromkeys(str(name) for name in names if name not in known)
        if unknown:
            number = sum(name not in known for name in names)
            raise ConfigError(
                f"{number} of {len(names)} rows belong to clients without a model: "
                f"{_shorten(list(unknown))}; known: {_shorten(self.clients)}. Correct the clients, "
                f"choose one client for all rows ({format_setting('client', 'NAME')}), or leave "
                "the column out to use the model that most clients use."
            )
        return np.array([known[name] for name in names], dtype=np.int64)

    def score_samples(self, samples: npt.NDArray[Any], mixture: Floats) -> Floats32:
        """Return log-probabilities (n, C), or numbers (n, D), of samples after preprocessing.

        `mixture` (models,) is that of `get_mixture`.
        """
        loss = find_loss(self.plan.scenario, self.preprocessing)
        parts = (self.net, self.served.models, mixture, loss, self.preprocessing)
        return compute_scores(*parts, samples)

    def _find_client(self, client: int | str) -> int:
        if isinstance(client, str):
            if client not in self.clients:
                raise UnknownName("client", client, self.clients)
            return self.clients.index(client)
        if not 0 <= client < len(self.clients):
            raise ConfigError(
                f"client: expected a number from 0 to {len(self.clients) - 1} or a name such as "
                f"{self.clients[0]!r}, got {client}."
            )
        return int(client)


def _is_number(client: Any, num_clients: int) -> bool:
    return isinstance(client, int) and 0 <= client < num_clients


def _shorten(names: Sequence[str]) -> str:
    more = f", ... {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def rows_to_html(rows: Mapping[str, str]) -> str:
    """Return a table of names and values as HTML; all texts are escaped.

    >>> rows_to_html({"data": "<b>"})
    '<table><tr><th>data</th><td>&lt;b&gt;</td></tr></table>'
    """
    lines = [
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items()
    ]
    return f"<table>{''.join(lines)}</table>"


def table_to_pandas(table: pa.Table) -> Any:
    """Return an Arrow table as a `pandas.DataFrame`, if pandas is installed."""
    import importlib.util

    if importlib.util.find_spec("pandas") is None:
        raise ConfigError(
            "to_pandas needs the package pandas, which is not installed: pip install pandas. "
            "table() returns an Arrow table without it."
        )
    return table.to_pandas()


def write_preprocessing(folder: RunFolder, rules: Preprocessing, clients: tuple[str, ...]) -> None:
    """Write ``preprocessing.json``."""
    plain = {"format": FORMAT, "clients": list(clients), "preprocessing": rules.to_dict()}
    folder.write_json("preprocessing.json", plain)


def load(folder: str | PathLike[str], *, model: Any = None) -> Result:
    """Return the result of a finished run from its folder, without its data.

    A model that was passed to `thalweg.run` as an object and cannot be imported is passed again as
    `model`: the same class or instance; its weights are those of the run.

    >>> import tempfile, thalweg
    >>> out = tempfile.mkdtemp() + "/run"
    >>> before = thalweg.run("fedavg", "digits-partial", rounds=1, out=out)
    >>> bool((thalweg.load(out).model == before.model).all())
    True
    """
    path = Path(folder)
    if not (path / "plan.toml").is_file():
        raise RunError(
            f"{path}: expected the folder of a run with a plan.toml, found "
            f"{'none in it' if path.is_dir() else 'no such folder'}. Runs are saved with "
            "thalweg.run(..., out=FOLDER), or by the command thalweg run."
        )
    plan = read_plan(path)
    store = RunFolder(path)
    metrics: list[MetricsRow] = list(store.metrics())
    store.check_results()
    if not store.is_finished(plan.scenario.rounds):
        raise RunError(
            f"{path}: expected a finished run, but {len(metrics)} of {plan.scenario.rounds} rounds "
            f"are done. Continue it first: thalweg run {shlex.quote(str(path))} --resume"
        )
    rules, clients = _read_preprocessing(path)
    net = _build_net(plan, rules, model, path)
    params = load_parameters(path / "model.safetensors", net)
    served = read_bank(path, net) or ServedModels(params[None], np.ones(1))
    summary = store.summary()
    return Result(
        plan=plan,
        metrics=metrics,
        net=net,
        model=params,
        folder=path,
        served=served,
        preprocessing=rules,
        clients=clients,
        alarms=summary.get("alarms"),
        task=summary.get("task", ""),
        is_time_ordered=summary.get("is_time_ordered", False),
        simple_scores=summary.get("simple_scores", {}),
        training_rows=_read_training_rows(path),
    )


def _read_training_rows(path: Path) -> Hashes | None:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    file = path / TRAINING_ROWS
    try:
        return load_file(file)["hashes"] if file.is_file() else None
    except (OSError, KeyError, SafetensorError) as error:
        raise RunError(
            f"{file} is not a readable safetensors file ({error}). Remove it: it is needed only to "
            "count training rows among predicted ones."
        ) from error


def read_client_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the clients of a finished run; empty if the run has not stored them."""
    if not (folder / "preprocessing.json").is_file():
        return ()
    return _read_preprocessing(folder)[1]


def _read_preprocessing(path: Path) -> tuple[Preprocessing, tuple[str, ...]]:
    file = path / "preprocessing.json"
    again = f"Run the plan again: thalweg run {shlex.quote(str(path / 'plan.toml'))}"
    try:
        plain = json.loads(file.read_text())
        found = plain["format"]
        if found == FORMAT:
            clients = msgspec.convert(plain["clients"], tuple[str, ...])
            return Preprocessing.from_dict(plain["preprocessing"]), clients
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{file} is damaged ({type(error).__name__}: {error}). {again}") from error
    raise RunError(f"{file}: expected format {FORMAT}, got {found}. {again}")


def _build_net(plan: Plan, rules: Preprocessing, model: Any, path: Path) -> Net:
    scenario = with_model(plan.scenario, model, {})
    spec = scenario.net
    if isinstance(spec, Module) and spec.path.startswith(IN_PYTHON) and spec.source is None:
        raise ConfigError(
            f"the model {spec.name} of {path} was passed as an object from Python and cannot be "
            "imported here. Pass the same model: thalweg.load(FOLDER, model=MODEL). For the "
            "command line, put it into a file and train with --model FILE.py:NAME."
        )
    if isinstance(spec, Module) and spec.path.partition(":")[0].endswith(".py"):
        _check_file_exists(spec, path)
    loss = find_loss(scenario, rules)
    num_outputs = count_outputs(loss, rules.num_outputs)
    return build_net(spec, get_input_shape(rules), num_outputs, rules.num_codes)


def _check_file_exists(spec: Module, path: Path) -> None:
    file = Path(spec.path.rpartition(":")[0])
    if spec.source is None and not file.is_file():
        raise ConfigError(
            f"the model of {path} is in {file}, which does not exist here. Change to the folder in "
            "which the run was started, or pass the model: thalweg.load(FOLDER, model=MODEL)."
        )
