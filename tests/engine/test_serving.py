"""Runs in which clients choose among predictors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import thalweg
from contracts.checkpoint import to_comparable
from contracts.runs import check_engines_agree, check_same_bits
from engine.bytes_federation import load
from engine.recipe_runs import PlanRuns, bytes_federation, play, reference, small_plan
from engine.test_local_models import run_opposite
from engine.test_regression import file as regression_file  # noqa: F401  a fixture
from engine.test_regression import scenario as regression_scenario
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.data import Dataset
from thalweg.engine.builders import check_can_be_served
from thalweg.engine.export import export_model
from thalweg.engine.loop import Result
from thalweg.engine.plan import make_plan, plan_from_toml, plan_to_toml
from thalweg.engine.serving import get_chosen_models, mix_predictors
from thalweg.engine.task import make_net
from thalweg.federation import ServedModels, ServerState, get_served_models
from thalweg.recipes import fedavg
from thalweg.serving import BestRecent

SERVING = "serving=best-recent"
ADJUSTED = ["serving.trained=false", "serving.last_label=false"]  # besides the received model
CASES = {
    "latest, trained and last label": ("fedavg", []),
    "errors, and the best predictor": ("fedavg", ["serving.loss=error", "serving.combine=best"]),
    "an averaged model": ("fedavg", ["server=averaged"]),
    "the adjusted model": ("fedavg", ADJUSTED),
    "the adjusted model, labels after the round": ("fedavg", [*ADJUSTED, "serving.feedback=round"]),
    "several models per client": ("fedrc", []),
    "several models and their averages": ("fedrc", ["server=averaged", "server.power=1.0"]),
    "models that are merged": ("feddrift", ["bank.drift_threshold=0.0", "server=averaged"]),
    "states between ticks, collecting while absent": ("fedewc", ["world.absent=collecting"]),
    "masked updates": ("fedavg", ["secure_aggregation=masked", "server=averaged"]),
}


@pytest.fixture(scope="module", params=CASES)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PlanRuns:
    recipe, more = CASES[request.param]
    plan = small_plan(recipe, SERVING, *more)
    return PlanRuns(plan, tmp_path_factory.mktemp("serving"))


def get_rows(served: ServedModels) -> Floats:
    assert served.mixtures is not None
    return served.mixtures.get_rows(np.arange(len(served.mixtures)))


def read(result: Result, *names: str) -> list[list[Any]]:
    return [[row.get(name) for name in names] for row in result.metrics]


def test_the_engines_agree(runs: PlanRuns) -> None:
    check_engines_agree(runs.fast, runs.reference.result)
    names = ("prequential_accuracy", "tested", "bytes_down", "bytes_up")
    assert read(runs.fast, *names) == read(runs.reference.result, *names)
    for ours, theirs in zip(runs.fast.metrics, runs.reference.result.metrics, strict=True):
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=2e-3)
        assert ours["serving_weights"] == pytest.approx(theirs["serving_weights"], abs=1e-3)
        assert sum(ours["serving_weights"].values()) == pytest.approx(1)


def test_a_resumed_run_has_the_same_bits(runs: PlanRuns) -> None:
    check_same_bits(runs.fast, runs.resumed)


def test_clients_reached_by_bytes_give_the_same_bits(runs: PlanRuns) -> None:
    if runs.plan.recipe.secure_aggregation is not None:
        pytest.skip("tests/network/secure_aggregation tests masks")
    check_can_be_served(runs.plan.recipe)
    ours, theirs = runs.over_bytes, runs.reference
    assert to_comparable(ours.server) == to_comparable(theirs.server)
    for updates, others in zip(ours.updates, theirs.updates, strict=True):
        assert to_comparable(vars(updates)) == to_comparable(vars(others))
    names = ("prequential_accuracy", "tested", "bytes_down", "bytes_up", "loss")
    assert read(ours.result, *names) == read(theirs.result, *names)
    for client, state in theirs.federation.client_pool.states.items():
        assert state.serving is not None
        assert to_comparable(ours.federation.state(client)) == to_comparable(state), client
    assert ours.federation.rejected == []


def test_training_is_that_without_serving() -> None:
    plain, served = (
        thalweg.run("fedavg", "digits-partial", rounds=3, overrides=more, workers=1)
        for more in ([], [SERVING])
    )
    assert np.array_equal(plain.model, served.model)
    assert read(plain, "loss", "bytes_up", "bytes_down", "tested") == read(
        served, "loss", "bytes_up", "bytes_down", "tested"
    )


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_clients_with_opposite_labels_serve_their_own_results(engine: str) -> None:
    """The global model is right about half of the samples, and the last label about none."""
    rows = run_opposite("fedavg", engine, serving="best-recent").metrics
    assert rows[0]["prequential_accuracy"] <= 0.75, "the initial model"
    assert rows[-1]["prequential_accuracy"] == rows[-1]["client_accuracy"] == 1.0
    weights = rows[-1]["serving_weights"]
    assert weights["trained"] > 0.6 > weights["latest"] + weights["last_label"]


def test_the_first_samples_are_predicted_without_a_last_label_of_the_future() -> None:
    """With the last label alone beside the model, labels that alternate are never predicted."""
    settings = {"serving": {"kind": "best-recent", "trained": False}}
    found = run_opposite("fedavg", **settings)
    assert "trained" not in found.final["serving_weights"]
    weights = found.final["serving_weights"]
    assert weights["last_label"] < min(weights["latest"], weights["adjusted"])


def test_averaged_models_are_sent_once_per_job() -> None:
    for recipe in ("fedavg", "fedrc"):
        few, more = (
            thalweg.run(
                recipe,
                "digits-partial",
                rounds=2,
                overrides=["server=averaged", SERVING, f"serving.averaged={used}"],
            )
            for used in ("false", "true")
        )
        size = 4 * few.net.num_params
        for without, with_averages in zip(few.metrics, more.metrics, strict=True):
            jobs = without["bytes_up"] // size
            assert with_averages["bytes_down"] - without["bytes_down"] == jobs * size
        assert "averaged" in more.final["serving_weights"]
        assert "averaged" not in few.final["serving_weights"]


def play_round(*overrides: str) -> tuple[ServerState, Any, Any]:
    plan = small_plan("fedrc", SERVING, *overrides)
    federation = reference(plan)
    server, _ = play(plan, federation)
    return server, plan.recipe, federation.client_pool


def test_mixtures_consist_of_the_weights_of_the_clients() -> None:
    server, recipe, pool = play_round("server=averaged")
    served, number = get_chosen_models(server, recipe, pool), len(server.bank)
    usual = get_served_models(server, recipe)
    rows, usual_rows = get_rows(served), get_rows(usual)
    assert np.allclose(rows.sum(axis=1), 1)
    assert np.array_equal(served.models[:number], server.bank)
    assert np.array_equal(served.models[number : 2 * number], usual.models)
    trained = {client for client, state in pool.states.items() if state.trained is not None}
    assert len(served.models) == 2 * number + 2 * len(trained)
    for place, client in enumerate(sorted(trained)):
        received = usual_rows[client] > 0
        weights = mix_predictors(recipe, pool.states[client], received, True)
        row, own = rows[client], 2 * number + 2 * place
        assert np.array_equal(served.models[own], pool.states[client].trained)
        assert row[own] == weights["trained"]
        assert row[own + 1] == weights["adjusted"]
        is_main = np.arange(number) == usual_rows[client].argmax()
        assert row[number : 2 * number] == pytest.approx(weights["averaged"] * is_main)
        of_models = [weights.get(f"model {model}", 0) for model in range(number)]
        assert row[:number] == pytest.approx(weights["latest"] * is_main + of_models)


def test_models_that_a_client_no_longer_receives_have_no_weight() -> None:
    """Weights of models from earlier rounds stay in the state, but do not count."""
    server, recipe, pool = play_round()
    number = len(server.bank)
    client = min(pool.states)
    only_last = np.arange(number) == number - 1
    weights = mix_predictors(recipe, pool.states[client], only_last, has_trained=True)
    assert {name for name in weights if name.startswith("model ")} == {f"model {number - 1}"}
    assert sum(weights.values()) == pytest.approx(1)


def test_the_adjusted_model_has_the_offsets_of_the_client_in_its_scores() -> None:
    """For each client the log-probabilities of its main model, plus its offsets, normalised."""
    server, recipe, pool = play_round("serving.trained=false")
    served, number = get_chosen_models(server, recipe, pool), len(server.bank)
    usual, rows = get_rows(get_served_models(server, recipe)), get_rows(served)
    plan = small_plan("fedrc", SERVING)
    data = load(plan.scenario.data, plan.seed)
    net = make_net(plan.scenario, data)
    x = torch.tensor(np.asarray(data.x_test[:20], dtype=np.float32))
    assert len(served.models) == number + len(pool.states)
    for place, (client, state) in enumerate(sorted(pool.states.items())):
        assert state.serving is not None
        offsets = torch.tensor(state.serving.policy.labels.offsets, dtype=torch.float32)
        assert len(offsets) > 0
        main = server.bank[usual[client].argmax()]
        received, adjusted = (
            net.apply(torch.tensor(params), x).log_softmax(1)
            for params in (main, served.models[number + place])
        )
        torch.testing.assert_close(adjusted, (received + offsets).log_softmax(1))
        weights = mix_predictors(recipe, state, usual[client] > 0, has_trained=False)
        assert rows[client, number + place] == weights["adjusted"] > 0


class NoBias(torch.nn.Module):
    """Ends with a layer other than nn.Linear, so that outputs have no bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 3 * torch.tanh(self.first(x.flatten(1)))


