"""Options of a Ray cluster are checked before Ray is imported."""

import sys
from types import SimpleNamespace

import pytest

from thalweg import run
from thalweg.core.errors import ConfigError
from thalweg.engine.ray import cluster
from thalweg.engine.ray.cluster import RayCluster, RayConnection, choose_cluster, get_num_workers


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "http://head:8265", ":6379"])
def test_other_addresses_than_host_and_port_are_rejected(address):
    with pytest.raises(ConfigError, match="expected HOST:PORT"):
        RayCluster(address)


@pytest.mark.parametrize("address", [None, "auto", "10.0.0.1:6379", "head-1.local:6379", "[::1]:1"])
def test_addresses_of_head_nodes_are_accepted(address):
    assert RayCluster(address).address == address


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_workers": 0}, "at least 1, got 0"),
        ({"num_gpus": -0.5}, "at least 0, got -0.5"),
        ({"num_gpus": float("nan")}, "at least 0, got nan"),
        ({"num_gpus": 1.5}, "a fraction up to 1 or a whole number, got 1.5"),
    ],
)
def test_impossible_numbers_are_rejected(options, words):
    with pytest.raises(ConfigError, match=words):
        RayCluster(**options)


def test_options_of_ray_need_the_engine_ray():
    with pytest.raises(ConfigError, match=r"--address.*engine is fast"):
        choose_cluster("fast", "auto", None, None)
    with pytest.raises(ConfigError, match=r"--num-gpus.*engine is auto"):
        choose_cluster("auto", None, 0.5, None)
    with pytest.raises(ConfigError, match="is for the engine ray"):
        run("fedavg", "digits-partial", rounds=1, address="auto")


def test_missing_package_is_reported_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'thalweg\[ray\]'"):
        run("fedavg", "digits-partial", rounds=1, engine="ray")


def connect(monkeypatch, resources, **options):
    """Return a connection to a cluster that has these resources, without Ray."""
    context = SimpleNamespace(gcs_address="10.0.0.1:6379")
    ray = SimpleNamespace(
        is_initialized=lambda: True,
        cluster_resources=lambda: resources,
        get_runtime_context=lambda: context,
    )
    monkeypatch.setattr(cluster, "import_ray", lambda: ray)
    return RayConnection(RayCluster(**options))


def test_there_is_one_worker_per_core_or_as_many_as_the_gpus_allow(monkeypatch):
    resources = {"CPU": 8.0, "GPU": 1.0}
    assert connect(monkeypatch, resources).num_workers == 8
    assert connect(monkeypatch, resources, num_gpus=0.25).num_workers == 4
    assert connect(monkeypatch, resources, num_workers=3, num_gpus=0.25).num_workers == 3


def test_more_workers_than_resources_are_rejected(monkeypatch):
    with pytest.raises(ConfigError, match=r"need 9 cores and 0 GPUs.*has 8 cores and 0 GPUs"):
        connect(monkeypatch, {"CPU": 8.0}, num_workers=9)
    with pytest.raises(ConfigError, match=r"need 3 cores and 1\.5 GPUs.*has 8 cores and 1 GPUs"):
        connect(monkeypatch, {"CPU": 8.0, "GPU": 1.0}, num_workers=3, num_gpus=0.5)


def test_another_cluster_than_the_connected_one_is_rejected(monkeypatch):
    assert connect(monkeypatch, {"CPU": 1.0}, address="10.0.0.1:6379").num_workers == 1
    with pytest.raises(ConfigError, match=r"connected to the Ray cluster 10\.0\.0\.1:6379"):
        connect(monkeypatch, {"CPU": 1.0}, address="10.0.0.2:6379")


def test_number_of_workers_of_a_cluster_is_used_for_the_progress():
    assert get_num_workers(RayCluster(num_workers=7)) == 7
    assert get_num_workers(3) == 3
