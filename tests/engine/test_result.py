"""Results: predictions, modules, run folders that are loaded again, and messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import thalweg
from contracts.runs import Interruption, interrupt_after
from thalweg.core.errors import ConfigError, DataError, RunError, UnknownName
from thalweg.core.mixtures import Mixtures
from thalweg.data import Dataset
from thalweg.engine import result as result_module
from thalweg.engine.result import Result, table_to_pandas

ROWS = 60


def make_table() -> dict[str, Any]:
    """Class "old" above age 50; two towns; clients a and b."""
    age = np.linspace(20, 80, ROWS)
    return {
        "age": age,
        "town": ["Ulm", "Bonn", "Bonn"] * (ROWS // 3),
        "who": ["a", "b"] * (ROWS // 2),
        "group": np.where(age > 50, "old", "young"),
    }


def make_data() -> Dataset:
    return Dataset.from_frame(make_table(), label="group", client="who")


def run_table(**options: Any) -> Result:
    settings: dict[str, Any] = {"rounds": 4, "local": {"lr": 0.5}, **options}
    return thalweg.run("fedavg", make_data(), model="linear", **settings)


class Small(nn.Module):
    """A module with statistics of batches and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.last = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.norm(x))
        return found


def test_raw_rows_are_predicted_by_class_names(tmp_path: Path) -> None:
    result = run_table()
    found = result.predict({"town": ["Ulm", "Bonn"], "age": [25.0, 75.0]})
    assert found.tolist() == ["young", "old"]
    shares = result.predict_proba({"town": ["Ulm"], "age": [25.0]})
    assert shares.shape == (1, 2)
    assert shares.sum() == pytest.approx(1.0)
    assert shares[0, 1] > 0.5  # classes are in sorted order: old, young


def test_loaded_run_predicts_the_same_without_data(tmp_path: Path) -> None:
    before = run_table(out=tmp_path / "run")
    after = thalweg.load(tmp_path / "run")
    rows = make_table()
    assert np.array_equal(before.predict_proba(rows), after.predict_proba(rows))
    assert np.array_equal(before.predict(rows, client="b"), after.predict(rows, client=1))
    assert after.clients == ("a", "b")
    assert (after.final, after.task, after.plan) == (before.final, before.task, before.plan)


def test_accuracy_on_test_rows_is_that_of_the_run() -> None:
    result = thalweg.run("fedavg", "digits-partial", rounds=2)
    data = result.plan.scenario.data.load(None, 0)
    assert np.mean(result.predict(data.x_test) == data.y_test) == pytest.approx(
        result.final["accuracy"]
    )


def test_module_of_a_built_in_net_gives_the_outputs_of_the_net() -> None:
    result = run_table()
    x = torch.tensor(result.preprocessing.transform(make_table()))
    with torch.no_grad():
        outputs = result.module()(x)
    assert torch.equal(outputs, result.net.apply(torch.tensor(result.model), x))
    assert list(result.module().state_dict()) == list(result.net.named_parameters(result.model))


def test_module_of_a_user_has_trained_weights_and_statistics(tmp_path: Path) -> None:
    start = Small()
    arrivals = {"arrivals": 8}
    result = thalweg.run(
        "fedavg", make_data(), model=start, rounds=2, out=tmp_path / "run", world=arrivals
    )
    module = result.module()
    assert type(module) is Small
    assert not module.training
    assert not torch.equal(module.norm.running_mean, start.norm.running_mean)
    x = torch.tensor(result.preprocessing.transform(make_table()))
    with torch.no_grad():
        predicted = np.take(result.preprocessing.class_names, module(x).argmax(1).numpy())
    assert predicted.tolist() == result.predict(make_table()).tolist()
    with pytest.raises(ConfigError, match=r"thalweg.load\(FOLDER, model=MODEL\)"):
        thalweg.load(tmp_path / "run")
    loaded = thalweg.load(tmp_path / "run", model=Small)
    assert np.array_equal(loaded.model, result.model)
    with pytest.raises(ConfigError, match="belongs to another net"):
        thalweg.load(tmp_path / "run", model=nn.Linear(3, 2))


@pytest.mark.filterwarnings("ignore::thalweg.data.checks.DataWarning")
@pytest.mark.parametrize("recipe", ["local-only", "fine-tuned"])
def test_each_client_predicts_with_its_own_model(recipe: str, tmp_path: Path) -> None:
    """The clients have opposite labels, so that their models disagree everywhere."""
    x = np.array([[-1.0], [1.0]] * 40)
    who = np.repeat([0, 1], 40)
    data = Dataset.from_arrays(x, (x[:, 0] > 0) ^ (who == 1), client=who)
    settings: dict[str, Any] = {
        "rounds": 4,
        "local": {"lr": 0.5, "passes": 5},
        "world": {"arrivals": 10},
        "out": tmp_path / "run",
    }
    for result in (
        thalweg.run(recipe, data, model="linear", **settings),
        thalweg.load(tmp_path / "run"),
    ):
        first, second = (result.predict(x[:2], client=k).tolist() for k in (0, 1))
        assert first == second[::-1]
        assert first[0] != first[1]
        assert not np.array_equal(result.get_model(0), result.get_model(1))