def test_without_an_output_bias_the_weight_of_the_adjusted_model_goes_to_the_others() -> None:
    """Arriving samples are predicted by the adjusted model nevertheless."""
    overrides = [SERVING, "serving.trained=false", "serving.last_label=false"]
    run = thalweg.run("fedavg", "digits-partial", model=NoBias, rounds=3, overrides=overrides)
    assert run.net.output_bias is None
    assert run.final["serving_weights"]["adjusted"] > 0.2
    for client in range(10):
        assert run.get_mixture(client).tolist() == [1.0]
        assert np.array_equal(run.get_model(client), run.model)


def test_a_single_output_is_adjusted_by_the_difference_of_the_offsets() -> None:
    """Most labels of the first client are class 1; the logits have no information at first."""
    rng = np.random.default_rng(0)
    y = np.r_[rng.random(200) < 0.9, rng.random(200) < 0.1].astype(int)
    data = Dataset.from_arrays(rng.normal(size=(400, 3)), y, client=np.repeat([0, 1], 200))
    settings: dict[str, Any] = {
        "local": {"lr": 1e-6},
        "world": {"arrivals": 40},
        "serving": {"kind": "best-recent", "trained": False, "last_label": False},
    }
    run = thalweg.run(
        "fedavg", data, model="linear", loss="binary_cross_entropy", rounds=4, **settings
    )
    x = np.zeros((1, 3))
    assert [run.predict(x, client=client).tolist() for client in (0, 1)] == [[1], [0]]
    assert run.final["client_accuracy"] > 0.8


