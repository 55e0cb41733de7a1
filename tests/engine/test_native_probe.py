"""Probes of the native kernel agree with those of PyTorch, which they load only if needed."""

import subprocess
import sys

import numpy as np

from native.kernel_cases import make_native, needs_kernel
from thalweg.data import Digits
from thalweg.engine.gather import Gather
from thalweg.engine.model_probe import FixedModelProbe
from thalweg.engine.native_probe import NativeProbe
from thalweg.engine.stacked import StackedTrainer
from thalweg.local import LocalTraining, TaskLoss
from thalweg.nets import Mlp

pytestmark = needs_kernel
ROWS = np.array([3, 1, 4, 15, 9])


def test_values_are_those_of_a_probe_with_pytorch() -> None:
    data = Digits().load(None, 0)
    net = Mlp(hidden=(6,)).build(data.input_shape, 10)
    params = net.init(np.random.default_rng(0))
    stacked = StackedTrainer(net, TaskLoss(), LocalTraining(lr=0.1, steps=1), Gather(data))
    made: list[int] = []

    def make_other() -> FixedModelProbe:
        made.append(1)
        return FixedModelProbe(stacked, params)

    theirs, ours = (
        FixedModelProbe(stacked, params),
        NativeProbe(make_native(net, data), params, make_other),
    )
    assert np.array_equal(ours.params(), params)
    np.testing.assert_allclose(ours.losses(ROWS), theirs.losses(ROWS), rtol=1e-4)
    np.testing.assert_allclose(ours.outputs(ROWS), theirs.outputs(ROWS), rtol=1e-4, atol=1e-5)
    assert made == []
    for name in ("gradient", "squared_gradients", "is_correct"):
        assert np.array_equal(getattr(ours, name)(ROWS), getattr(theirs, name)(ROWS))
    assert np.array_equal(ours.descend(ROWS, 2).params, theirs.descend(ROWS, 2).params)
    for mine, other in zip(
        ours.last_layer(ROWS, received=True), theirs.last_layer(ROWS, received=True), strict=True
    ):
        assert np.array_equal(mine, other)
    assert len(made) == 5


def test_the_surveys_of_auto_load_neither_pytorch_nor_the_assignment_of_scipy() -> None:
    code = (
        "import sys, thalweg\n"
        "run = thalweg.run('auto', 'digits-partial', rounds=3, workers=1)\n"
        "row = run.metrics[1]  # with a survey\n"
        "assert row['bytes_up'] > row['cohort'] * (run.model.nbytes + 100)\n"
        "print({'torch', 'scipy.optimize'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "set()"
