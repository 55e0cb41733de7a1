"""Updates that are hidden in noise: on both engines, over bytes, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thalweg
from contracts.runs import check_engines_agree
from engine.recipe_runs import bytes_federation, plan_of, play, reference
from federation.scripted_stream import clients
from thalweg.aggregation import BySamples, Equal
from thalweg.core.errors import ConfigError
from thalweg.core.noise import NoiseGenerator, NoiseSource, SimulatedNoise, SystemNoise
from thalweg.core.types import Floats32
from thalweg.drift import PageHinkley
from thalweg.federation import ClientProgram, TrainRequest, TrainResponse
from thalweg.federation.extensions.privacy import (
    RELEASES,
    SURVEYS,
    count_draw,
    count_releases,
    privacy_metrics,
    protect_response,
)
from thalweg.local import Gaussian, Privacy
from thalweg.recipes import fedavg
from thalweg.selection import Available, Dpcs, LabelPrivacy, Uniform
from thalweg.theory import PrivacyCost, rdp_epsilon, sampled_gaussian_rdp

SMALL = [
    *("capacity=24", "local.passes=1", "ticks=2", "world.num_clients=6", "evaluate_every=2"),
    "world.availability=1.0",
]
HIDDEN = [*SMALL, "privacy=gaussian", "privacy.clip=0.5", "privacy.noise=0.1"]
SEEDED = SimulatedNoise()
DELTAS = np.ones((2, 3), dtype=np.float32)


def response_of(deltas: Floats32, rnd: int = 1, client: int = 2) -> TrainResponse:
    ones = np.ones(len(deltas), dtype=np.int64)
    return TrainResponse(rnd, client, np.arange(len(deltas)), deltas, 3, ones, ones / 2, ones, ones)


def add_noise(
    program: ClientProgram, deltas: Floats32, rnd: int, client: int, probe_round: int = 0
) -> Floats32:
    return protect_response(program, response_of(deltas, rnd, client), probe_round).deltas


def program_of(privacy: Privacy | None, seed: int = 7, noise: NoiseSource = SEEDED) -> Any:
    return replace(clients(replace(fedavg(), privacy=privacy), seed=seed), noise=noise)


def test_updates_are_unchanged_without_privacy() -> None:
    response = response_of(DELTAS)
    assert protect_response(program_of(None), response) is response
    assert privacy_metrics({}, fedavg()) == {}


def test_noise_is_repeatable_in_simulations_but_not_on_devices() -> None:
    program = program_of(Gaussian())
    once = add_noise(program, DELTAS, rnd=1, client=2)
    assert once.tolist() == add_noise(program, DELTAS, rnd=1, client=2).tolist()
    others = [(8, 1, 2, 0), (7, 2, 2, 0), (7, 1, 3, 0), (7, 1, 2, 1)]
    for seed, *other in others:
        assert add_noise(program_of(Gaussian(), seed), DELTAS, *other).tolist() != once.tolist()
    device = program_of(Gaussian(), noise=SystemNoise())
    secret = [add_noise(device, DELTAS, 1, 2).tolist() for _ in range(2)]
    assert secret[0] != secret[1]


def test_program_has_no_default_source_of_noise() -> None:
    with pytest.raises(TypeError, match="noise"):
        ClientProgram(fedavg(), None, None, None, 0)  # type: ignore[call-arg, arg-type]


@dataclass(frozen=True)
class Half:
    """A privacy of the user's own, which sends half of the numbers."""

    def add_noise(self, deltas: Floats32, rng: NoiseGenerator) -> Floats32:
        return deltas[:, :1]

    def compute_epsilon(self, releases: int) -> float:
        return 0.0


def test_invalid_noise_of_a_custom_policy_is_rejected() -> None:
    with pytest.raises(
        ConfigError, match=r"Half\.add_noise must return float32 updates of shape \(2, 3\)"
    ):
        add_noise(program_of(Half()), DELTAS, 1, 2)


