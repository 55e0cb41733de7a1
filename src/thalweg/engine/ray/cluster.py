"""Options of a Ray cluster, and the connection to it."""

from __future__ import annotations

import importlib
import logging
import math
import os
import re
import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal

from thalweg.core.errors import ConfigError, require
from thalweg.engine.processes import count_cores

LOOPBACK = "127.0.0.1"
_connected_to: str | None = None  # the address of the last connection
_ADDRESS = re.compile(r"[\w.\-]+:\d+|\[[0-9a-fA-F:]+\]:\d+")


class RayWarning(UserWarning):
    """A node or an actor of a Ray cluster is lost, or cannot be used."""


@dataclass(frozen=True)
class RayCluster:
    """A Ray cluster, and what each actor or each run reserves on it."""

    address: str | None = None  # "auto" or HOST:PORT; None: start Ray on this machine
    num_workers: int | None = None  # actors, or runs at the same time; None: one per core
    num_gpus: float = 0.0  # that each of them reserves

    def __post_init__(self) -> None:
        require(
            self.address is None
            or self.address == "auto"
            or bool(_ADDRESS.fullmatch(self.address)),
            f"address={self.address!r} (--address): expected HOST:PORT of the head node of a Ray "
            "cluster, or auto for the cluster of which this machine is a node. Leave it out to "
            "start Ray on this machine.",
        )
        require(
            self.num_workers is None or self.num_workers >= 1,
            f"workers must be at least 1, got {self.num_workers}.",
        )
        require(
            math.isfinite(self.num_gpus) and self.num_gpus >= 0,
            f"num_gpus must be at least 0, got {self.num_gpus}.",
        )
        require(
            self.num_gpus <= 1 or self.num_gpus == int(self.num_gpus),
            f"num_gpus must be a fraction up to 1 or a whole number, got {self.num_gpus}.",
        )


Workers = int | Literal["auto"] | RayCluster  # of a run


def choose_cluster(
    engine: str, address: str | None, num_gpus: float | None, num_workers: int | None
) -> RayCluster | None:
    """Return the cluster that options describe; None if the engine is not Ray.

    >>> choose_cluster("ray", "10.0.0.1:6379", None, 4)
    RayCluster(address='10.0.0.1:6379', num_workers=4, num_gpus=0.0)
    >>> choose_cluster("fast", None, None, 4)
    """
    if engine == "ray":
        return RayCluster(address, num_workers, num_gpus or 0.0)
    for value, name in ((address, "address"), (num_gpus, "num_gpus")):
        option = f"--{name.replace('_', '-')}"
        require(
            value is None,
            f"{name}={value} ({option}) is for the engine ray, but the engine is {engine}. Use "
            f"engine='ray' (--engine ray), or leave {name} out.",
        )
    return None


def connect_cluster(cluster: RayCluster) -> RayCluster:
    """Connect this process until it ends; return the cluster with its number of workers."""
    return replace(cluster, num_workers=RayConnection(cluster).num_workers)


def get_num_workers(workers: int | RayCluster | None) -> int:
    """Return the number of runs at the same time; by default one per core of this machine."""
    number = workers.num_workers if isinstance(workers, RayCluster) else workers
    return number or count_cores()


def import_ray() -> Any:
    """Import Ray. A missing package is an error with the command to install it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Ray and its dependencies, at import
            return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(
            f"the engine ray needs the package ray, which cannot be imported ({error}): "
            "pip install 'thalweg[ray]'. The engine fast needs no further package."
        ) from error


class RayConnection:
    """The connection of this process to a cluster. `close` ends what the connection started."""

    def __init__(self, cluster: RayCluster) -> None:
        self.ray = import_ray()
        self.cluster = cluster
        self._is_owner = not self.ray.is_initialized()
        if self._is_owner:
            self._connect()
        elif cluster.address not in (None, "auto", _connected_to, self._get_address()):
            raise ConfigError(
                f"address={cluster.address}: this process is connected to the Ray cluster "
                f"{self._get_address()}. Call ray.shutdown() first, or leave the address out."
            )
        try:
            self.num_workers = self._count_workers()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._is_owner and self.ray.is_initialized():
            self.ray.shutdown()

    def _connect(self) -> None:
        common: dict[str, Any] = {
            "log_to_driver": False,  # output of actors must not mix with that of a command
            "logging_level": logging.WARNING,
            "include_dashboard": None,
        }
        address = self.cluster.address
        if address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            local = {"num_cpus": self.cluster.num_workers or count_cores()}
            # Ray's ports have no authentication, so only this machine may reach them.
            common |= {"address": "local", "_node_ip_address": LOOPBACK, **local}
            common["include_dashboard"] = False
        else:
            common["address"] = address
        global _connected_to
        try:
            self.ray.init(**common)
        except Exception as error:  # Ray raises plain exceptions, too
            remedy = (
                "Ray could not be started on this machine; try again when it is less busy"
                if address is None
                else f"address={address}: expected a running Ray cluster of which this machine is "
                "a node. Start one with 'ray start --head', and add this machine with 'ray start "
                "--address HOST:PORT'"
            )
            raise ConfigError(f"{remedy}. Ray reports: {error}") from error
        _connected_to = address

    def _get_address(self) -> str:
        return str(self.ray.get_runtime_context().gcs_address)

    def _count_workers(self) -> int:
        """Return the number of actors, or of runs at the same time; check the resources."""
        found = self.ray.cluster_resources()
        cores, gpus = int(found.get("CPU", 0)), float(found.get("GPU", 0))
        number, each = self.cluster.num_workers, self.cluster.num_gpus
        if number is None:
            number = cores if each == 0 else min(cores, int(gpus / each + 1e-9))
            number = max(number, 1)
        require(
            number <= cores and number * each <= gpus + 1e-9,
            f"{number} workers with {each:g} GPUs each need {number} cores and {number * each:g} "
            f"GPUs, but the Ray cluster has {cores} cores and {gpus:g} GPUs. Lower workers "
            "(--workers) or num_gpus (--num-gpus), or add nodes.",
        )
        return number
