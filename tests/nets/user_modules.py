"""Modules as users write them: for digits (1, 8, 8), and for windows (T, C) = (12, 3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DigitMlp(nn.Sequential):
    def __init__(self, width: int = 16) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


class TwiceMlp(DigitMlp):
    """Computes its outputs twice, and returns one of the results."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([super().forward(x), super().forward(x)])[: len(x)]


class UnusedLayer(DigitMlp):
    """Has a layer without effect on the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        for layer in list(self)[:4]:
            x = layer(x)
        return x


class DropoutMlp(nn.Sequential):
    def __init__(self) -> None:
        layers = (nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 10))
        super().__init__(nn.Flatten(), *layers)


class Residual(nn.Module):
    """Two convolutions with a shortcut, as in a ResNet."""

    def __init__(self, norm: type[nn.Module]) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.norm = nn.GroupNorm(2, 8) if norm is nn.GroupNorm else norm(8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.second(torch.relu(self.norm(self.first(x)))))


def group_norm_resnet() -> nn.Module:
    blocks = (Residual(nn.GroupNorm), nn.AvgPool2d(2))
    return nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), *blocks, nn.Flatten(), nn.Linear(32, 10))


def batch_norm_resnet() -> nn.Module:
    blocks = (Residual(nn.BatchNorm2d), nn.AvgPool2d(2))
    return nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), *blocks, nn.Flatten(), nn.Linear(32, 10))


class Tied(nn.Module):
    """One matrix in two layers, with convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.first, self.last = (
            nn.Conv2d(1, 1, 3, padding=1),
            nn.Linear(64, 64),
            nn.Linear(64, 64),
        )
        self.last.weight, self.head = self.first.weight, nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.last(torch.relu(self.first(self.conv(x).flatten(1)))))


def digit_transformer() -> nn.Module:
    """A small random vision transformer of the library transformers, with dropout."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    images = {"image_size": 8, "patch_size": 4, "num_channels": 1, "num_labels": 10}
    config = ViTConfig(**sizes, **images, num_attention_heads=2, hidden_dropout_prob=0.1)
    return ViTForImageClassification(config)


class WindowCnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv1d(3, 8, 3), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(x.transpose(1, 2))).mean(2))


class WindowGru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(3, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x)[0][:, -1])
