"""Networks of the papers, as pure functions of a flat parameter vector."""

from thalweg.nets.alexnet import AlexNet
from thalweg.nets.builders import NetSpec
from thalweg.nets.char_rnn import CharRnn
from thalweg.nets.fast_text import FastText
from thalweg.nets.module import Module, build_net, make_model_spec
from thalweg.nets.net import Net
from thalweg.nets.parameter_file import load_parameters
from thalweg.nets.resnet import ResNet10, ResNet18, ResNet34
from thalweg.nets.specs import Cnn, Cnn5x5, HamCnn, LeNet5, Linear, Mlp

NETS: dict[str, type[NetSpec]] = {
    "linear": Linear,
    "mlp": Mlp,
    "lenet5": LeNet5,
    "cnn": Cnn,
    "cnn-5x5": Cnn5x5,
    "ham-cnn": HamCnn,
    "alexnet": AlexNet,
    "resnet10": ResNet10,
    "resnet18": ResNet18,
    "resnet34": ResNet34,
    "char-rnn": CharRnn,
    "fast-text": FastText,
    "module": Module,
}

__all__ = [
    "NETS",
    "AlexNet",
    "CharRnn",
    "Cnn",
    "Cnn5x5",
    "FastText",
    "HamCnn",
    "LeNet5",
    "Linear",
    "Mlp",
    "Module",
    "Net",
    "NetSpec",
    "ResNet10",
    "ResNet18",
    "ResNet34",
    "build_net",
    "load_parameters",
    "make_model_spec",
]
