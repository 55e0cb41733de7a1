"""Translate a net for the native kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.native.library import LANES, Kernel, LayerRecord
from thalweg.nets import Net

DENSE, CONV_POOL, WORD_MEAN = 0, 1, 2  # kinds of layers, as in c/kernel.h
KERNEL_SIZES = (3, 5)
MAX_LAYERS = 32


class Program(NamedTuple):
    """A net as an array of layer records."""

    layers: ctypes.Array[LayerRecord]
    num_params: int
    num_outputs: int
    num_features: int  # inputs of the last layer
    num_inputs: int
    num_codes: int  # of texts; 0: the inputs are numbers

    def workspace(self, kernel: Kernel, num_samples: int, trains: bool) -> npt.NDArray[np.uint8]:
        """Return memory for mini-batches of up to `num_samples`, zero and aligned."""
        size = kernel.workspace(self.layers, len(self.layers), num_samples, trains)
        return allocate_aligned(size)


def allocate_aligned(num_bytes: int) -> npt.NDArray[np.uint8]:
    """Return memory filled with zeros that starts at a multiple of 64."""
    memory = np.zeros(num_bytes + 64, dtype=np.uint8)
    first = -memory.ctypes.data % 64
    return memory[first : first + num_bytes]


def round_to_block(num_samples: int) -> int:
    """Return the number of samples rounded up to whole blocks, at least one."""
    return max(-(-num_samples // LANES), 1) * LANES


def compile_net(net: Net) -> Program | str:
    """Return the program of a net, or a phrase that says which part of it has no native code."""
    if type(net) is not Net:
        return f"the net is a {type(net).__name__}"
    records: list[LayerRecord] = []
    position, last = 0, ""
    for layer, shape in zip(net.layers, net.shapes, strict=False):
        name = type(layer).__name__
        if name == "Relu":
            if last != "Dense":
                return "a ReLU does not follow a fully connected layer"
            records[-1].relu = 1
        elif name in ("Dense", "ConvPool") or (name == "WordMean" and not records):
            record = _translate(layer, name, shape, position)
            if isinstance(record, str):
                return record
            records.append(record)
            position += sum(prod(each) for each in layer.shapes.values())
        elif name != "Flatten":
            return f"the layer {name} has no native code"
        last = last if name == "Flatten" else name
    if not records or records[-1].kind != DENSE or last != "Dense":
        return "the last layer is not fully connected"
    if len(records) > MAX_LAYERS:
        return f"the net has more than {MAX_LAYERS} layers with parameters"
    layers = (LayerRecord * len(records))(*records)
    num_codes = records[0].codes
    num_inputs = records[0].inputs if num_codes else prod(net.input_shape)
    last_layer = records[-1]
    return Program(layers, position, last_layer.outputs, last_layer.inputs, num_inputs, num_codes)


def _translate(layer: Any, name: str, shape: Sequence[int], position: int) -> LayerRecord | str:
    if name == "WordMean":
        return LayerRecord(
            kind=WORD_MEAN,
            inputs=shape[0],
            outputs=layer.width,
            height=1,
            width=1,
            weight=position,
            codes=layer.num_codes,
        )
    weight, bias = (prod(each) for each in layer.shapes.values())
    places = {"weight": position, "bias": position + weight}
    assert bias == layer.outputs
    if name == "Dense":
        return LayerRecord(
            kind=DENSE, inputs=layer.inputs, outputs=layer.outputs, height=1, width=1, **places
        )
    if layer.kernel not in KERNEL_SIZES:
        return f"there is no native code for {layer.kernel}x{layer.kernel} convolutions"
    return LayerRecord(
        kind=CONV_POOL,
        inputs=layer.inputs,
        outputs=layer.outputs,
        height=shape[1],
        width=shape[2],
        kernel=layer.kernel,
        padding=layer.padding,
        relu=1,
        **places,
    )
