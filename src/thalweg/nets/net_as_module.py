"""A built-in net as a plain ``torch.nn.Module``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from thalweg.core.types import Floats32
from thalweg.nets.net import Net, NoisyLayer


class NetAsModule(nn.Module):
    """The layers of a `Net` with its parameters; the same names as in ``model.safetensors``.

    `forward` takes what the net takes: scaled features (B, ...), normalised images (B, C, H, W),
    or codes (B, L), and returns outputs (B, C).

    >>> import numpy as np
    >>> from thalweg.nets import Mlp
    >>> net = Mlp(hidden=(3,)).build(input_shape=(2,), num_classes=2)
    >>> module = NetAsModule(net, net.init(np.random.default_rng(0)))
    >>> list(module.state_dict())
    ['fc1.weight', 'fc1.bias', 'fc2.weight', 'fc2.bias']
    >>> module(torch.zeros(5, 2)).shape
    torch.Size([5, 2])
    """

    def __init__(self, net: Net, params: Floats32) -> None:
        super().__init__()
        self._layers = net.layers
        for name, value in net.named_parameters(params).items():
            *path, last = name.split(".")
            holder: nn.Module = self
            for each in path:
                if not hasattr(holder, each):
                    holder.add_module(each, nn.Module())
                holder = holder.get_submodule(each)
            holder.register_parameter(last, nn.Parameter(torch.tensor(value)))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self._layers:
            weights = [self.get_parameter(name) for name in layer.shapes]
            if self.training and isinstance(layer, NoisyLayer):
                x = layer.apply_noisy(weights, x, torch.default_generator)
            else:
                x = layer.apply(weights, x)
        return x