def test_requests_count_as_releases_even_without_a_response() -> None:
    recipe = replace(fedavg(), privacy=Gaussian(noise=4.0))
    known = count_releases({}, [np.array([0, 2]), np.array([2, 2])], 3)
    assert known[RELEASES].tolist() == [1, 0, 2]
    again = count_releases(known, [np.array([1])], 3)
    assert known[RELEASES].tolist() == [1, 0, 2], "the old account is untouched"
    assert again[RELEASES].tolist() == [1, 1, 2]
    assert privacy_metrics(again, recipe) == {
        "update_epsilon": Gaussian(noise=4.0).compute_epsilon(2)
    }


def test_both_engines_add_the_same_noise_and_epsilon_grows() -> None:
    runs = [
        thalweg.run("fedavg", "digits-partial", rounds=4, engine=engine, overrides=HIDDEN)
        for engine in ("fast", "reference")
    ]
    check_engines_agree(*runs)
    spent = [row["update_epsilon"] for row in runs[0].metrics if row["cohort"]]
    assert {row["simulated_noise"] for row in runs[0].metrics if row["cohort"]} == {1}
    assert spent == sorted(spent)
    assert spent[-1] > spent[0] > 0


def test_noise_is_the_same_over_bytes() -> None:
    plan = plan_of("fedavg", HIDDEN)
    ours, theirs = play(plan, bytes_federation(plan)), play(plan, reference(plan))
    assert ours[0].bank.tobytes() == theirs[0].bank.tobytes()
    assert ours[0].known[RELEASES].tolist() == theirs[0].known[RELEASES].tolist()


def test_device_draws_noise_from_the_operating_system() -> None:
    plan = plan_of("fedavg", HIDDEN)
    federation = bytes_federation(plan)
    node = federation.nodes[0].node
    params = np.zeros((1, node.clients.num_params), dtype=np.float32)
    order = TrainRequest(0, 0, np.zeros(1, dtype=np.int64), np.ones(1), params)
    secret = replace(node, clients=replace(node.clients, noise=SystemNoise()))
    sent = [each.train(each.new_client(), order)[1].deltas for each in (node, node, secret, secret)]
    assert sent[0].tolist() == sent[1].tolist()
    assert len({each.tobytes() for each in sent}) == 3


def test_probe_rounds_count_as_releases(tmp_path: Path) -> None:
    overrides = [*HIDDEN, "sessions=alternating", "sessions.length=1"]
    more = [
        "session_start=warm-start",
        "session_start.pilot_sessions=0",
        "session_start.probe_rounds=3",
    ]
    plain, rehearsed = (
        thalweg.run("fedavg", "digits-partial", rounds=2, overrides=each).metrics
        for each in (overrides, [*overrides, *more])
    )
    assert plain[0]["update_epsilon"] == Gaussian(0.5, 0.1).compute_epsilon(1)
    assert rehearsed[0]["update_epsilon"] == Gaussian(0.5, 0.1).compute_epsilon(4)


@pytest.mark.parametrize("recipe", ["scaffold", "fedcurv", "ode", "fedrc"])
def test_recipe_with_unprotected_uploads_is_rejected(recipe: str) -> None:
    with pytest.raises(ConfigError, match="it uploads statistics of the samples without noise"):
        thalweg.run(recipe, "digits-partial", rounds=1, overrides=HIDDEN)


# --- numbers beside the update ---

ALL_NOISY = ["privacy.losses=noisy", "privacy.counts=noisy", "privacy.predictions=noisy"]
ALL_OMITTED = ["privacy.losses=omit", "privacy.counts=omit", "privacy.predictions=omit"]


