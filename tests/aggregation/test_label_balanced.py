from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.examples import some_outlook, some_roster, some_updates
from thalweg.aggregation import LabelBalanced, MemorySummary
from thalweg.core.claims import Claim
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats


def reports_of(mixes: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    return {f"label_share_{c}": list(shares) for c, shares in enumerate(np.transpose(mixes))}


def weigh(
    mixes: Sequence[Sequence[float]],
    known: Mapping[str, Floats] | None = None,
    clients: Sequence[int] | None = None,
    num_samples: Sequence[int] | None = None,
    **fields: Any,
) -> list[float]:
    clients = range(len(mixes)) if clients is None else clients
    updates = some_updates(clients, 2, reports=reports_of(mixes), num_samples=num_samples)
    roster = some_roster(sorted({*clients}), 6, known=known)
    return [float(p) for p in LabelBalanced(**fields).weigh(updates, roster).round(9)]


def test_two_clients_with_one_class_each_have_equal_weights() -> None:
    assert weigh([[1, 0], [0, 1]]) == [0.5, 0.5]


def test_weights_move_from_equal_ones_to_the_target_as_the_ridge_falls() -> None:
    # (x, x, 1 - 2x) with x = (1 + ridge) / (4 + 3 ridge)
    mixes = [[1, 0], [1, 0], [0, 1]]
    for ridge, x in ((1e-6, 0.25), (1.0, 2 / 7), (2.0, 3 / 10), (1e6, 1 / 3)):
        assert weigh(mixes, ridge=ridge) == pytest.approx([x, x, 1 - 2 * x], abs=1e-6)


def test_a_client_far_from_the_target_may_have_no_weight() -> None:
    assert weigh([[1, 0, 0, 0], [0, 1 / 3, 1 / 3, 1 / 3], [1, 0, 0, 0]], ridge=1e-6) == (
        pytest.approx([0.125, 0.75, 0.125], abs=1e-5)
    )
    assert weigh([[1.0, 0.0], [0.6, 0.4]], ridge=1e-3) == [0.0, 1.0]


def test_a_client_without_a_mix_counts_with_the_mean_of_the_others() -> None:
    # The mean of (1, 0) and (0, 1) is the target: all weights are equal.
    assert weigh([[1, 0], [0, 0], [0, 1]]) == pytest.approx([1 / 3] * 3)
    assert weigh([[0, 0], [0, 0]]) == [0.5, 0.5]


def test_pooled_target_is_the_mix_of_the_last_counts_of_all_clients() -> None:
    known = {
        "label_share_0": np.array([0.5, 0.5, 1.0, np.nan, np.nan, np.nan]),
        "label_share_1": np.array([0.5, 0.5, 0.0, np.nan, np.nan, np.nan]),
        "num_samples": np.array([7.0, 7.0, 20.0, np.nan, np.nan, np.nan]),
    }
    # Clients 0 and 1 have 10 samples now, of class 0 and 1; client 2 had 20 of class 0: 3/4 of 40.
    weights = weigh([[1, 0], [0, 1]], known, num_samples=[10, 10], target="pooled", ridge=1e-6)
    assert weights == pytest.approx([0.75, 0.25], abs=1e-5)
    # In the first round nothing else is known.
    weights = weigh([[1, 0], [0, 1]], num_samples=[10, 30], target="pooled", ridge=1e-6)
    assert weights == pytest.approx([0.25, 0.75], abs=1e-5)


def test_of_a_late_and_a_new_update_of_a_client_the_new_one_counts_in_the_pool() -> None:
    weights = weigh(
        [[1, 0], [0, 1]], clients=[3, 3], num_samples=[10, 10], target="pooled", ridge=1e-6
    )
    assert weights == pytest.approx([0.0, 1.0], abs=1e-5)


@pytest.mark.parametrize("name", ["label_mix", "label_counts"])
def test_mixes_of_a_survey_replace_reports(name: str) -> None:
    rows = np.full((6, 2), np.nan)
    rows[[1, 4, 5]] = [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    updates = some_updates([1, 4], 2)
    roster = some_roster([1, 4], 6, known={name: rows})
    rule = LabelBalanced(source="survey", target="pooled", ridge=1e-6)
    assert rule.weigh(updates, roster) == pytest.approx([1 / 3, 2 / 3], abs=1e-5)
    assert rule.report(MemorySummary(some_outlook(), np.ones(3), 1)) == {}
    nothing = some_roster([1, 4], 6, known={})
    assert rule.weigh(updates, nothing).tolist() == [0.5, 0.5]


def test_clients_report_the_shares_of_all_classes() -> None:
    mix = np.array([0.25, 0.75, 0.0])
    summary = MemorySummary(some_outlook(), np.ones(3), ticks=1, label_mix=mix)
    assert LabelBalanced().report(summary) == {
        "label_share_0": 0.25,
        "label_share_1": 0.75,
        "label_share_2": 0.0,
    }


@given(
    st.integers(1, 8),
    st.integers(1, 5),
    st.floats(1e-4, 100),
    st.sampled_from(["balanced", "pooled"]),
    st.integers(0, 2**20),
)
def test_weights_fulfil_the_optimality_conditions(
    size: int, num_classes: int, ridge: float, target: Any, seed: int
) -> None:
    """KKT: p >= 0, sum 1, and the slope is the same where p > 0 and not smaller elsewhere."""
    rng = np.random.default_rng(seed)
    mixes = rng.dirichlet(np.full(num_classes, 0.3), size)
    num_samples = rng.integers(1, 50, size)
    updates = some_updates(range(size), 2, reports=reports_of(mixes), num_samples=num_samples)
    rule = LabelBalanced(target=target, ridge=ridge)
    p = rule.weigh(updates, some_roster(range(size), size))
    pool = num_samples @ mixes / num_samples.sum()
    goal = np.full(num_classes, 1 / num_classes) if target == "balanced" else pool
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1, abs=1e-9)
    slope = mixes @ (p @ mixes - goal) + ridge * (p - 1 / size)
    level = slope[p > 1e-6]
    assert np.ptp(level) <= 1e-6 * max(1, ridge)
    assert (slope >= level.min() - 1e-6 * max(1, ridge)).all()


def claim(uploads: Mapping[str, Sequence[float]], num_classes: int | None = 2) -> Claim:
    values = {name: np.array(shares, float) for name, shares in uploads.items()}
    return Claim(values, 4, 1, num_classes=num_classes)


def test_impossible_reports_are_rejected() -> None:
    rule = LabelBalanced()
    for mixes in ([[0.25, 0.75]], [[0, 0]], [[1, 0], [1, 0]]):
        assert rule.validate_claim(claim(reports_of(mixes))) is None
        assert rule.validate_claim(claim(reports_of(mixes), None)) is None
    for mixes, reason in (
        ([[0.5, 0.6]], "sum to 1.1, not to 1"),
        ([[-0.5, 1.5]], "only 0 to 1"),
        ([[0.5, np.nan]], "not finite"),
        ([[0.5, 0.25, 0.25]], "the reports are not label_share_0 to label_share_1"),
    ):
        assert reason in str(rule.validate_claim(claim(reports_of(mixes))))


def test_invalid_fields_are_rejected() -> None:
    for fields in ({"ridge": 0.0}, {"target": "mean"}, {"source": "arrivals"}):
        with pytest.raises(ConfigError, match=next(iter(fields))):
            LabelBalanced(**fields)  # type: ignore[arg-type]
