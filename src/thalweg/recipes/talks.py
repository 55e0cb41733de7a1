"""What the server's halves of policies tell the clients and hear from them, and what all of it weighs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from thalweg.core.talk import Remarks, Talks, Told
from thalweg.core.types import Floats32, Ints, Job, Roster, Updates
from thalweg.emphasis import Assigns
from thalweg.recipes.base import Recipe


def talking(recipe: Recipe) -> Iterator[tuple[str, Talks]]:
    """The stages whose policy has a half at the server."""
    for stage in ("memory", "objective"):
        part = getattr(recipe, stage)
        if isinstance(part, Talks):
            yield stage, part


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


def remarks_of(recipe: Recipe, roster: Roster, cohort: Ints) -> dict[str, Any]:
    """What the policies have to say about this round."""
    remarks: dict[str, Any] = {}
    parts: tuple[object, ...] = (recipe.selection, recipe.emphasis)
    for part in parts:
        if isinstance(part, Remarks):
            remarks |= part.remark(roster, cohort)
    return remarks


def bytes_down(bank: Floats32, jobs: Sequence[Job], told: Told, shown: set[int]) -> int:
    """A model each, but for clients that were sent the bank with a question, and the messages."""
    messages = sum(words.nbytes for stage in told.values() for words in stage.values())
    return int(sum(job.client not in shown for job in jobs) * bank[0].nbytes + messages)


def bytes_up(updates: Updates) -> int:
    """Updates, reports, messages and answers."""
    said = sum(words.nbytes for words in updates.said.values())
    reports = 8 * len(updates) * len(updates.reports)
    return updates.deltas.nbytes + reports + said + updates.bytes_answered


def hear(talks: Mapping[str, Any], recipe: Recipe, updates: Updates) -> dict[str, Any]:
    """What the server's halves know after the clients' messages.

    Late words count in full: they are about the client, not about the model. Of a client that has sent several rows
    they are heard one after the other, the newest last.
    """
    talks = dict(talks)
    for rows in _in_turn(updates.clients):
        for stage, part in talking(recipe):
            said: Mapping[str, Floats32] = {
                name.removeprefix(f"{stage}."): words[rows]
                for name, words in updates.said.items()
                if name.startswith(f"{stage}.")
            }
            if said:
                talks[stage] = part.hear(talks[stage], updates.clients[rows], said)
    return talks


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
