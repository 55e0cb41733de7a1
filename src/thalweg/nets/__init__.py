"""The networks the papers use, as pure functions of a flat parameter vector."""

from thalweg.nets.net import Net
from thalweg.nets.specs import NETS, Cnn, LeNet5, Linear, Mlp, NetSpec

__all__ = ["NETS", "Cnn", "LeNet5", "Linear", "Mlp", "Net", "NetSpec"]
