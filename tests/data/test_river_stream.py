from __future__ import annotations

import numpy as np
import pytest

from thalweg.core.errors import ThalwegError
from thalweg.data import RiverStream
from thalweg.scenarios import find_scenario

pytest.importorskip("river")


def test_samples_arrive_at_the_clients_in_turn() -> None:
    data = RiverStream("SEA", samples=50, clients=5).load(None, seed=0)
    assert data.client is not None
    assert data.client[:7].tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert data.time is not None
    assert data.time.tolist() == list(range(40))


def test_a_generator_follows_the_seed_of_the_run() -> None:
    one, again, other = (RiverStream("SEA", samples=50).load(None, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.x, again.x)
    assert not np.array_equal(one.x, other.x)


def test_values_are_those_of_river() -> None:
    from river.datasets import synth

    source = RiverStream("SEA", samples=20, clients=1, options="variant=3,seed=5")
    data = RiverStream(**{**source.__dict__, "standardise": False}).load(None, seed=9)
    expected = [list(x.values()) for x, _ in synth.SEA(variant=3, seed=5).take(16)]
    np.testing.assert_array_equal(data.x, np.array(expected, dtype=np.float32))


@pytest.mark.parametrize("name", ["RandomRBFDrift", "ConceptDriftStream", "LEDDrift", "Mv"])
def test_drift_generators_and_regressions_load(name: str) -> None:
    options = "change_speed=0.1,n_drift_centroids=5" if name == "RandomRBFDrift" else ""
    data = RiverStream(name, samples=100, clients=2, options=options).load(None, seed=0)
    assert len(data.y) == 80
    assert data.task == ("regression" if name == "Mv" else "classification")


def test_data_set_inside_the_package_is_read_whole() -> None:
    scenario = find_scenario("river:Phishing")
    data = scenario.data.load(None, 0)
    assert scenario.name == "Phishing"
    assert len(data.y) + len(data.y_test) == 1250
    assert len(data.columns) == 9


def test_unknown_names_and_options_are_rejected() -> None:
    with pytest.raises(ThalwegError, match=r"unknown stream of River 'SAE'.*'SEA'"):
        RiverStream("SAE").load(None, 0)
    with pytest.raises(ThalwegError, match="its arguments are variant, noise, seed"):
        RiverStream("SEA", options="speed=1").load(None, 0)
    with pytest.raises(ThalwegError, match="expected name=value"):
        RiverStream("SEA", options="speed")


def test_missing_download_is_explained_when_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    from river.datasets import Elec2

    monkeypatch.setenv("THALWEG_OFFLINE", "1")
    if Elec2().is_downloaded:
        pytest.skip("Elec2 is on this machine")
    with pytest.raises(ThalwegError, match=r"not on this machine.*download"):
        RiverStream("Elec2").load(None, 0)
