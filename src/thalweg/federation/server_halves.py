"""What the server's halves of policies tell the clients and hear from them, and what all of it weighs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from thalweg.bank import BankAssignment, ExtraBankMetrics, SplitsSamples
from thalweg.core.capabilities import Broadcast, ExtraMetrics
from thalweg.core.types import Floats32, Ints, Job, Roster, Updates
from thalweg.recipes.base import Recipe
from thalweg.recipes.compatibility import iter_server_halves
from thalweg.sample_weights import AssignsWeights


def build_broadcast(
    half_states: Mapping[str, Any], recipe: Recipe, roster: Roster, cohort: Ints, num_params: int
) -> Broadcast:
    """What the server's halves of the policies have to say to the cohort."""
    broadcast = {
        stage: {
            name: np.asarray(words, dtype=np.float32)
            for name, words in part.broadcast(half_states[stage], cohort).items()
        }
        for stage, part in iter_server_halves(recipe)
    }
    sample_weights: object = recipe.sample_weights
    if isinstance(sample_weights, AssignsWeights):
        assigned = sample_weights.assign_weights(roster, num_params)[cohort]
        broadcast["sample_weights"] = {"assigned": assigned[:, None].astype(np.float32)}
    return broadcast


def add_bank_broadcast(broadcast: Broadcast, recipe: Recipe, plan: BankAssignment) -> Broadcast:
    """And what the bank tells clients that divide their samples."""
    bank: object = recipe.bank
    if not isinstance(bank, SplitsSamples):
        return broadcast
    words = {name: np.asarray(rows, dtype=np.float32) for name, rows in plan.broadcast.items()}
    return {**broadcast, "bank": words}


def repeat_per_job(broadcast: Broadcast, cohort: Ints, clients: Ints) -> Broadcast:
    """Messages with a row for each client of the cohort, repeated for each of its jobs (J,)."""
    if len(clients) == len(cohort):
        return broadcast
    rows = np.searchsorted(cohort, clients)
    return {
        stage: {name: words[rows] for name, words in messages.items()}
        for stage, messages in broadcast.items()
    }


def collect_extra_metrics(
    recipe: Recipe, roster: Roster, cohort: Ints, notes: Any
) -> dict[str, Any]:
    """What the policies have to say about this round; `notes` are the bank's."""
    extra_metrics: dict[str, Any] = {}
    parts: tuple[object, ...] = (recipe.selection, recipe.sample_weights)
    for part in parts:
        if isinstance(part, ExtraMetrics):
            extra_metrics |= part.extra_metrics(roster, cohort)
    bank: object = recipe.bank
    if isinstance(bank, ExtraBankMetrics):
        extra_metrics |= bank.extra_metrics(notes, roster)
    return extra_metrics


def bytes_down(
    bank: Floats32, jobs: Sequence[Job], broadcast: Broadcast, sent_bank_to: set[int]
) -> int:
    """A model for each job, but for clients that were sent the bank with a question, and the messages, once."""
    first = np.unique([job.client for job in jobs], return_index=True)[1]
    messages = sum(words[first].nbytes for stage in broadcast.values() for words in stage.values())
    return int(sum(job.client not in sent_bank_to for job in jobs) * bank[0].nbytes + messages)


def bytes_up(updates: Updates) -> int:
    """Updates, reports, messages and answers."""
    uploads = sum(words.nbytes for words in updates.uploads.values())
    reports = 8 * len(updates) * len(updates.reports)
    return updates.deltas.nbytes + reports + uploads + updates.extra_bytes_up


def collect_uploads(
    half_states: Mapping[str, Any], recipe: Recipe, updates: Updates
) -> dict[str, Any]:
    """What the server's halves know after the clients' messages.

    Late words count in full: they are about the client, not about the model. Of a client that has sent several rows
    they are heard one after the other, the newest last; what a memory says about the client it says once.
    """
    half_states = dict(half_states)
    for stage, part in iter_server_halves(recipe):
        received = updates if stage == "objective" else _one_row_per_round(updates)
        for rows in _group_rows(received.clients):
            if uploads := _select_uploads(received, stage, rows):
                half_states[stage] = part.collect(
                    half_states[stage], received.clients[rows], uploads
                )
    return half_states


def collect_split(notes: Any, recipe: Recipe, updates: Updates) -> Any:
    """What the bank knows after the words of clients that have divided their samples."""
    bank: object = recipe.bank
    if not isinstance(bank, SplitsSamples) or len(updates) == 0:
        return notes
    newest = np.flatnonzero(updates.is_newest)
    return bank.collect(notes, updates.clients[newest], _select_uploads(updates, "bank", newest))


def _select_uploads(updates: Updates, stage: str, rows: Ints | slice) -> dict[str, Floats32]:
    return {
        name.removeprefix(f"{stage}."): words[rows]
        for name, words in updates.uploads.items()
        if name.startswith(f"{stage}.")
    }


def _one_row_per_round(updates: Updates) -> Updates:
    """One row for each client and round in which it trained, however many models it had."""
    trained_in = np.zeros(len(updates)) if updates.trained_in is None else updates.trained_in
    is_next = (np.diff(updates.clients) != 0) | (np.diff(trained_in) != 0)
    return updates.only(np.append(is_next, True)[: len(updates)])


def _group_rows(clients: Ints) -> list[Ints | slice]:
    """Rows in groups without any client twice, each client's last row in the last group; mostly one group.

    >>> [rows.tolist() for rows in _group_rows(np.array([0, 3, 3, 3, 5, 5]))]
    [[1], [2, 4], [0, 3, 5]]
    """
    groups: list[Ints | slice] = []
    rows = np.arange(len(clients))
    while len(rows):
        is_last = np.append(clients[rows][1:] != clients[rows][:-1], True)
        # A slice copies nothing, and messages may be as large as the models.
        groups.insert(0, slice(None) if is_last.all() and not groups else rows[is_last])
        rows = rows[~is_last]
    return groups
