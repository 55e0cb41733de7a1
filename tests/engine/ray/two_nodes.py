"""A program that compares a Ray cluster of two nodes with this process, and kills a node.

It is run by `test_trainer.py` as a process of its own: Ray changes the process that uses it.
"""

import socket
import sys
import warnings

import numpy as np
from ray.cluster_utils import Cluster

from thalweg.core.vectors import combine
from thalweg.data.base import Dataset
from thalweg.engine.ray import schedule, trainer
from thalweg.engine.ray.cluster import RayCluster, RayWarning
from thalweg.engine.stack_tasks import StackTask
from thalweg.engine.workers import make_trainer
from thalweg.local import Euclidean, LocalTraining, TaskLoss
from thalweg.losses import CrossEntropy
from thalweg.nets import Mlp

SGD = LocalTraining(lr=0.05, momentum=0.9, weight_decay=0.01, batch_size=8, steps=1)
FIXED = (Euclidean(), None, CrossEntropy())
# A killed node is noticed after 5 seconds instead of 15.
DETECTION = {"health_check_period_ms": 1000, "health_check_failure_threshold": 5}


PORTS = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)


def choose_ports():
    """With given ports a node does not wait for its agents, which is limited to 15 seconds."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
    ports = {name: each.getsockname()[1] for name, each in zip(PORTS, sockets, strict=True)}
    for each in sockets:
        each.close()
    return ports


def make_data():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (600, 12, 12, 1), dtype=np.uint8)
    y = rng.integers(0, 3, 600)
    return Dataset("toy", x, y, x[:300], y[:300], 3, (0.4,), (0.3,))


def make_task(seed):
    rng, clients = np.random.default_rng(seed), 1 + seed % 3
    shape = (3, clients, 8)
    return StackTask(
        rng.integers(0, 2, clients),
        rng.integers(0, 600, shape).astype(np.int32),
        np.full(shape, 1 / 8, dtype=np.float32),
        rng.random(shape[:2]) < 0.8,
    )


def check_same(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype
        assert np.array_equal(mine, np.asarray(other), equal_nan=mine.dtype.kind == "f")


def check_run(here, remote, bank, tasks):
    check_same(here.train(bank, tasks), remote.train(bank, tasks))
    rows = np.random.default_rng(0).permutation(600)
    for part, some in (("train", rows), ("test", None), ("test", rows[:0])):
        check_same(here.predict(bank[1], part, some), remote.predict(bank[1], part, some))
        check_same([here.scores(bank[1], part, some)], [remote.scores(bank[1], part, some)])


def check_remote_sums(here, remote, bank, tasks):
    """The updates stay on the nodes, in three shards, and are summed there."""
    trainer.LOCAL_BYTES, trainer.SHARD_BYTES = 0, 1 << 19
    ours, theirs = here.train(bank, tasks)[0], remote.train(bank, tasks)[0]
    assert not isinstance(theirs, np.ndarray)
    assert len(theirs._ends) == 4
    assert theirs.shape == ours.shape
    weights = np.random.default_rng(1).random(len(ours))
    assert np.array_equal(combine(weights, ours), combine(weights, theirs))
    chosen = np.array([0, 3, 4, 7])
    assert np.array_equal(combine(weights[:4], ours[chosen]), combine(weights[:4], theirs[chosen]))
    assert np.array_equal(ours[5], theirs[5])
    return theirs


def check_lost_node(cluster, node, here, remote, bank, tasks):
    """A node is killed when the first result has arrived and other tasks are being computed."""
    receive, killed = schedule.ActorSchedule._receive, []

    def kill_node(self, reference):
        receive(self, reference)
        if not killed:
            killed.append(node)
            cluster.remove_node(node, allow_graceful=False)

    schedule.ActorSchedule._receive = kill_node
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check_same(here.train(bank, tasks), remote.train(bank, tasks))
    schedule.ActorSchedule._receive = receive
    assert killed
    assert remote.num_actors == 1
    assert any(
        issubclass(each.category, RayWarning) and "1 actors remain" in str(each.message)
        for each in seen
    ), [str(each.message) for each in seen]


def main():
    cluster = Cluster()
    cluster.add_node(
        num_cpus=0, include_dashboard=False, _system_config=DETECTION, **choose_ports()
    )
    nodes = [cluster.add_node(num_cpus=1, **choose_ports()) for _ in range(2)]
    data = make_data()
    net = Mlp(hidden=(1500,)).build(data.input_shape, 3)
    bank = np.stack([net.init(np.random.default_rng(m)) for m in range(2)])
    tasks = [make_task(seed) for seed in range(8)]
    parts = (net, TaskLoss(), SGD)
    here = make_trainer(*parts, data, 1, *FIXED, use_native=True)
    remote = trainer.RayTrainer(*parts, data, RayCluster(cluster.address), *FIXED, only_mean=True)
    try:
        assert remote.num_actors == 2
        check_run(here, remote, bank, tasks)
        theirs = check_remote_sums(here, remote, bank, tasks)
        check_lost_node(cluster, nodes[1], here, remote, bank, tasks)
        # Updates of the round before, of which a part was on this node, are trained again.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert np.array_equal(here.train(bank, tasks)[0], np.asarray(theirs))
    finally:
        remote.close()
        cluster.shutdown()
    print("same bits")


if __name__ == "__main__":
    sys.exit(main())
