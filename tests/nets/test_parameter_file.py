"""Tests of loading parameters from a file."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from thalweg.core.errors import ConfigError, DataError
from thalweg.nets import Linear, Mlp, load_parameters


@pytest.fixture
def net():
    return Mlp(hidden=(3,)).build((2,), 2)


def write(file, net, **changes):
    """Write a model file; `changes` replace tensors, and None removes one."""
    params = net.init(np.random.default_rng(4))
    named = net.named_parameters(params)
    tensors = {name: np.ascontiguousarray(value) for name, value in named.items()}
    tensors |= {name.replace("_", "."): value for name, value in changes.items()}
    kept = {name: value for name, value in reversed(tensors.items()) if value is not None}
    save_file(kept, file, metadata={"net": "somebody's"})
    return params


def test_saved_parameters_are_read_back_exactly(tmp_path, net):
    params = write(tmp_path / "model.safetensors", net)
    again = load_parameters(tmp_path / "model.safetensors", net)
    assert again.dtype == np.float32
    assert np.array_equal(again, params)
    assert again.flags.writeable


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"fc1_bias": None}, r"has no fc1.bias, which has shape \(3,\).*It has: .*fc2.weight"),
        (
            {"fc2_weight": np.zeros((2, 4), np.float32)},
            r"fc2.weight has shape \(2, 4\), .*\(2, 3\)",
        ),
        ({"fc3_bias": np.zeros(2, np.float32)}, "it has fc3.bias, which this net does not have"),
    ],
)
def test_mismatched_tensor_is_named_in_the_error(tmp_path, net, changes, message):
    write(tmp_path / "m.safetensors", net, **changes)
    with pytest.raises(ConfigError, match=rf"belongs to another net: .*{message}.*Choose the net"):
        load_parameters(tmp_path / "m.safetensors", net)


def test_parameters_of_another_net_are_rejected(tmp_path, net):
    write(tmp_path / "m.safetensors", Linear().build((2,), 2))
    with pytest.raises(ConfigError, match=r"fc1.weight has shape \(2, 2\), expected \(3, 2\)"):
        load_parameters(tmp_path / "m.safetensors", net)


def test_tensors_with_another_shape_are_rejected(tmp_path, net):
    write(tmp_path / "m.safetensors", net, fc1_weight=np.zeros((2, 3), np.float32))
    with pytest.raises(ConfigError, match=r"fc1.weight has shape \(2, 3\), expected \(3, 2\)"):
        load_parameters(tmp_path / "m.safetensors", net)


@pytest.mark.parametrize(
    "dtype, called", [("float64", "F64"), ("float16", "F16"), ("int32", "I32")]
)
def test_tensors_with_another_dtype_are_rejected(tmp_path, net, dtype, called):
    write(tmp_path / "m.safetensors", net, fc1_bias=np.zeros(3, dtype))
    with pytest.raises(DataError, match=f"fc1.bias is {called}; expected F32"):
        load_parameters(tmp_path / "m.safetensors", net)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_parameters_are_rejected(tmp_path, net, value):
    write(tmp_path / "m.safetensors", net, fc2_bias=np.array([0, value], np.float32))
    with pytest.raises(DataError, match=r"fc2.bias has non-finite numbers"):
        load_parameters(tmp_path / "m.safetensors", net)


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "pickle", "missing"])
def test_damaged_parameter_files_are_rejected(tmp_path, net, damage):
    file = tmp_path / "m.safetensors"
    write(file, net)
    content = {
        "empty": b"",
        "text": b"hello",
        "cut": file.read_bytes()[:-5],
        "pickle": b"\x80\x04N.",
    }
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(content[damage])
    with pytest.raises(DataError, match=r"m.safetensors is not a readable safetensors file"):
        load_parameters(file, net)
