"""What the server's halves of policies tell the clients and hear from them, and what all of it weighs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from thalweg.aggregation import Arranged, Divides, RemarksOnBank
from thalweg.core.talk import Remarks, Talks, Told
from thalweg.core.types import Floats32, Ints, Job, Roster, Updates
from thalweg.emphasis import Assigns
from thalweg.local import Concludes, SaysFromObjective
from thalweg.memory import SaysFromMemory
from thalweg.recipes.base import Recipe


def talking(recipe: Recipe) -> Iterator[tuple[str, Talks]]:
    """The stages whose policy has a half at the server."""
    for stage in ("memory", "objective"):
        part = getattr(recipe, stage)
        if isinstance(part, Talks):
            yield stage, part


def saying(recipe: Recipe) -> set[str]:
    """The stages whose half at the client may have something to say when it has trained."""
    says = {
        "memory": SaysFromMemory,
        "objective": SaysFromObjective | Concludes,
        "bank": Divides,
    }
    return {stage for stage, form in says.items() if isinstance(getattr(recipe, stage), form)}


def tell(
    talks: Mapping[str, Any], recipe: Recipe, roster: Roster, cohort: Ints, num_params: int
) -> Told:
    """What the server's halves of the policies have to say to the cohort."""
    told = {
        stage: {
            name: np.asarray(words, dtype=np.float32)
            for name, words in part.tell(talks[stage], cohort).items()
        }
        for stage, part in talking(recipe)
    }
    emphasis: object = recipe.emphasis
    if isinstance(emphasis, Assigns):
        assigned = emphasis.assign(roster, num_params)[cohort]
        told["emphasis"] = {"assigned": assigned[:, None].astype(np.float32)}
    return told


def with_bank(told: Told, recipe: Recipe, plan: Arranged) -> Told:
    """And what the bank tells clients that divide their samples."""
    bank: object = recipe.bank
    if not isinstance(bank, Divides):
        return told
    words = {name: np.asarray(rows, dtype=np.float32) for name, rows in plan.told.items()}
    return {**told, "bank": words}


def per_job(told: Told, cohort: Ints, clients: Ints) -> Told:
    """Messages with a row for each client of the cohort, repeated for each of its jobs (J,)."""
    if len(clients) == len(cohort):
        return told
    rows = np.searchsorted(cohort, clients)
    return {
        stage: {name: words[rows] for name, words in messages.items()}
        for stage, messages in told.items()
    }


def remarks_of(recipe: Recipe, roster: Roster, cohort: Ints, notes: Any) -> dict[str, Any]:
    """What the policies have to say about this round; `notes` are the bank's."""
    remarks: dict[str, Any] = {}
    parts: tuple[object, ...] = (recipe.selection, recipe.emphasis)
    for part in parts:
        if isinstance(part, Remarks):
            remarks |= part.remark(roster, cohort)
    bank: object = recipe.bank
    if isinstance(bank, RemarksOnBank):
        remarks |= bank.remark(notes, roster)
    return remarks


def bytes_down(bank: Floats32, jobs: Sequence[Job], told: Told, shown: set[int]) -> int:
    """A model for each job, but for clients that were sent the bank with a question, and the messages, once."""
    first = np.unique([job.client for job in jobs], return_index=True)[1]
    messages = sum(words[first].nbytes for stage in told.values() for words in stage.values())
    return int(sum(job.client not in shown for job in jobs) * bank[0].nbytes + messages)


def bytes_up(updates: Updates) -> int:
    """Updates, reports, messages and answers."""
    said = sum(words.nbytes for words in updates.said.values())
    reports = 8 * len(updates) * len(updates.reports)
    return updates.deltas.nbytes + reports + said + updates.bytes_answered


def hear(talks: Mapping[str, Any], recipe: Recipe, updates: Updates) -> dict[str, Any]:
    """What the server's halves know after the clients' messages.

    Late words count in full: they are about the client, not about the model. Of a client that has sent several rows
    they are heard one after the other, the newest last; what a memory says about the client it says once.
    """
    talks = dict(talks)
    for stage, part in talking(recipe):
        heard = updates if stage == "objective" else _once(updates)
        for rows in _in_turn(heard.clients):
            if said := _said(heard, stage, rows):
                talks[stage] = part.hear(talks[stage], heard.clients[rows], said)
    return talks


def hear_division(notes: Any, recipe: Recipe, updates: Updates) -> Any:
    """What the bank knows after the words of clients that have divided their samples."""
    bank: object = recipe.bank
    if not isinstance(bank, Divides) or len(updates) == 0:
        return notes
    newest = np.flatnonzero(updates.is_newest)
    return bank.hear(notes, updates.clients[newest], _said(updates, "bank", newest))


def _said(updates: Updates, stage: str, rows: Ints | slice) -> dict[str, Floats32]:
    return {
        name.removeprefix(f"{stage}."): words[rows]
        for name, words in updates.said.items()
        if name.startswith(f"{stage}.")
    }


def _once(updates: Updates) -> Updates:
    """One row for each client and round in which it trained, however many models it had."""
    trained_in = np.zeros(len(updates)) if updates.trained_in is None else updates.trained_in
    is_next = (np.diff(updates.clients) != 0) | (np.diff(trained_in) != 0)
    return updates.only(np.append(is_next, True)[: len(updates)])


def _in_turn(clients: Ints) -> list[Ints | slice]:
    """Rows in groups without any client twice, each client's last row in the last group; mostly one group.

    >>> [rows.tolist() for rows in _in_turn(np.array([0, 3, 3, 3, 5, 5]))]
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
