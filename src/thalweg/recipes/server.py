"""The server's half of a round: choose, arrange the bank, train, weigh, merge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from thalweg.aggregation import Arranged, Paces, Presents
from thalweg.core.errors import ConfigError, Diverged, ShapeMismatch
from thalweg.core.rng import Draw, rng_for
from thalweg.core.talk import Remarks, Talks, Told
from thalweg.core.types import Floats, Floats32, Ints, Job, Roster, Updates
from thalweg.emphasis import Assigns
from thalweg.recipes.base import Recipe
from thalweg.recipes.federation import Federation
from thalweg.recipes.inquiry import Inquiry


class ServerState(NamedTuple):
    """All that the server remembers between rounds."""

    rnd: int  # rounds played
    bank: Floats32  # (models, P)
    rules: list[Any]  # what the server rule remembers, per model
    times_here: Ints  # (N,)
    known: dict[str, Floats]  # (N,) last reports and (N, E) last answers by name; nan: none yet
    arrangement: Any = None  # what the bank's policy remembers
    talks: dict[str, Any] = {}  # noqa: RUF012  never written to; what the server's halves of policies know, by stage


class Served(NamedTuple):
    """The models in use, and how many of the clients use each."""

    models: Floats32  # (models, P)
    shares: Floats  # (models,)


def new_server(recipe: Recipe, model: Floats32, num_clients: int) -> ServerState:
    """The server before the first round, with one model."""
    return ServerState(
        rnd=0,
        bank=model[None].copy(),
        rules=[recipe.server.init(len(model))],
        times_here=np.zeros(num_clients, dtype=np.int64),
        known={},
        arrangement=recipe.bank.init(num_clients),
        talks={stage: part.begin(num_clients, len(model)) for stage, part in talking(recipe)},
    )


def play_round(
    server: ServerState, federation: Federation, recipe: Recipe, seed: int
) -> tuple[ServerState, Updates | None]:
    """One round. Without a cohort the model stays as it is and the round counts all the same.

    The same if nobody of the cohort was heard in time: then the updates have no rows.
    """
    rnd = server.rnd
    roster = replace(federation.roster(rnd), times_here=server.times_here, known=server.known)
    inquiry = Inquiry(federation, server.bank, rnd, seed)
    roster = inquiry.remembered("emphasis", recipe.emphasis, roster)
    roster = inquiry.remembered("selection", recipe.selection, roster)
    cohort = _cohort(recipe, roster, seed)
    times_here = server.times_here.copy()
    times_here[roster.here] += 1
    server = server._replace(rnd=rnd + 1, times_here=times_here, known=dict(roster.known))
    if len(cohort) == 0:
        return server, None
    server, models = _arrange(server, recipe, cohort, inquiry, roster)
    jobs = [
        Job(client, model, _pace(recipe, server.rules[model]))
        for client, model in zip(cohort.tolist(), models.tolist(), strict=True)
    ]
    told = _tell(server, recipe, roster, cohort)
    updates = asked_for(federation.train(jobs, server.bank, rnd, told), jobs)
    admit(updates, rnd, num_params=server.bank.shape[1])
    updates = replace(
        updates,
        bytes_down=inquiry.bytes_down + _bytes_down(server.bank, jobs, told, inquiry.shown),
        bytes_answered=inquiry.bytes_up,
        remarks={**updates.remarks, **_remarks(recipe, roster, cohort)},
    )
    bank, rules = server.bank.copy(), list(server.rules)
    for model in np.unique(updates.models):
        # A client whose memory was empty has learnt nothing and has no say.
        mine = updates.only((updates.models == model) & (updates.num_steps > 0))
        if len(mine):
            weights = recipe.weights.weigh(mine, roster)
            rules[model], bank[model] = recipe.server.step(
                rules[model], bank[model], mine.deltas, weights
            )
    return server._replace(
        bank=bank, rules=rules, known=_learn(server, updates), talks=_hear(server, recipe, updates)
    ), updates


def serve(server: ServerState, recipe: Recipe) -> Served:
    """What clients would be given to use now."""
    models = server.bank
    if isinstance(recipe.server, Presents):
        rows = [
            recipe.server.presented(rule, model)
            for rule, model in zip(server.rules, server.bank, strict=True)
        ]
        models = np.stack(rows)
    return Served(models, recipe.bank.shares(server.arrangement, len(models)))


def asked_for(updates: Updates, jobs: Sequence[Job]) -> Updates:
    """One row per job at most, ascending by client, whatever came and in which order.

    The first row of a job counts. The metrics say how many clients are missing and how many rows were
    refused, if any.
    """
    rows: dict[tuple[int, int], int] = {}
    for row, job in enumerate(zip(updates.clients.tolist(), updates.models.tolist(), strict=True)):
        rows.setdefault(job, row)
    wanted = sorted(job[:2] for job in jobs)
    order = np.array([rows[job] for job in wanted if job in rows], dtype=np.int64)
    refused = updates.remarks.get("refused", 0) + len(updates) - len(order)
    counts = {"missing": len(jobs) - len(order), "refused": refused}
    remarks = {**updates.remarks, **{name: count for name, count in counts.items() if count}}
    if not np.array_equal(order, np.arange(len(updates))):
        updates = updates.take(order)  # copies the big matrix
    return replace(updates, remarks=remarks)


def admit(updates: Updates, rnd: int, num_params: int) -> None:
    """Check updates once, at the server's door; every rule behind it may trust them."""
    if updates.deltas.shape != (len(updates), num_params):
        raise ShapeMismatch(
            f"round {rnd + 1}: the updates have shape {updates.deltas.shape}, expected "
            f"{(len(updates), num_params)}: one row per client, one column per parameter."
        )
    finite = np.isfinite(updates.deltas).all(axis=1)
    for values in (updates.losses, *updates.reports.values()):
        finite &= np.isfinite(values) | (updates.num_steps == 0)
    for message in updates.said.values():
        finite &= np.isfinite(message).all(axis=1)
    if not finite.all():
        broken = updates.clients[~finite].tolist()
        raise Diverged(
            f"round {rnd + 1}: the loss, a report or the update of client {broken[0]}"
            + (f" (and {len(broken) - 1} more)" if len(broken) > 1 else "")
            + " is not a finite number. Try a smaller learning rate (--set local.lr=...) or less "
            "momentum; the rounds before this one are kept."
        )