def test_a_client_that_has_never_taken_part_predicts_with_the_averaged_model() -> None:
    plan = small_plan("fedavg", SERVING, "server=averaged", "world.availability=0.2")
    federation = reference(plan)
    server, _ = play(plan, federation, rounds=1)
    absent = sorted(set(range(8)) - set(federation.client_pool.states))
    served = get_chosen_models(server, plan.recipe, federation.client_pool)
    assert absent
    assert (get_rows(served)[absent] == [0, 1, *[0] * (len(served.models) - 2)]).all()


def test_a_server_without_the_states_of_clients_evaluates_its_own_model() -> None:
    plan = small_plan("fedavg", SERVING, "server=averaged")
    federation = bytes_federation(plan)
    server, _ = play(plan, federation)
    served = get_chosen_models(server, plan.recipe, federation.client_pool)
    assert np.array_equal(served.models, get_served_models(server, plan.recipe).models)


@pytest.mark.parametrize("more", [[], ["server=averaged"]], ids=["latest", "averaged"])
def test_engines_agree_on_a_regression(regression_file: Path, more: list[str]) -> None:  # noqa: F811
    two_outputs = regression_scenario(regression_file.with_name("two.npz"))
    fast, slow = (
        thalweg.run("fedavg", two_outputs, engine=engine, seed=1, overrides=[SERVING, *more])
        for engine in ("fast", "reference")
    )
    for ours, theirs in zip(fast.metrics, slow.metrics, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ("mae", "client_mae", "prequential_mae"):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-4)
        assert ours["serving_weights"] == pytest.approx(theirs["serving_weights"], abs=1e-4)


@pytest.mark.filterwarnings("ignore::thalweg.data.checks.DataWarning")
def test_predictions_and_exports_are_those_of_the_mixture(tmp_path: Path) -> None:
    """The clients have opposite labels, so that each one serves its own result."""
    x = np.array([[-1.0], [1.0]] * 40)
    who = np.repeat([0, 1], 40)
    data = Dataset.from_arrays(x, (x[:, 0] > 0) ^ (who == 1), client=who)
    settings: dict[str, Any] = {
        "rounds": 4,
        "local": {"lr": 0.5, "passes": 5},
        "world": {"arrivals": 10},
        "serving": "best-recent",
        "out": tmp_path / "run",
    }
    run = thalweg.run("fedavg", data, model="linear", **settings)
    for result in (run, thalweg.load(tmp_path / "run")):
        first, second = (result.predict(x[:2], client=k).tolist() for k in (0, 1))
        assert first == second[::-1]
        assert first[0] != first[1]
        assert (result.get_mixture(0) > 0).sum() == 3, "latest, its own result and adjusted"
        with pytest.raises(ConfigError, match="uses a mixture of 3 models"):
            result.get_model(0)
        export_model(result, tmp_path / "model.pt2", client=0)
        assert (tmp_path / "model.pt2").stat().st_size > 0


