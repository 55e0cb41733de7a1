"""Tests of losses; doctests show their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from thalweg.core.errors import ConfigError
from thalweg.losses import (
    LOSSES,
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    LossFunction,
    MeanSquaredError,
    Quantile,
    check_loss,
    compute_output_errors,
    count_outputs,
    decode_outputs,
    get_log_probabilities,
    resolve_loss,
    wrap_function,
)

NUMBERS = sorted(name for name in LOSSES if getattr(LOSSES[name], "task", "") == "regression")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("columns", [1, 3])
def test_stacked_clients_have_the_losses_of_single_clients(name: str, columns: int) -> None:
    loss, outputs = LOSSES[name](), torch.randn(2, 5, columns)
    targets = torch.randn(2, 5) if columns == 1 else torch.randn(2, 5, columns)
    together = loss(outputs, targets)
    assert together.shape == (2, 5)
    for k in range(2):
        torch.testing.assert_close(together[k], loss(outputs[k], targets[k]))


def test_binary_cross_entropy_equals_cross_entropy_of_two_logits() -> None:
    logit, labels = torch.randn(2, 7, 1), torch.randint(0, 2, (2, 7))
    both = torch.cat([torch.zeros_like(logit), logit], 2)
    torch.testing.assert_close(BinaryCrossEntropy()(logit, labels), CrossEntropy()(both, labels))
    scores = get_log_probabilities(BinaryCrossEntropy(), logit[0], is_regression=False)
    torch.testing.assert_close(scores, both[0].log_softmax(1))
    guesses = decode_outputs(BinaryCrossEntropy(), logit[0], labels[0])
    assert guesses.tolist() == both[0].argmax(1).tolist()
    assert count_outputs(BinaryCrossEntropy(), 2) == 1


def test_output_errors_are_the_gradient_in_the_outputs() -> None:
    outputs, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    by_formula = compute_output_errors(CrossEntropy(), outputs, labels)

    with torch.inference_mode():
        by_autograd = compute_output_errors(wrap_function(CrossEntropy().__call__), outputs, labels)
    torch.testing.assert_close(by_formula, by_autograd)
    errors = compute_output_errors(MeanSquaredError(), outputs[:, :1], torch.zeros(4))
    torch.testing.assert_close(errors, 2 * outputs[:, :1])


@pytest.mark.parametrize(
    "loss, task, classes, message",
    [
        (MeanSquaredError(), "classification", 10, "targets of toy are 10 classes.*cross_entropy"),
        (CrossEntropy(), "regression", 0, "are numbers.*loss=mse, mae, huber or quantile"),
        (BinaryCrossEntropy(), "classification", 3, "needs two classes, but toy has 3"),
    ],
)
def test_loss_of_the_wrong_task_is_rejected(
    loss: Any, task: str, classes: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_loss(loss, task, classes, "toy")


def test_other_task_is_suggested_only_if_the_data_can_have_it() -> None:
    with pytest.raises(ConfigError, match=r"Use loss=cross_entropy\.$"):
        resolve_loss(MeanSquaredError(), "classification", 10, "toy")
    with pytest.raises(
        ConfigError, match=r"Use loss=cross_entropy, or set data\.task=regression\.$"
    ):
        resolve_loss(MeanSquaredError(), "classification", 10, "toy", "regression")


@pytest.mark.parametrize("make", [lambda: Huber(delta=0), lambda: Quantile(q=1.0)])
def test_invalid_parameters_of_losses_are_rejected(make: Any) -> None:
    with pytest.raises(ConfigError):
        make()


def mean_error(outputs: Any, targets: Any) -> Any:
    return (outputs - targets).abs().mean()


def constant(outputs: Any, targets: Any) -> Any:
    return torch.zeros(len(outputs))


def logarithm(outputs: Any, targets: Any) -> Any:
    return (outputs - outputs.detach()).log().square().squeeze(1)


def broken(outputs: Any, targets: Any) -> Any:
    return outputs @ targets


def text(outputs: Any, targets: Any) -> Any:
    return "none"


@pytest.mark.parametrize(
    "function, message",
    [
        (mean_error, r"one loss per sample, of shape \(8,\), got shape \(\).*reduction"),
        (constant, "not differentiable in the outputs"),
        (logarithm, "is inf for sample 0 of the first batch; expected finite"),
        (broken, r"raised RuntimeError.*outputs \(8, 1\) and targets \(8,\)"),
        (text, "got str 'none'"),
        (
            lambda outputs, targets: (outputs - targets.mean())[:, 0] ** 2,
            "of a sample depends on the other samples of the batch: it is",
        ),
    ],
)
def test_unusable_loss_function_is_rejected_on_the_first_batch(function: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_loss(wrap_function(function), torch.randn(8, 1), torch.randn(8))


def test_loss_function_may_return_a_loss_per_output_in_a_regression() -> None:
    loss = wrap_function(lambda outputs, targets: (outputs - targets).square())
    outputs, targets = torch.randn(2, 4, 3), torch.randn(2, 4, 3)
    torch.testing.assert_close(loss(outputs, targets), MeanSquaredError()(outputs, targets))
    torch.testing.assert_close(
        loss(outputs[..., :1], targets[..., 0]),
        MeanSquaredError()(outputs[..., :1], targets[..., 0]),
    )


def test_loss_function_of_a_file_is_loaded_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def half(outputs, targets):\n    return (outputs - targets).abs() / 2\n")
    loss = wrap_function(f"{file}:half")
    assert isinstance(loss, LossFunction)
    assert loss == LossFunction(f"{file}:half")
    assert loss(torch.tensor([[3.0]]), torch.tensor([1.0])).tolist() == [1.0]
    with pytest.raises(ConfigError, match="has no function 'third'"):
        LossFunction(f"{file}:third")
    with pytest.raises(ConfigError, match=r"a lambda.* cannot be loaded again"):
        LossFunction("__main__:<lambda>")
