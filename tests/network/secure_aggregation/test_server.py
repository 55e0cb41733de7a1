"""The server's part of secure aggregation: a masked round with clients in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.aggregation import Masked
from thalweg.federation import TrainRequest, TrainResponse
from thalweg.network.secure_aggregation.client import (
    MaskIdentity,
    answer_mask_request,
    check_mask_group,
    mask_update,
    new_mask_state,
)
from thalweg.network.secure_aggregation.server import (
    INVALID_KEYS,
    MASK_NOT_REMOVABLE,
    SAME_NODE_KEY,
    MaskedRoundResult,
    run_masked_round,
)
from thalweg.network.wire import MaskRequest, MaskResponse
from thalweg.recipes import fedavg

RULE, IDENTITY = Masked(), MaskIdentity("run")
RECIPE = replace(fedavg(), secure_aggregation=RULE)
UPDATES = np.array(
    [[0.5, -1.0, 0.25], [1.5, 0.0, 0.25], [0.0, 3.0, 0.25], [2.0, 2.0, 0.25], [1.0, 1.0, 0.25]],
    dtype=np.float32,
)
ALL = [0, 1, 2, 3, 4]
Forge = Callable[[MaskRequest, MaskResponse], MaskResponse]


def answer_honestly(request: MaskRequest, response: MaskResponse) -> MaskResponse:
    return response


class Round:
    """A round with five clients, of which at least four are needed.

    `missing` maps an exchange (keys, shares, update, sign or open) to the clients that do not
    respond; `idle` are clients without a training step.
    """

    def __init__(
        self,
        missing: Mapping[str, list[int]] | None = None,
        forge: Forge = answer_honestly,
        idle: list[int] | None = None,
    ) -> None:
        self.missing, self.forge, self.idle = missing or {}, forge, idle or []
        self.states = {client: new_mask_state() for client in ALL}
        self.exchanges: dict[str, list[int]] = {}  # the clients of each

    def run(self) -> MaskedRoundResult:
        zero, params = np.zeros(1, dtype=np.int64), np.zeros((1, 3), dtype=np.float32)
        requests = {client: TrainRequest(7, client, zero, np.ones(1), params) for client in ALL}
        return run_masked_round(RECIPE, requests, self._answer, self._train, "run")

    def _answer(self, requests: Mapping[int, MaskRequest]) -> dict[int, MaskResponse]:
        responses = {}
        for client, request in requests.items():
            self.exchanges.setdefault(request.step, []).append(client)
            if client not in self.missing.get(request.step, []):
                self.states[client], honest = answer_mask_request(
                    request, self.states[client], RULE, IDENTITY
                )
                responses[client] = self.forge(request, honest)
        return responses

    def _train(self, requests: Mapping[int, TrainRequest]) -> dict[int, TrainResponse]:
        self.exchanges["update"] = list(requests)
        responses = {}
        for client, request in requests.items():
            if client not in self.missing.get("update", []):
                check_mask_group(request, self.states[client], RULE, IDENTITY)
                zero, one = np.zeros(1, dtype=np.int64), np.ones(1)
                steps = np.array([0 if client in self.idle else 2])
                plain = TrainResponse(
                    7, client, zero, UPDATES[client][None], 9, steps, one, zero, zero
                )
                self.states[client], responses[client] = mask_update(
                    plain, request, self.states[client], RULE, RECIPE
                )
        return responses


def test_each_response_has_the_mean_of_all_updates() -> None:
    result = Round().run()
    assert (result.metric, list(result.rejections)) == ("", [])
    assert [response.client for response in result.responses] == ALL
    for response in result.responses:
        np.testing.assert_allclose(response.deltas, [[1.0, 1.0, 0.25]], atol=1e-6)
        assert response.masked is None


@pytest.mark.parametrize("exchange", ["keys", "shares", "update"])
def test_client_that_is_missing_before_its_update_is_not_in_the_mean(exchange: str) -> None:
    masked_round = Round({exchange: [3]})
    result = masked_round.run()
    assert [response.client for response in result.responses] == [0, 1, 2, 4]
    for response in result.responses:
        np.testing.assert_allclose(response.deltas, [[0.75, 0.75, 0.25]], atol=1e-6)
    exchanges = list(masked_round.exchanges)
    for later in exchanges[exchanges.index(exchange) + 1 :]:
        assert masked_round.exchanges[later] == [0, 1, 2, 4], "it gets no further requests"


@pytest.mark.parametrize("exchange", ["sign", "open"])
def test_client_that_is_missing_after_its_update_is_in_the_mean(exchange: str) -> None:
    result = Round({exchange: [3]}).run()
    assert [response.client for response in result.responses] == ALL
    np.testing.assert_allclose(result.responses[0].deltas, [[1.0, 1.0, 0.25]], atol=1e-6)


@given(
    st.dictionaries(
        st.sampled_from(["keys", "shares", "update", "sign", "open"]),
        st.lists(st.sampled_from(ALL), max_size=2, unique=True),
        max_size=3,
    )
)
@settings(max_examples=30, deadline=None)
def test_dropouts_give_the_mean_of_the_received_updates_or_no_sum(
    missing: dict[str, list[int]],
) -> None:
    result = Round(missing).run()
    before = {client for step in ("keys", "shares", "update") for client in missing.get(step, [])}
    received = [client for client in ALL if client not in before]
    after = {client for step in ("sign", "open") for client in missing.get(step, [])}
    revealing = [client for client in received if client not in after]
    number = len(set(ALL) - set(missing.get("keys", [])))
    is_possible = len(received) >= 4 and len(revealing) >= RULE.required_clients(number)
    assert result.metric == ("" if is_possible else "too_few")
    if is_possible:
        assert [response.client for response in result.responses] == received
        expected = UPDATES[received].mean(axis=0, dtype=np.float64)
        np.testing.assert_allclose(result.responses[0].deltas[0], expected, atol=1e-6)


@pytest.mark.parametrize("exchange", ["keys", "shares", "update", "sign", "open"])
def test_round_with_too_few_clients_has_no_sum(exchange: str) -> None:
    needed = RULE.required_clients(len(ALL))
    assert needed < len(ALL)
    masked_round = Round({exchange: ALL[needed - 1 :]})
    result = masked_round.run()
    assert (list(result.responses), result.metric) == ([], "too_few")
    assert list(masked_round.exchanges)[-1] == exchange, "no further requests are sent"


def test_client_with_invalid_keys_is_rejected_and_not_in_the_mean() -> None:
    def send_zeros(request: MaskRequest, response: MaskResponse) -> MaskResponse:
        if (request.client, request.step) != (3, "keys"):
            return response
        zeros = np.zeros_like(response.values["mask_keys"])
        return replace(response, values={**response.values, "mask_keys": zeros})

    result = Round(forge=send_zeros).run()
    assert [(each.client, each.reason) for each in result.rejections] == [(3, INVALID_KEYS)]
    np.testing.assert_allclose(result.responses[0].deltas, [[0.75, 0.75, 0.25]], atol=1e-6)


def test_client_whose_keys_are_not_signed_by_its_node_is_rejected() -> None:
    def send_other_key(request: MaskRequest, response: MaskResponse) -> MaskResponse:
        if (request.client, request.step) != (3, "keys"):
            return response
        other = answer_mask_request(request, new_mask_state(), RULE, IDENTITY)[1]
        swapped = {**response.values, "node_keys": other.values["node_keys"]}
        return replace(response, values=swapped)

    result = Round(forge=send_other_key).run()
    assert [(each.client, each.reason) for each in result.rejections] == [(3, INVALID_KEYS)]
    np.testing.assert_allclose(result.responses[0].deltas, [[0.75, 0.75, 0.25]], atol=1e-6)


def test_second_client_with_the_same_node_key_is_rejected() -> None:
    masked_round = Round()
    masked_round.states[3] = masked_round.states[1]
    result = masked_round.run()
    assert [(each.client, each.reason) for each in result.rejections] == [(3, SAME_NODE_KEY)]
    np.testing.assert_allclose(result.responses[0].deltas, [[0.75, 0.75, 0.25]], atol=1e-6)


def test_cohort_that_is_too_small_gets_no_requests() -> None:
    masked_round = Round()
    zero, params = np.zeros(1, dtype=np.int64), np.zeros((1, 3), dtype=np.float32)
    requests = {client: TrainRequest(7, client, zero, np.ones(1), params) for client in (0, 1)}
    result = run_masked_round(RECIPE, requests, masked_round._answer, masked_round._train)
    assert (list(result.responses), result.metric) == ([], "too_few")
    assert masked_round.exchanges == {}


def test_sum_needs_enough_clients_that_have_trained() -> None:
    result = Round(idle=[0, 1]).run()
    np.testing.assert_allclose(result.responses[0].deltas, [[1.0, 2.0, 0.25]], atol=1e-6)
    masked_round = Round(idle=[0, 1, 2])
    assert masked_round.run().metric == "too_few"
    assert list(masked_round.exchanges)[-1] == "update", "no signatures are asked for"


def test_response_with_a_wrong_number_of_rows_counts_as_missing() -> None:
    def send_half(request: MaskRequest, response: MaskResponse) -> MaskResponse:
        if (request.client, request.step) != (3, "shares"):
            return response
        half = {name: values[:2] for name, values in response.values.items()}
        return replace(response, values=half)

    result = Round(forge=send_half).run()
    assert [response.client for response in result.responses] == [0, 1, 2, 4]
    np.testing.assert_allclose(result.responses[0].deltas, [[0.75, 0.75, 0.25]], atol=1e-6)


def forge_shares(*forgers: int) -> Forge:
    """These clients reveal wrong shares of all other clients."""

    def forge(request: MaskRequest, response: MaskResponse) -> MaskResponse:
        if request.step != "open" or request.client not in forgers:
            return response
        wrong = response.values["shares"].copy()
        wrong[:, 0] ^= 1
        return replace(response, values={"shares": wrong})

    return forge


def test_mean_is_correct_if_one_client_reveals_wrong_shares() -> None:
    result = Round(forge=forge_shares(0)).run()
    assert (result.metric, list(result.rejections)) == ("", [])
    np.testing.assert_allclose(result.responses[0].deltas, [[1.0, 1.0, 0.25]], atol=1e-6)


def test_round_has_no_sum_if_masks_cannot_be_removed() -> None:
    result = Round(forge=forge_shares(0, 1, 2, 3)).run()
    assert (list(result.responses), result.metric) == ([], "invalid_sum")
    assert {(each.client, each.reason) for each in result.rejections} == {
        (client, MASK_NOT_REMOVABLE) for client in ALL
    }
