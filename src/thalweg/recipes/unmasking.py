"""The server's part of a masked sum: it hands on keys and closed letters, and takes the masks off the sum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thalweg.core.errors import BadMessage
from thalweg.core.types import Ints, Refusal
from thalweg.recipes.base import Recipe
from thalweg.recipes.masks import (
    AWAY,
    HEARD,
    LOST,
    SECRET_BYTES,
    Words,
    agreed,
    between,
    circle_of,
    public_of,
    stream,
)
from thalweg.recipes.messages import Call, MaskStep, Octets, Order, Reply, Token
from thalweg.recipes.sums import own_weight, same_for_all
from thalweg.theory import secret_of

Calls = Callable[[Mapping[int, Call]], dict[int, Token]]  # what is given, by client
Orders = Callable[[Mapping[int, Order]], dict[int, Reply]]
NO_KEY = "its public keys are none."
STAYS_ON = "its mask cannot be taken off the sum: shares do not fit."


@dataclass(frozen=True)
class Outcome:
    """What came of the replies of a round."""

    replies: Sequence[Reply]  # everybody's update is the mean; none: there is no sum
    remark: str = ""  # too_few, or spoilt: the numbers in it were nobody's
    refusals: Sequence[Refusal] = ()  # whose keys are none, or whose mask stays on


@dataclass(frozen=True)
class Introduced:
    """Those who have said their keys: their places count the shares."""

    members: Ints  # (n,) ascending
    tokens: Mapping[int, Token]

    def key(self, client: int) -> bytes:
        return bytes(self.tokens[client].words["mask_keys"][0])

    def promise(self, client: int) -> bytes:
        return bytes(self.tokens[client].words["promises"][0])

    @property
    def post_keys(self) -> Octets:
        return np.concatenate(
            [self.tokens[client].words["post_keys"][:1] for client in self.members.tolist()]
        )


def masked_round(
    recipe: Recipe, orders: Mapping[int, Order], call: Calls, order: Orders
) -> Outcome:
    """Keys, shares, updates, openings: four times to the clients and back.

    Whoever is missing at one step has no part in those after it. Too few at any step: there is no sum, and the
    round goes by.
    """
    secrecy, first = recipe.secrecy, next(iter(orders.values()))
    assert secrecy is not None
    needed, rnd, rehearsal = secrecy.needed(len(orders)), first.rnd, first.rehearsal

    def asked(
        step: MaskStep, clients: Sequence[int], members: Ints, **words: Octets
    ) -> dict[int, Token]:
        return call({who: Call(rnd, who, step, members, rehearsal, words) for who in clients})

    came = _of_rows(asked("keys", [*orders], _ids(orders)), {1})
    tokens = {who: token for who, token in came.items() if _has_keys(token)}
    refusals = [Refusal(who, NO_KEY) for who in sorted(came.keys() - tokens.keys())]
    if len(tokens) < needed:
        return Outcome((), "too_few", refusals)
    known = Introduced(_ids(tokens), tokens)
    number = len(known.members)
    writers = known.members.tolist()
    letters = _of_rows(asked("shares", writers, known.members, post_keys=known.post_keys), {number})
    if len(letters) < needed:
        return Outcome((), "too_few", refusals)
    circle = circle_of(sorted(letters), [known.key(client) for client in sorted(letters)])
    replies = order({client: replace(orders[client], circle=circle) for client in sorted(letters)})
    if len(replies) < needed:
        return Outcome((), "too_few", refusals)
    to_open = _openings(first, known, letters, replies)
    opened = _of_rows(call(to_open), {number})
    if len(opened) < secrecy.needed(number):
        return Outcome((), "too_few", refusals)
    secrets = {
        member: _secret(member, known, opened, secrecy.needed(number), member in replies)
        for member in circle.members.tolist()
    }
    open_ones = {member: secret for member, secret in secrets.items() if secret is not None}
    if len(open_ones) < len(secrets):
        refusals += [Refusal(who, STAYS_ON) for who in sorted(secrets.keys() - open_ones.keys())]
        return Outcome((), "spoilt", refusals)
    total = _unmasked(replies, known, open_ones, f"{rnd} {rehearsal}")
    return replace(_mean(recipe, replies, total), refusals=refusals)


def _openings(
    order: Order, known: Introduced, letters: Mapping[int, Token], replies: Mapping[int, Reply]
) -> dict[int, Call]:
    """To everybody who was heard: what has become of the members, and the letters that they wrote to it."""
    members = known.members.tolist()
    fates = [HEARD if who in replies else LOST if who in letters else AWAY for who in members]
    words = {"post_keys": known.post_keys, "fates": np.array(fates, dtype=np.uint8)[:, None]}
    calls = {}
    for place, reader in enumerate(members):
        if reader in replies:
            own = {**words, "letters": _to(place, known, letters)}
            calls[reader] = Call(order.rnd, reader, "open", known.members, order.rehearsal, own)
    return calls


def _mean(recipe: Recipe, replies: Mapping[int, Reply], total: Words) -> Outcome:
    """Everybody's update is the mean; none if nobody can have sent what is in it."""
    assert recipe.secrecy is not None
    weight = sum(
        own_weight(recipe, reply.num_samples, int(reply.num_steps[0])) for reply in replies.values()
    )
    mean = recipe.secrecy.mean(total.view(np.int64), weight)
    if mean is None:
        return Outcome((), "spoilt")
    rows = same_for_all(mean, 1)
    return Outcome([replace(replies[who], deltas=rows, masked=None) for who in sorted(replies)])


