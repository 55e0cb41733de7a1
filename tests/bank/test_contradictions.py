"""Groups of clients with contradictory labels; `test_two_mixtures.py` tests them in a bank."""

import numpy as np
import pytest

from thalweg.bank.contradictions import Contradictions, Seen, compute_lower_limits

RULE = Contradictions(max_conflict=0.5, sufficient_loss=0.5, max_clusters=5, significance=0.001)


def test_two_clients_with_contradictory_labels_are_apart():
    """Each is compared with the other, not with the mean of both, which is (2, 2)."""
    losses, none = np.array([[0.1], [6.0]]), np.empty((2, 2))
    for first in (0.1, -0.1, 0.0):
        prototypes = np.array([[[first], [4.0]], [[4.0], [0.0]]])
        errors, clients = np.full((2, 2), 0.1), np.arange(2)
        seen = Seen(clients, prototypes, prototypes, errors, none, losses, losses, clients)
        assert RULE.find_groups(seen).tolist() == [0, 1]


def test_a_client_that_contradicts_the_others_of_its_cluster_is_separated():
    same, other = [[0.0], [4.0]], [[4.0], [0.0]]
    errors = np.full((5, 2), 0.1)
    found = RULE.separate_contradicting(
        np.array([same, other, same, same, other]), errors, np.array([0, 0, 0, 1, 2])
    )
    assert found.tolist() == [0, 3, 0, 1, 2]
    noisy = RULE.separate_contradicting(
        np.array([same, other, same]), np.full((3, 2), 10.0), np.zeros(3, dtype=int)
    )
    assert noisy.tolist() == [0, 0, 0], "the difference may be chance"


def test_prototypes_without_a_known_error_are_no_evidence():
    """The errors of clients 2 and 3 are not known; with their prototypes the means would differ."""
    same, other, unknown = [[0.0], [4.0]], [[4.0], [0.0]], [np.nan, np.nan]
    points = np.array([same, same, other, other])
    errors = np.array([[0.1, 0.1], [0.1, 0.1], unknown, unknown])
    found = RULE.separate_contradicting(points, errors, np.zeros(4, dtype=int))
    assert found.tolist() == [0, 0, 0, 0]
    losses, clients = np.full((4, 1), 0.1), np.arange(4)
    small = np.full((4, 2), 0.1)
    old = np.array([same] * 4)
    seen = Seen(clients, points, old, errors, small, losses, losses, clients)
    assert not RULE.has_changed(seen)
    changed = seen._replace(prototypes=np.array([other, same, same, same]))
    assert not RULE.has_changed(changed), "the mean of clients 0 and 1 has equal classes"
    assert RULE.has_changed(changed._replace(new_errors=np.array([[0.1, 0.1], *[unknown] * 3])))


def test_errors_of_wrong_labels_are_zero_where_the_client_has_the_class():
    """Client 1 lacks class 1, whose mean and its error are therefore those of client 0 alone."""
    prototypes = np.array([[[0.0], [4.0]], [[4.0], [np.nan]]])
    errors = np.array([[0.1, 0.2], [0.3, np.nan]])
    zeros, none = np.zeros((2, 2)), np.zeros(2, dtype=int)
    losses = np.array([[0.1], [6.0]])
    seen = Seen(np.arange(2), prototypes, prototypes, errors, zeros, losses, losses, none)
    found = RULE.estimate_errors(seen)
    np.testing.assert_array_equal(found, [[0.1, 0.2], [0.0, np.nan]])


def test_clients_with_a_sufficient_model_count_only_if_there_are_no_others():
    """Clients 0 and 2 have a sufficient model; client 2 is alone in its group."""
    losses, nothing = np.array([[0.1, 6.0], [2.0, 3.0], [0.5, 4.0]]), np.empty((3, 2, 1))
    none, clients = np.empty((3, 2)), np.arange(3)
    seen = Seen(clients, nothing, nothing, none, none, losses, losses, clients)
    assert RULE.find_unfit(seen).tolist() == [False, True, False]
    assert RULE.mean_losses(seen, np.array([0, 0, 1])).tolist() == [[2.0, 3.0], [0.5, 4.0]]


@pytest.mark.parametrize("losses", [[[2.0, 2.0]], [[1.0, 3.0]], [[2.0]]])
def test_lower_limit_without_a_test_is_the_mean(losses: list[list[float]]) -> None:
    assert compute_lower_limits(np.array(losses), 1.0).tolist() == [2.0]


def test_lower_limit_of_equal_losses_is_their_mean_at_every_level() -> None:
    assert compute_lower_limits(np.array([[2.0, 2.0]]), 1e-9).tolist() == [2.0]