def talking(recipe: Recipe) -> Iterator[tuple[str, Talks]]:
    """The stages whose policy has a half at the server."""
    for stage in ("memory", "objective"):
        part = getattr(recipe, stage)
        if isinstance(part, Talks):
            yield stage, part


def _arrange(
    server: ServerState, recipe: Recipe, cohort: Ints, inquiry: Inquiry, roster: Roster
) -> tuple[ServerState, Ints]:
    """The bank for this cohort, and the model of each client."""
    num_models = len(server.bank)
    answers = inquiry.answers("bank", recipe.bank, replace(roster, here=cohort))
    plan = recipe.bank.arrange(server.arrangement, cohort, answers, num_models)
    _check(plan, len(cohort), num_models, recipe)
    bank, rules = server.bank, server.rules
    if plan.mix.shape != (1, 1) or plan.is_new.any():
        bank = (plan.mix @ server.bank).astype(np.float32)
        for row, mix in zip(bank, plan.mix, strict=True):
            if mix.max() == 1:  # to the bit
                row[:] = server.bank[mix.argmax()]
        rules = [
            recipe.server.init(bank.shape[1]) if new else server.rules[int(mix.argmax())]
            for new, mix in zip(plan.is_new, plan.mix, strict=True)
        ]
    return server._replace(bank=bank, rules=rules, arrangement=plan.notes), plan.models


def _check(plan: Arranged, num_jobs: int, num_models: int, recipe: Recipe) -> None:
    models = plan.models
    right = plan.mix.ndim == 2 and plan.mix.shape[1] == num_models and len(plan.mix) >= 1
    right = right and np.allclose(plan.mix.sum(axis=1), 1) and len(plan.is_new) == len(plan.mix)
    right = (
        right and models.shape == (num_jobs,) and ((models >= 0) & (models < len(plan.mix))).all()
    )
    if not right:
        raise ConfigError(
            f"{type(recipe.bank).__name__}.arrange must mix the {num_models} models of the bank with "
            f"rows that sum to one and give each of {num_jobs} clients one of the mixtures, got a mix "
            f"of shape {plan.mix.shape} and models {models.tolist()}."
        )


def _pace(recipe: Recipe, rule: Any) -> float:
    return recipe.server.pace(rule) if isinstance(recipe.server, Paces) else 1.0


def _tell(server: ServerState, recipe: Recipe, roster: Roster, cohort: Ints) -> Told:
    """What the server's halves of the policies have to say to the cohort."""
    told = {
        stage: {
            name: np.asarray(words, dtype=np.float32)
            for name, words in part.tell(server.talks[stage], cohort).items()
        }
        for stage, part in talking(recipe)
    }
    emphasis: object = recipe.emphasis
    if isinstance(emphasis, Assigns):
        assigned = emphasis.assign(roster, server.bank.shape[1])[cohort]
        told["emphasis"] = {"assigned": assigned[:, None].astype(np.float32)}
    return told


def _remarks(recipe: Recipe, roster: Roster, cohort: Ints) -> dict[str, Any]:
    """What the policies have to say about this round."""
    remarks: dict[str, Any] = {}
    parts: tuple[object, ...] = (recipe.selection, recipe.emphasis)
    for part in parts:
        if isinstance(part, Remarks):
            remarks |= part.remark(roster, cohort)
    return remarks


def _bytes_down(bank: Floats32, jobs: Sequence[Job], told: Told, shown: set[int]) -> int:
    """A model each, but for clients that were sent the bank with a question, and the messages."""
    messages = sum(words.nbytes for stage in told.values() for words in stage.values())
    return int(sum(job.client not in shown for job in jobs) * bank[0].nbytes + messages)


def _hear(server: ServerState, recipe: Recipe, updates: Updates) -> dict[str, Any]:
    talks = dict(server.talks)
    for stage, part in talking(recipe):
        said: Mapping[str, Floats32] = {
            name.removeprefix(f"{stage}."): words
            for name, words in updates.said.items()
            if name.startswith(f"{stage}.")
        }
        if said:
            talks[stage] = part.hear(talks[stage], updates.clients, said)
    return talks


def _cohort(recipe: Recipe, roster: Roster, seed: int) -> Ints:
    chosen = recipe.selection.choose(roster, rng_for(seed, Draw.SELECTION, roster.rnd))
    cohort = np.unique(chosen)
    if len(cohort) != len(chosen) or not np.isin(cohort, roster.here).all():
        raise ConfigError(
            f"{type(recipe.selection).__name__}.choose must return different clients out of the "
            f"{len(roster.here)} that are here, got {np.asarray(chosen).tolist()}."
        )
    return cohort.astype(np.int64)


def _learn(server: ServerState, updates: Updates) -> dict[str, Floats]:
    """Remember the newest report of every client that sent one."""
    known = dict(server.known)
    reports = {**updates.reports, "loss": updates.losses, "num_samples": updates.num_samples}
    for name, values in reports.items():
        known[name] = known.get(name, np.full(len(server.times_here), np.nan)).copy()
        said = ~np.isnan(values)
        known[name][updates.clients[said]] = values[said]
    return known