@pytest.mark.parametrize("options", [ALL_NOISY, ALL_OMITTED])
def test_engines_agree_on_hidden_numbers(options: list[str]) -> None:
    runs = [
        thalweg.run("fedavg", "digits-partial", rounds=3, engine=engine, overrides=overrides)
        for overrides in ([*HIDDEN, *options],)
        for engine in ("fast", "reference")
    ]
    check_engines_agree(*runs)
    rows = [row for row in runs[0].metrics if row["cohort"]]
    assert all("round_epsilon" in row for row in rows)
    assert all(("loss" in row) == (options is ALL_NOISY) for row in rows)
    assert options is ALL_NOISY or not any("prequential_accuracy" in row for row in rows)
    parts = 4 if options is ALL_NOISY else 1  # the update and three numbers, each as one release
    assert rows[0]["round_epsilon"] == pytest.approx(Gaussian(0.5, 0.1).compute_epsilon(parts))


def test_hidden_numbers_are_the_same_over_bytes() -> None:
    plan = plan_of("fedavg", [*HIDDEN, *ALL_NOISY])
    ours, theirs = play(plan, bytes_federation(plan)), play(plan, reference(plan))
    assert ours[0].bank.tobytes() == theirs[0].bank.tobytes()
    assert ours[0].known["num_samples"].tolist() == theirs[0].known["num_samples"].tolist()


def test_exact_numbers_have_no_round_epsilon() -> None:
    recipe = replace(fedavg(), privacy=Gaussian(losses="omit", counts="omit"))
    assert "round_epsilon" not in privacy_metrics({RELEASES: np.ones(2)}, recipe)


def test_round_epsilon_includes_label_counts() -> None:
    privacy = Gaussian(noise=20.0, losses="omit", counts="omit", predictions="omit")
    selection = Dpcs(privacy=LabelPrivacy(epsilon=0.1))
    recipe = replace(fedavg(), privacy=privacy, selection=selection)
    known = {RELEASES: np.array([1.0, 0.0]), SURVEYS: np.array([2.0, 9.0])}
    costs = [PrivacyCost(0.01, {0.1: 2}), PrivacyCost(laplace={0.1: 9})]
    expected = max(cost.epsilon(1e-5) for cost in costs)
    assert privacy_metrics(known, recipe)["round_epsilon"] == pytest.approx(expected)
    exact = replace(recipe, selection=Dpcs())
    assert "round_epsilon" not in privacy_metrics(known, exact)


def test_surveys_with_noise_are_counted() -> None:
    overrides = [*HIDDEN, *ALL_OMITTED, "selection.privacy.epsilon=0.5"]
    rows = thalweg.run("dpcs", "digits-partial", rounds=2, overrides=overrides).metrics
    assert rows[1]["round_epsilon"] > rows[1]["update_epsilon"] + 0.1


def test_drawing_clients_uniformly_lowers_the_epsilon_of_the_models_only() -> None:
    overrides = [*SMALL, "world.num_clients=20", "privacy=gaussian", "privacy.noise=20"]
    overrides += ["selection=uniform", "selection.fraction=0.1"]
    row = thalweg.run("fedavg", "digits-partial", rounds=2, overrides=overrides).metrics[-1]
    drawn = rdp_epsilon(2 * sampled_gaussian_rdp(0.1, 0.1), 1e-5)
    assert row["model_epsilon"] == pytest.approx(min(drawn, row["update_epsilon"]))
    assert row["model_epsilon"] < row["update_epsilon"]


@pytest.mark.parametrize(
    "parts", [{"selection": Available()}, {"weights": BySamples()}, {"alarm": PageHinkley()}]
)
def test_other_draws_and_weights_have_no_epsilon_of_the_models(parts: dict[str, Any]) -> None:
    uniform = replace(fedavg(), privacy=Gaussian(), selection=Uniform(0.5), weights=Equal())
    everyone = np.arange(4)
    assert count_draw({}, everyone[:2], everyone, uniform, 4)["drawn_rdp"].min() > 0
    assert count_draw({}, everyone[:2], everyone, replace(uniform, **parts), 4) == {}
