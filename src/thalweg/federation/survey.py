"""Questions that the server asks clients before they train, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thalweg.core.capabilities import Surveys
from thalweg.core.errors import ConfigError, ShapeMismatch
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints, Roster, SurveyResponses
from thalweg.federation.base import Federation, SurveyStage


class Survey:
    """The questions of one round. Mutable: it adds up the bytes that went either way."""

    def __init__(self, federation: Federation, bank: Floats32, rnd: int, seed: int) -> None:
        self._federation, self._bank, self._rnd, self._seed = federation, bank, rnd, seed
        self.bytes_down = self.bytes_up = 0
        self.sent_bank_to: set[int] = set()  # clients that have been sent the bank

    def ask(
        self, stage: SurveyStage, policy: object, roster: Roster
    ) -> tuple[Ints, SurveyResponses]:
        """Who is asked by a stage's policy, and what they answer; nobody and nothing if it does not ask."""
        return self._ask(stage, policy, roster)

    def ask_and_remember(self, stage: SurveyStage, policy: object, roster: Roster) -> Roster:
        """The roster, with the newest answer of everybody in what is known, and who was asked."""
        if not isinstance(policy, Surveys):
            return roster
        clients, answers = self._ask(stage, policy, roster)
        known = dict(roster.known)
        for name, values in answers.items():
            known[name] = _remember(known.get(name), clients, values, roster.num_clients)
        return replace(roster, known=known, surveyed=clients)

    def _ask(
        self, stage: SurveyStage, policy: object, roster: Roster
    ) -> tuple[Ints, SurveyResponses]:
        nobody = np.empty(0, dtype=np.int64)
        if not isinstance(policy, Surveys):
            return nobody, {}
        clients = np.unique(
            policy.choose_surveyed(roster, rng_for(self._seed, Draw.SURVEYED, self._rnd))
        )
        if not np.isin(clients, roster.present).all():
            raise ConfigError(
                f"{type(policy).__name__}.choose_surveyed must return some of the {len(roster.present)} clients "
                f"that are here, got {clients.tolist()}."
            )
        if len(clients) == 0:
            return nobody, {}
        clients = clients.astype(np.int64)
        answers = self._federation.survey(clients, stage, self._bank, self._rnd)
        _check(answers, len(clients), stage)
        if policy.sends_models:
            self.bytes_down += len(clients) * self._bank.nbytes
            self.sent_bank_to |= set(clients.tolist())
        self.bytes_up += sum(int((~np.isnan(values)).sum()) * 8 for values in answers.values())
        return clients, answers


def _check(answers: SurveyResponses, count: int, stage: str) -> None:
    """Answers come from outside: a row per client, finite numbers, or nan for silence."""
    for name, values in answers.items():
        if values.ndim != 2 or len(values) != count or np.isinf(values).any():
            raise ShapeMismatch(
                f"the answers {name!r} to the question of the {stage} have shape {values.shape}, "
                f"expected {count} rows of finite numbers."
            )


def _remember(table: Floats | None, clients: Ints, values: Floats, num_clients: int) -> Floats:
    """(N, E) the newest answers; who said nothing keeps the last one."""
    width = values.shape[1]
    if table is None or table.shape != (num_clients, width):
        table = np.full((num_clients, width), np.nan)
    table = table.copy()
    spoke = ~np.isnan(values).any(axis=1)
    table[clients[spoke]] = values[spoke]
    return table
