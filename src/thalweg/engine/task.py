"""The loss and the net of a scenario, which depend on the task of its data."""

from __future__ import annotations

import numpy as np

from thalweg.core.types import Floats32
from thalweg.data import Dataset
from thalweg.losses import Loss, check_loss, count_outputs, resolve_loss
from thalweg.nets import Net, build_net
from thalweg.scenarios import Scenario

FIRST_BATCH = 8  # samples on which a loss is tried before the first round


def get_loss(scenario: Scenario, data: Dataset) -> Loss:
    """Return the loss of a scenario: its own, or the default of the task."""
    return resolve_loss(scenario.loss, data.task, data.num_classes, data.name)


def make_net(scenario: Scenario, data: Dataset) -> Net:
    """Return the net of a scenario, with the inputs and outputs that the data need."""
    num_outputs = count_outputs(get_loss(scenario, data), data.num_outputs)
    return build_net(scenario.net, data.input_shape, num_outputs, data.num_codes)


def try_loss(scenario: Scenario, data: Dataset, net: Net, params: Floats32) -> None:
    """Compute the loss of the first training samples; reject one that cannot be minimised."""
    import torch

    from thalweg.engine.gather import Gather

    rows = np.arange(min(FIRST_BATCH, data.num_samples("train")))
    x, targets = Gather(data).get_single("train", rows)
    with torch.no_grad():
        outputs = net.apply(torch.tensor(params), x)
    check_loss(get_loss(scenario, data), outputs, targets)
