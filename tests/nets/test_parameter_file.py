"""Parameters from a file: those of the same net and no other."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from thalweg.core.errors import ConfigError, DataError
from thalweg.nets import Linear, Mlp, load_parameters


@pytest.fixture
def net():
    return Mlp(hidden=(3,)).build((2,), 2)


def write(file, net, **changes):
    """A model as a run leaves it; `changes` are other tensors, None: leave one out."""
    params = net.init(np.random.default_rng(4))
    named = net.named_parameters(params)
    tensors = {name: np.ascontiguousarray(value) for name, value in named.items()}
    tensors |= {name.replace("_", "."): value for name, value in changes.items()}
    kept = {name: value for name, value in reversed(tensors.items()) if value is not None}
    save_file(kept, file, metadata={"net": "somebody's"})
    return params


def test_what_a_run_leaves_is_read_back_bit_for_bit(tmp_path, net):
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
def test_another_architecture_is_refused_with_the_tensor_that_differs(
    tmp_path, net, changes, message
):
    write(tmp_path / "m.safetensors", net, **changes)
    with pytest.raises(ConfigError, match=rf"belongs to another net: .*{message}.*Choose the net"):
        load_parameters(tmp_path / "m.safetensors", net)


def test_the_parameters_of_another_net_are_refused(tmp_path, net):
    write(tmp_path / "m.safetensors", Linear().build((2,), 2))
    with pytest.raises(ConfigError, match=r"fc1.weight has shape \(2, 2\), expected \(3, 2\)"):
        load_parameters(tmp_path / "m.safetensors", net)


def test_the_same_numbers_in_another_shape_are_refused(tmp_path, net):
    write(tmp_path / "m.safetensors", net, fc1_weight=np.zeros((2, 3), np.float32))
    with pytest.raises(ConfigError, match=r"fc1.weight has shape \(2, 3\), expected \(3, 2\)"):
        load_parameters(tmp_path / "m.safetensors", net)


@pytest.mark.parametrize(
    "dtype, called", [("float64", "F64"), ("float16", "F16"), ("int32", "I32")]
)
def test_other_kinds_of_numbers_are_refused(tmp_path, net, dtype, called):
    write(tmp_path / "m.safetensors", net, fc1_bias=np.zeros(3, dtype))
    with pytest.raises(DataError, match=f"fc1.bias is {called}; expected F32"):
        load_parameters(tmp_path / "m.safetensors", net)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(tmp_path, net, value):
    write(tmp_path / "m.safetensors", net, fc2_bias=np.array([0, value], np.float32))
    with pytest.raises(DataError, match=r"fc2.bias has non-finite numbers"):
        load_parameters(tmp_path / "m.safetensors", net)


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "pickle", "missing"])
def test_what_is_no_such_file_is_refused(tmp_path, net, damage):
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