def test_mixtures_are_means_of_probabilities() -> None:
    result = run_table()
    served = result.served._replace(
        models=np.stack([result.model, -result.model]),
        shares=np.array([1.0, 0.0]),
        mixtures=Mixtures.from_rows(np.array([[0.5, 0.5], [0.0, 1.0]])),
    )
    mixed = replace(result, served=served)
    both = mixed.predict_proba(make_table(), client="a")
    assert both == pytest.approx(0.5 * np.ones((ROWS, 2)), abs=1e-6)  # p and 1 - p
    assert mixed.predict(make_table(), client="b").tolist() != result.predict(make_table()).tolist()
    with pytest.raises(ConfigError, match="a mixture of 2 models"):
        mixed.module("a")


@pytest.mark.filterwarnings("ignore::thalweg.data.checks.DataWarning")
def test_numbers_are_predicted(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 80)[:, None]
    data = Dataset.from_arrays(x, 3 * x[:, 0], client=np.arange(80) % 2)
    settings: dict[str, Any] = {"local": {"lr": 0.1, "passes": 5}, "world": {"arrivals": 10}}
    result = thalweg.run(
        "fedavg", data, model="linear", rounds=10, out=tmp_path / "run", **settings
    )
    assert result.predict([[0.5]]) == pytest.approx([1.5], abs=0.4)
    assert thalweg.load(tmp_path / "run").predict([[0.5]]) == result.predict([[0.5]])
    with pytest.raises(ConfigError, match="probabilities need classes"):
        result.predict_proba([[0.5]])


def test_one_logit_predicts_both_classes() -> None:
    result = run_table(loss="binary_cross_entropy")
    shares = result.predict_proba(make_table())
    assert shares.shape == (ROWS, 2)
    assert set(result.predict(make_table())) == {"old", "young"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"age": [1.0]}, "column town is missing; expected the columns age, town, got age"),
        ({"age": [1.0], "town": ["Rom"]}, "is 'Rom'; expected one of Bonn, Ulm"),
        ({"age": ["x"], "town": ["Ulm"]}, "expected numbers"),
        (np.zeros((2, 5)), r"expected float32 of shape \(n, 3\).*; got an array of shape \(2, 5\)"),
    ],
)
def test_unsuitable_rows_are_rejected(rows: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        run_table(rounds=1).predict(rows)


def test_unknown_clients_are_rejected() -> None:
    result = run_table(rounds=1)
    with pytest.raises(UnknownName, match="unknown client 'c'; known: a, b"):
        result.predict(make_table(), client="c")
    with pytest.raises(ConfigError, match="a number from 0 to 1 or a name such as 'a', got 2"):
        result.predict(make_table(), client=2)


def test_incomplete_folders_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such folder"):
        thalweg.load(tmp_path / "none")
    folder = tmp_path / "run"
    run_table(rounds=1, out=folder)
    for name in ("preprocessing.json", "model.safetensors", "summary.json"):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        with pytest.raises(RunError, match=rf"damaged: {name} \(missing\)\. Restore .* --resume"):
            thalweg.load(folder)
        (folder / name).write_bytes(content.replace(b"0", b"1", 1))
        with pytest.raises(RunError, match=rf"damaged: {name} \(its content was changed\)"):
            thalweg.load(folder)
        (folder / name).write_bytes(content)
    thalweg.load(folder)


def test_an_unfinished_run_is_rejected(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interruption):
        run_table(rounds=2, out=folder, watch=interrupt_after(1))
    with pytest.raises(RunError, match=r"1 of 2 rounds are done.*thalweg run .*run --resume"):
        thalweg.load(folder)


def test_preprocessing_of_another_format_is_rejected(tmp_path: Path, monkeypatch) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as newer:
        newer.setattr(result_module, "FORMAT", 9)
        run_table(rounds=1, out=folder)
    with pytest.raises(RunError, match="expected format 1, got 9"):
        thalweg.load(folder)


def test_texts_name_recipe_data_values_and_folder(tmp_path: Path) -> None:
    result = run_table(out=tmp_path / "run")
    text = repr(result)
    assert "fedavg on" in text
    assert f"accuracy {result.final['accuracy']:.4f}" in text
    assert str(tmp_path / "run") in text
    assert len(text) < 200 + len(str(tmp_path))
    assert "<th>recipe</th><td>fedavg</td>" in result._repr_html_()


def test_figure_shows_test_and_arriving_rows() -> None:
    result = run_table(evaluate_every=1)
    (axes,) = result.plot().axes
    assert [len(line.get_xdata()) for line in axes.lines] == [4, 4]
    assert axes.get_xlabel() == "round"


def test_legend_of_the_figure_is_outside_of_the_curves() -> None:
    figure = run_table(evaluate_every=1).plot()
    figure.draw_without_rendering()
    (axes,), (legend,) = figure.axes, figure.legends
    assert axes.get_legend() is None
    assert not legend.get_window_extent().overlaps(axes.get_tightbbox())
    assert figure.bbox.x1 > legend.get_window_extent().x1


def test_pandas_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    import pyarrow as pa

    with pytest.raises(ConfigError, match="pip install pandas"):
        table_to_pandas(pa.table({"a": [1]}))


def test_clients_keep_their_own_statistics() -> None:
    settings: dict[str, Any] = {"world": {"arrivals": 8}, "net": {"buffers": "local"}}
    result = thalweg.run("fedavg", make_data(), model=Small(), rounds=2, **settings)
    means = [result.module(client).get_buffer("norm.running_mean") for client in (None, "a", "b")]
    assert not torch.equal(means[1], means[2])
    assert torch.allclose(means[0], (means[1] + means[2]) / 2, atol=1e-5)
    assert torch.equal(result.module("a").last.weight, result.module("b").last.weight)


def test_metrics_become_a_pandas_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = run_table(rounds=2).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["round"].tolist() == [1, 2]