REJECTED = {
    "no predictions": (["prequential=0"], "learns from predictions of arriving samples"),
    "one predictor": (
        ["serving.trained=false", "serving.last_label=false", "serving.adjusted=false"],
        "expected at least two predictors",
    ),
    "a central learner": (["bank=centralised"], "Use serving=none, or a bank with shared models"),
    "personal models": (["bank=fine-tuned"], "the bank determines its model"),
}


@pytest.mark.parametrize("case", REJECTED)
def test_combinations_without_a_choice_are_rejected(case: str) -> None:
    overrides, message = REJECTED[case]
    with pytest.raises(ConfigError, match=message):
        thalweg.run("fedavg", "digits-partial", rounds=1, overrides=[SERVING, *overrides])


def test_a_loss_of_classes_is_rejected_for_numbers(regression_file: Path) -> None:  # noqa: F811
    overrides = [SERVING, "serving.loss=error"]
    with pytest.raises(ConfigError, match=r"serving\.loss=error has no effect"):
        thalweg.run("fedavg", regression_scenario(regression_file), overrides=overrides)


def test_numbers_need_a_predictor_besides_the_adjusted_model(regression_file: Path) -> None:  # noqa: F811
    overrides = [SERVING, "serving.trained=false", "serving.last_label=false"]
    with pytest.raises(ConfigError, match="to which no model is adjusted"):
        thalweg.run("fedavg", regression_scenario(regression_file), overrides=overrides)


def test_the_adjusted_model_has_no_effect_on_numbers(regression_file: Path) -> None:  # noqa: F811
    with_it, without = (
        thalweg.run("fedavg", regression_scenario(regression_file), overrides=[SERVING, *more])
        for more in ([], ["serving.adjusted=false"])
    )
    names = ("mae", "client_mae", "prequential_mae", "serving_weights")
    assert read(with_it, *names) == read(without, *names)
    assert "adjusted" not in with_it.final["serving_weights"]


@dataclass(frozen=True)
class Unable:
    """Names the adjusted model without its method."""

    predictors = BestRecent().predictors
    init, serve, mix = BestRecent.init, BestRecent.serve, BestRecent.mix


def test_a_policy_that_adjusts_models_must_know_the_offsets() -> None:
    recipe = replace(fedavg(), serving=Unable())
    with pytest.raises(ConfigError, match="but has no method get_offsets"):
        thalweg.run(recipe, "digits-partial", rounds=1)


def test_a_plan_with_serving_survives_text() -> None:
    plan = make_plan("fedavg", "digits-partial", overrides=[SERVING, "serving.switch_every=30"])
    assert plan_from_toml(plan_to_toml(plan), "the plan") == plan


def test_clients_that_have_never_taken_part_cost_no_computation_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be millions of them; all have the default of the policy."""
    plan = small_plan("fedavg", SERVING, "server=averaged", "world.num_clients=500")
    federation = reference(plan)
    server, _ = play(plan, federation, rounds=1)
    asked: list[Any] = []

    def mix(recipe: Any, state: Any, *args: Any, **options: Any) -> dict[str, float]:
        asked.append(state)
        return mix_predictors(recipe, state, *args, **options)

    monkeypatch.setattr("thalweg.engine.serving.mix_predictors", mix)
    served = get_chosen_models(server, plan.recipe, federation.client_pool)
    assert np.allclose(get_rows(served).sum(axis=1), 1)
    assert len(asked) == len(federation.client_pool.states) + 1 < 450


def test_idle_clients_cost_nothing_in_checkpoints_and_results(tmp_path: Path) -> None:
    """Only clients that have trained are in the files, each in that of its last round."""
    overrides = [SERVING, "world.num_clients=5000", "world.availability=0.002"]
    settings: dict[str, Any] = {"rounds": 3, "overrides": overrides, "out": tmp_path}
    run = thalweg.run("fedavg", "digits-partial", workers=1, **settings)
    model, num_trained = 4 * run.net.num_params, [row["cohort"] for row in run.metrics]
    sizes = {file.name: file.stat().st_size for file in tmp_path.rglob("*.safetensors")}
    for rnd, number in enumerate(num_trained, start=1):
        size = sizes[f"clients-{rnd:08d}-some.safetensors"]
        assert number * model < size < number * (model + 10_000), "clients of this round only"
    mixtures = run.served.mixtures
    assert mixtures is not None
    assert len(mixtures.clients) <= 2 * sum(num_trained) < 500
    assert len(run.served.models) <= 1 + 2 * sum(num_trained)
    assert sizes["bank.safetensors"] < len(run.served.models) * (model + 100) + 10_000
    again = thalweg.load(tmp_path)
    for client in (0, 17, int(mixtures.clients[0])):
        assert np.array_equal(again.get_mixture(client), run.get_mixture(client))
