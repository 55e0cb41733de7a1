"""On data without known latent states, SFedPO learns the states and reports their number."""

import numpy as np

import thalweg

REPLAY = ["world=replay", "evaluate_every=1", "capacity=32", "ticks=2", "local.passes=1"]


def run_replay(recipe: str) -> thalweg.Result:
    return thalweg.run(recipe, "digits-partial", rounds=3, seed=1, overrides=REPLAY)


def test_sfedpo_differs_from_fedavg_where_states_are_unknown() -> None:
    ours, plain = run_replay("sfedpo"), run_replay("fedavg")
    assert not np.array_equal(ours.model, plain.model)
    assert ours.final["forecast_states"] >= 1
    assert "forecast_states" not in plain.final


def test_states_are_not_learned_where_they_are_known() -> None:
    result = thalweg.run("sfedpo", "digits-partial", rounds=2, seed=1)
    assert "forecast_states" not in result.final