def _unmasked(
    replies: Mapping[int, Reply], known: Introduced, secrets: Mapping[int, bytes], when: str
) -> Words:
    """(P,) the sum without masks."""
    masked = [reply.masked for reply in replies.values() if reply.masked is not None]
    total = np.zeros_like(masked[0])
    for each in masked:
        total += each
    for member, secret in secrets.items():
        if member in replies:
            total -= stream(secret, len(total))
            continue
        for other in replies:  # what they have added for it has lost its counterpart
            total += between(secret, known.key(other), member, other, when, len(total))
    return total


def _secret(
    member: int, known: Introduced, opened: Mapping[int, Token], threshold: int, is_heard: bool
) -> bytes | None:
    """A member's seed, or its key: what it is must fit what the member has said at the beginning.

    One share that somebody has invented spoils those it is taken with, so several choices are tried: if one more
    than needed has opened, everybody is left out once.
    """
    place = int(np.searchsorted(known.members, member))
    holders = sorted(opened)
    for chosen in _choices(holders, threshold):
        shares = {
            int(np.searchsorted(known.members, holder)) + 1: bytes(
                opened[holder].words["shares"][place]
            )
            for holder in chosen
        }
        secret = secret_of(shares, SECRET_BYTES)
        if secret is None:
            continue
        if is_heard and hashlib.sha256(secret).digest() == known.promise(member):
            return secret
        if not is_heard and public_of(secret) == known.key(member):
            return secret
    return None


def _choices(holders: Sequence[int], number: int) -> Iterator[Sequence[int]]:
    """So many of them: the first ones, then without each of those in turn.

    >>> list(_choices([1, 2, 3], 2))
    [[1, 2], [2, 3], [1, 3]]
    """
    yield holders[:number]
    for without in holders[:number] if len(holders) > number else ():
        yield [holder for holder in holders if holder != without][:number]


def _has_keys(token: Token) -> bool:
    """Can others agree on something with it?"""
    try:
        for name in ("mask_keys", "post_keys"):
            agreed(bytes(range(1, 33)), bytes(token.words[name][0]), "trial")
    except BadMessage:
        return False
    return True


def _to(place: int, known: Introduced, letters: Mapping[int, Token]) -> Octets:
    """(n, E) the letters of all members to the one at a place; zeros of those who wrote none."""
    example = next(iter(letters.values())).words["letters"]
    found = np.zeros_like(example)
    for at, member in enumerate(known.members.tolist()):
        if member in letters:
            found[at] = letters[member].words["letters"][place]
    return found


def _of_rows(tokens: dict[int, Token], rows: set[int]) -> dict[int, Token]:
    """Those with the right number of rows; others are as good as not heard."""
    return {
        client: token
        for client, token in sorted(tokens.items())
        if {len(words) for words in token.words.values()} == rows
    }


def _ids(of: Mapping[int, object]) -> Ints:
    return np.array(sorted(of), dtype=np.int64)
