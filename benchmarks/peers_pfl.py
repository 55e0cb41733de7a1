"""A side of `peers.py`: pfl's simulation, started by torchrun with one process per core.

The data, the model and the optimizer are those of the plain loop. The users' data sets are created
once, so that pfl keeps their mini-batches.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
import torch
from peers_work import Work, load_client, load_model
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_framework_module
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel


class Classifier(torch.nn.Module):
    """The model with the two methods that pfl calls."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


class RoundEnds(TrainingProcessCallback):  # type: ignore[misc]  # untyped without pfl
    """Writes the end of each round in the first process."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Any]:
        if get_framework_module().distributed.global_rank == 0:
            self.work.end_round(model.pytorch_model.parameters())
        return False, Metrics()


def main(folder: str) -> None:
    work = Work(folder, "pfl")
    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002 - pfl draws from it; all processes must draw the same users
    users = {user: PyTorchTensorDataset(load_client(folder, user)) for user in range(work.clients)}
    net = Classifier(load_model(folder))
    model = PyTorchModel(
        net,
        local_optimizer_create=functools.partial(torch.optim.SGD, momentum=work.momentum),
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    data = FederatedDataset(users.__getitem__, MinimizeReuseUserSampler(list(users)))
    params = NNAlgorithmParams(
        # Evaluation only in the first iteration, which cannot be avoided.
        central_num_iterations=work.rounds + 1,
        evaluation_frequency=10**9,
        train_cohort_size=work.clients,
        val_cohort_size=0,
    )
    FederatedAveraging().run(
        params,
        SimulatedBackend(training_data=data, val_data=None, postprocessors=[WeightByUser()]),
        model,
        NNTrainHyperParams(
            local_batch_size=work.batch, local_num_epochs=1, local_learning_rate=work.lr
        ),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[RoundEnds(work)],
    )


if __name__ == "__main__":
    main(sys.argv[1])
