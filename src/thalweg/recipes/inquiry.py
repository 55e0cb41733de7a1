"""Questions that the server asks clients before they train, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thalweg.core.errors import ConfigError, ShapeMismatch
from thalweg.core.rng import Draw, rng_for
from thalweg.core.talk import Asks
from thalweg.core.types import Answers, Floats, Floats32, Ints, Roster
from thalweg.recipes.federation import AskingStage, Federation


class Inquiry:
    """The questions of one round. Mutable: it adds up the bytes that went either way."""

    def __init__(self, federation: Federation, bank: Floats32, rnd: int, seed: int) -> None:
        self._federation, self._bank, self._rnd, self._seed = federation, bank, rnd, seed
        self.bytes_down = self.bytes_up = 0
        self.shown: set[int] = set()  # clients that have been sent the bank

    def asked_and_answers(
        self, stage: AskingStage, policy: object, roster: Roster
    ) -> tuple[Ints, Answers]:
        """Who is asked by a stage's policy, and what they answer; nobody and nothing if it does not ask."""
        return self._ask(stage, policy, roster)

    def remembered(self, stage: AskingStage, policy: object, roster: Roster) -> Roster:
        """The roster, with the newest answer of everybody in what is known, and who was asked."""
        if not isinstance(policy, Asks):
            return roster
        clients, answers = self._ask(stage, policy, roster)
        known = dict(roster.known)
        for name, values in answers.items():
            known[name] = _remember(known.get(name), clients, values, roster.num_clients)
        return replace(roster, known=known, asked=clients)

    def _ask(self, stage: AskingStage, policy: object, roster: Roster) -> tuple[Ints, Answers]:
        nobody = np.empty(0, dtype=np.int64)
        if not isinstance(policy, Asks):
            return nobody, {}
        clients = np.unique(policy.whom(roster, rng_for(self._seed, Draw.WHOM, self._rnd)))
        if not np.isin(clients, roster.here).all():
            raise ConfigError(
                f"{type(policy).__name__}.whom must return some of the {len(roster.here)} clients "
                f"that are here, got {clients.tolist()}."
            )
        if len(clients) == 0:
            return nobody, {}
        clients = clients.astype(np.int64)
        answers = self._federation.survey(clients, stage, self._bank, self._rnd)
        _check(answers, len(clients), stage)
        if policy.shows_models:
            self.bytes_down += len(clients) * self._bank.nbytes
            self.shown |= set(clients.tolist())
        self.bytes_up += sum(int((~np.isnan(values)).sum()) * 8 for values in answers.values())
        return clients, answers


def _check(answers: Answers, count: int, stage: str) -> None:
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
