from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.core.types import Ints
from thalweg.streams import Overlap, Setting
from thalweg.streams.overlap import draw_with_retries

TEN = np.repeat(np.arange(10), 60)


def partition_labels(
    partition: Overlap, labels: Ints, num_clients: int, seed: int = 0
) -> list[Ints]:
    where = Setting(labels, int(labels.max()) + 1, 1, 10, 10, seed)
    rng = np.random.default_rng(seed)
    return partition.assign_rows(rng.permutation(len(labels)), where, num_clients, rng)


def labels_of(hands: list[Ints], labels: Ints) -> set[int]:
    return set(labels[np.concatenate(hands)].tolist())


def test_overlap_groups_have_the_labels_of_the_paper() -> None:
    hands = partition_labels(Overlap(overlap=0.2), TEN, 40)
    assert labels_of(hands[:20], TEN) == {0, 1, 2, 3, 4}
    assert labels_of(hands[20:], TEN) == {4, 5, 6, 7, 8}, "no client has label 9"
    assert [len(hand) for hand in hands] == [15] * 40, "equal quotas"


def test_both_overlap_groups_have_all_samples_of_shared_labels() -> None:
    hands = partition_labels(Overlap(overlap=0.2), TEN, 40)
    for group in (hands[:20], hands[20:]):
        rows = np.concatenate(group)
        assert len(set(rows.tolist())) == len(rows), "inside a group no sample twice"
        assert set(np.flatnonzero(TEN == 4).tolist()) <= set(rows.tolist())


def test_zero_overlap_gives_every_sample_to_one_client() -> None:
    rows = np.concatenate(partition_labels(Overlap(), TEN, 12))
    assert sorted(rows.tolist()) == list(range(600))


def test_client_quotas_differ_by_at_most_one_sample() -> None:
    hands = partition_labels(Overlap(), TEN[:500], 6)  # 240 of labels 0 to 3, 260 of the others
    assert [len(hand) for hand in hands] == [80, 80, 80, 87, 87, 86]


def test_concentration_controls_the_number_of_labels_per_client() -> None:
    labels = np.repeat(np.arange(10), 2000)

    def largest(concentration: float) -> float:
        """Share of the commonest label at a client, in the mean."""
        hands = partition_labels(Overlap(0.0, concentration), labels, 20)
        return float(np.mean([np.bincount(labels[hand]).max() / len(hand) for hand in hands]))

    assert largest(1000.0) < 0.25, "a fifth each"
    assert largest(0.05) > 0.6


def test_overlap_partition_depends_on_the_generator() -> None:
    one, same, other = (partition_labels(Overlap(0.2), TEN, 8, seed) for seed in (0, 0, 1))
    assert [hand.tolist() for hand in one] == [hand.tolist() for hand in same]
    assert [hand.tolist() for hand in one] != [hand.tolist() for hand in other]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(2, 12), min_size=2, max_size=7),
    overlap=st.floats(0, 0.95),
    concentration=st.sampled_from((0.01, 0.3, 10.0)),
    seed=st.integers(0, 9),
)
def test_each_overlap_group_assigns_its_samples_once(
    sizes: list[int], overlap: float, concentration: float, seed: int
) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    hands = partition_labels(Overlap(overlap, concentration), labels, 4, seed)
    for group in (hands[:2], hands[2:]):
        rows = np.concatenate(group)
        own = np.flatnonzero(np.isin(labels, labels[rows]))
        assert sorted(rows.tolist()) == own.tolist()
        assert abs(len(group[0]) - len(group[1])) <= 1


def test_draws_with_retries_follow_the_mix() -> None:
    mix, left = np.array([0.5, 0.3, 0.2, 0.0]), np.full(4, 10_000)
    drawn = draw_with_retries(5000, mix, left, np.random.default_rng(0))
    # Standard deviation of a count at most 36.
    assert abs(drawn - [2500, 1500, 1000, 0]).max() < 150


def test_draws_of_an_exhausted_label_go_to_other_labels_of_the_mix() -> None:
    mix, left = np.array([0.5, 0.3, 0.2]), np.array([100, 10_000, 10_000])
    drawn = draw_with_retries(5000, mix, left, np.random.default_rng(0))
    assert drawn[0] == 100
    # About 200 draws until then, after it 3 : 2.
    assert abs(drawn[1] / drawn[1:].sum() - 0.6) < 0.03
    assert drawn.sum() == 5000


def test_draws_fall_back_to_any_remaining_label_after_all_retries() -> None:
    mix, left = np.array([1.0, 0.0, 0.0]), np.array([10, 1000, 1000])
    drawn = draw_with_retries(1010, mix, left, np.random.default_rng(0))
    assert drawn[0] == 10
    assert abs(drawn[1] - 500) < 80, "as likely as another; standard deviation 16"


def test_retries_usually_find_a_label_with_a_small_share() -> None:
    mix, left = np.array([0.9, 0.1, 0.0]), np.array([0, 10_000, 10_000])
    drawn = draw_with_retries(10_000, mix, left, np.random.default_rng(0))
    # 3 * 3 + 5 tries fail with probability 0.9^14 = 0.229; then one of two labels is drawn:
    # 1 - 0.229 / 2 = 0.886.
    assert abs(drawn[1] / 10_000 - 0.886) < 0.02


def test_draws_never_exceed_the_remaining_samples() -> None:
    left = np.array([3, 0, 4])
    drawn = draw_with_retries(100, np.array([0.2, 0.5, 0.3]), left, np.random.default_rng(0))
    assert drawn.tolist() == [3, 0, 4]
    assert (
        draw_with_retries(0, np.array([0.2, 0.5, 0.3]), left, np.random.default_rng(0)).sum() == 0
    )


def test_invalid_overlap_partitions_are_rejected() -> None:
    with pytest.raises(ConfigError, match="num_clients must be even, got 5"):
        partition_labels(Overlap(), TEN, 5)
    with pytest.raises(ConfigError, match=r"partition=overlap: 3 samples .* for 4 clients"):
        partition_labels(Overlap(), np.array([0, 0, 0, 1, 1, 1, 1, 1]), 8)
    with pytest.raises(ConfigError, match="two groups need at least two labels"):
        partition_labels(Overlap(), np.zeros(20, dtype=np.int64), 2)
    with pytest.raises(ConfigError, match="overlap must lie in"):
        Overlap(overlap=1.0)
    with pytest.raises(ConfigError, match="concentration must be positive"):
        Overlap(concentration=0.0)
