"""The state probabilities of all clients of a `LatentStates` world, for up to millions of clients.

The draws are those of a loop over the clients that calls ``rng.choice`` and ``rng.dirichlet``. A
loop takes 50 microseconds per client, so this module reads the random words of many clients at
once and derives the same numbers, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Ints

Words = npt.NDArray[np.uint64]

CLIENTS_PER_CHUNK = 1 << 15  # clients whose words are read together
CLIENTS_PER_BLOCK = 32  # clients that are drawn again together, with full access
ROWS_PER_CHUNK = 1 << 16  # rows of a dense matrix that exist at a time
MAX_FLOYD = 10_000  # NumPy draws from more options with another algorithm


class StateProbs(Protocol):
    """State probabilities (N, M) that are not stored as a dense matrix."""

    def reachable(self, client: int) -> tuple[Ints, Floats]:
        """Return the states that a client can reach, ascending, and their probabilities."""
        ...

    def rows(self, first: int, last: int) -> Floats:
        """Return the rows (last - first, M) of some clients."""
        ...

    def __len__(self) -> int: ...


def mean_probs(probs: StateProbs) -> Floats:
    """Return the mean (M,) of all rows."""
    total: Floats | None = None
    for rows in _chunks(probs):
        total = np.add.reduce(rows if total is None else np.concatenate([total[None], rows]))
    assert total is not None
    return total / len(probs)


def multiply_probs(probs: StateProbs, matrix: Floats) -> Floats:
    """Return the product (N, C) with a matrix (M, C)."""
    return np.concatenate([rows @ matrix for rows in _chunks(probs)])


def _chunks(probs: StateProbs) -> Iterator[Floats]:
    for first in range(0, len(probs), ROWS_PER_CHUNK):
        yield probs.rows(first, min(first + ROWS_PER_CHUNK, len(probs)))


# --- every client reaches every state ---


@dataclass(frozen=True, eq=False)
class FullProbs:
    """Rows from Dir(1) over all states, which are drawn again when they are needed."""

    num_clients: int
    num_states: int
    start: Mapping[str, Any]  # state of the generator before the first draw
    words: Ints  # (blocks,) number of random words before each block of clients

    @classmethod
    def draw(cls, num_clients: int, num_states: int, rng: np.random.Generator) -> FullProbs:
        """Draw all rows once, to know where those of each block begin."""
        start, words = rng.bit_generator.state, []
        for first in range(0, num_clients, CLIENTS_PER_BLOCK):
            words.append(_word_index(rng.bit_generator.state))
            rng.dirichlet(np.ones(num_states), min(CLIENTS_PER_BLOCK, num_clients - first))
        return cls(num_clients, num_states, start, np.array(words))

    def __len__(self) -> int:
        return self.num_clients

    def reachable(self, client: int) -> tuple[Ints, Floats]:
        row = self.rows(client, client + 1)[0]
        states = np.flatnonzero(row)
        return states, row[states]

    def rows(self, first: int, last: int) -> Floats:
        block = first // CLIENTS_PER_BLOCK
        begin = block * CLIENTS_PER_BLOCK
        rng = _generator_at(self.start, int(self.words[block]))
        found: Floats = rng.dirichlet(np.ones(self.num_states), last - begin)
        return found[first - begin :]


def _word_index(state: Mapping[str, Any]) -> int:
    """Return the number of random words that a Philox generator has produced."""
    return 4 * int(state["state"]["counter"][0]) + int(state["buffer_pos"]) - 4


def _generator_at(start: Mapping[str, Any], word: int) -> np.random.Generator:
    """Return the generator at a word; the high words of its counter are those of `start`."""
    bits = np.random.Philox()
    counter = start["state"]["counter"].copy()
    counter[0] = word // 4
    state: Any = {**start, "state": {**start["state"], "counter": counter}, "buffer_pos": 4}
    bits.state = state
    bits.random_raw(word % 4, output=False)
    return np.random.Generator(bits)


# --- every client reaches a few states ---


@dataclass(frozen=True, eq=False)
class PartialProbs:
    """Rows from Dir(1) over a few states of each client."""

    num_states: int
    states: npt.NDArray[np.uint16]  # (N, K) ascending
    probs: Floats  # (N, K)

    @classmethod
    def draw(
        cls,
        num_states: int,
        num_reachable: int,
        options: list[tuple[Ints, int]],  # states to choose from, and the number of such clients
        rng: np.random.Generator,
    ) -> PartialProbs:
        number = sum(count for _, count in options)
        states = np.empty((number, num_reachable), dtype=np.uint16)
        probs = np.empty((number, num_reachable))
        first = 0
        for choices, count in options:
            last = first + count
            while first < last:
                drawn, values = _draw_rows(len(choices), num_reachable, last - first, rng)
                mine = choices[drawn]
                order = mine.argsort(axis=1)
                done = slice(first, first + len(mine))
                states[done] = np.take_along_axis(mine, order, axis=1)
                probs[done] = np.take_along_axis(values, order, axis=1)
                first = done.stop
        return cls(num_states, states, probs)

    def __len__(self) -> int:
        return len(self.states)

    def reachable(self, client: int) -> tuple[Ints, Floats]:
        probs = self.probs[client]
        is_positive = probs > 0
        return self.states[client][is_positive].astype(np.int64), probs[is_positive]

    def rows(self, first: int, last: int) -> Floats:
        rows = np.zeros((last - first, self.num_states))
        np.put_along_axis(
            rows, self.states[first:last].astype(np.int64), self.probs[first:last], axis=1
        )
        return rows


def _draw_rows(
    num_options: int, size: int, number: int, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """Draw the options (n, size) and probabilities of at most `number` clients, at least one."""
    if num_options <= MAX_FLOYD:
        words = _read_clients(num_options, size, min(number, CLIENTS_PER_CHUNK), rng)
        if len(words.bounded):
            chosen = _choose(words.bounded, num_options, size)
            return chosen, _normalise(words.exponentials)
    chosen = rng.choice(num_options, size, replace=False)  # as in the loop
    return chosen[None], rng.dirichlet(np.ones(size))[None]


class ClientWords(NamedTuple):
    """Random numbers of n clients."""

    bounded: Ints  # (n, bounds) whole numbers, for the choice
    exponentials: Floats  # (n, size)


def _read_clients(
    num_options: int, size: int, number: int, rng: np.random.Generator
) -> ClientWords:
    """Return the numbers of the next clients and move the generator behind them.

    A choice reads halves of words; a half that is left over belongs to the next choice. An
    exponential reads one word, or more in 1 of 90 cases. Where a client begins therefore depends on
    all clients before it. In the rare case that a bounded number needs more than one half, the
    clients before it are returned.
    """
    bounds = _bounds(num_options, size)
    before = rng.bit_generator.state
    carry = int(before["has_uint32"])
    # Words of the choices of each client: all halves that the clients up to it need.
    ends = -(-(len(bounds) * np.arange(number + 1) - carry) // 2)
    room = int(ends[-1] + number * size * 1.03) + 256
    words = rng.bit_generator.random_raw(room)
    values, after = _exponentials(words)
    starts = _find_starts(np.diff(ends), _repeat(after, size))
    bounded = _read_bounded(words, starts, ends, before, bounds)
    number = len(bounded)
    exponentials = np.empty((number, size))
    at: npt.NDArray[np.integer[Any]] = starts[:number]
    for column in range(size):
        exponentials[:, column] = values[at]
        at = after[at]
    used = 0 if number == 0 else int(at[-1])
    _move_behind(rng, before, used, words, starts, ends, number, len(bounds))
    return ClientWords(bounded, exponentials)


def _find_starts(gaps: Ints, behind: npt.NDArray[np.int32]) -> Ints:
    """Return the first word of the exponentials of each client that is within the words read.

    A client reads one of two numbers of words before its exponentials, in turns. The jump over 16
    clients is computed from each word, so that a loop has to follow only these jumps.
    """
    room = len(behind)
    turns = [_shift(behind, int(gap)) for gap in (gaps[0], gaps[min(1, len(gaps) - 1)])]
    jump = turns[1][turns[0]]
    for _ in range(3):
        jump = jump[jump]
    heads: list[int] = []
    at, positions = 0, memoryview(jump)  # type: ignore[arg-type]
    while at < room and 16 * len(heads) < len(gaps):
        heads.append(at)
        at = positions[at]
    table = np.empty((len(heads), 16), dtype=np.int64)
    here = np.array(heads, dtype=np.int64)
    for turn in range(16):
        table[:, turn] = here
        here = turns[turn % 2][here].astype(np.int64)
    begins = table.ravel()[: len(gaps)]
    starts = begins + gaps[: len(begins)]
    is_outside = np.append(behind, np.int32(room))[np.minimum(starts, room)] >= room
    number = int(is_outside.argmax()) if is_outside.any() else len(starts)
    return starts[:number]


def _shift(behind: npt.NDArray[np.int32], gap: int) -> npt.NDArray[np.int32]:
    """Return the position behind a client that begins at each word, and behind the last word."""
    room = len(behind)
    return np.concatenate([behind[gap:], np.full(gap + 1, room, dtype=np.int32)])


def _read_bounded(
    words: Words, starts: Ints, ends: Ints, before: Mapping[str, Any], bounds: Ints
) -> Ints:
    """Return the bounded numbers (n, bounds) of the clients before the first rejected one.

    Lemire's method: the high half of the product of 32 random bits and the number of values.
    """
    halves = _halves(words, starts, ends, before)[: len(starts) * len(bounds)]
    ranges = (bounds + 1).astype(np.uint64)
    product = halves.reshape(len(starts), len(bounds)).astype(np.uint64) * ranges
    is_rejected = (product & np.uint64(0xFFFFFFFF)) < (2**32 - ranges) % ranges
    bad = np.flatnonzero(is_rejected.any(axis=1))
    good = int(bad[0]) if len(bad) else len(starts)
    return (product[:good] >> np.uint64(32)).astype(np.int64)


def _halves(
    words: Words, starts: Ints, ends: Ints, before: Mapping[str, Any]
) -> npt.NDArray[np.uint32]:
    """Return the halves of all words of choices, low halves first, after a half left over."""
    gaps = np.diff(ends)[: len(starts)]
    places = np.arange(gaps.sum()) + np.repeat(starts - ends[1 : len(starts) + 1], gaps)
    halves: npt.NDArray[np.uint32] = words[places].astype("<u8").view("<u4").astype(np.uint32)
    if before["has_uint32"]:
        halves = np.append(np.uint32(before["uinteger"]), halves)
    return halves


def _move_behind(
    rng: np.random.Generator,
    before: Mapping[str, Any],
    used: int,
    words: Words,
    starts: Ints,
    ends: Ints,
    number: int,
    num_bounds: int,
) -> None:
    """Move the generator behind `number` clients that have used so many words."""
    bits = rng.bit_generator
    bits.state = before
    bits.random_raw(used, output=False)
    halves = _halves(words, starts[:number], ends[: number + 1], before)
    left = halves[number * num_bounds :]
    state: dict[str, Any] = dict(bits.state)
    state["has_uint32"] = len(left)
    if len(left):
        state["uinteger"] = int(left[0])
    bits.state = state


def _bounds(num_options: int, size: int) -> Ints:
    """Return the largest value of each bounded number: Floyd's sampling, then a shuffle.

    A number with one possible value is not drawn.
    """
    sampled = np.arange(max(num_options - size, 1), num_options)
    return np.concatenate([sampled, np.arange(size - 1, 0, -1)])


def _choose(bounded: Ints, num_options: int, size: int) -> Ints:
    """Return different options (n, size) in random order: Floyd's sampling, then a shuffle."""
    columns = iter(bounded.T)
    everyone = np.arange(len(bounded))
    chosen = np.empty((len(bounded), size), dtype=np.int64)
    for slot, last in enumerate(range(num_options - size, num_options)):
        drawn = next(columns) if last else np.zeros(len(bounded), dtype=np.int64)
        is_taken = (chosen[:, :slot] == drawn[:, None]).any(axis=1)
        chosen[:, slot] = np.where(is_taken, last, drawn)
    for slot in range(size - 1, 0, -1):
        other = next(columns)
        moved = chosen[everyone, other]
        chosen[everyone, other] = chosen[:, slot]
        chosen[:, slot] = moved
    return chosen


def _normalise(exponentials: Floats) -> Floats:
    """Return Dirichlet draws, with the sums in the order of the columns."""
    total = np.zeros(len(exponentials))
    for column in exponentials.T:
        total += column
    return exponentials * (1 / total)[:, None]


# --- exponentials by the ziggurat method, as in NumPy ---


class Ziggurat(NamedTuple):
    """Marsaglia and Tsang (2000): 256 layers of equal area under exp(-x)."""

    accept: Words  # (256,) a 53-bit number below it is accepted at once
    scale: Floats  # (256,) right edge of each layer / 2**53
    height: Floats  # (256,) exp(-right edge)
    edge: float  # beginning of the tail


@cache
def _ziggurat() -> Ziggurat:
    """Compute the tables with 40 digits, so that they are rounded correctly."""
    with localcontext() as context:
        context.prec = 40
        edge = Decimal("7.6971174701310497140446280480152154991140")
        area = (edge + 1) * (-edge).exp()
        edges = [edge]  # layers 255, 254, ..., 1
        for _ in range(254):
            edges.append(-(area / edges[-1] + (-edges[-1]).exp()).ln())
        edges = [area / (-edge).exp(), *edges[::-1]]  # the base is as wide as its area
        unit = Decimal(2**53)
        ratios = [edge / edges[0], Decimal(0)]
        ratios += [edges[i] / edges[i + 1] for i in range(1, 255)]
        return Ziggurat(
            accept=np.array([int(ratio * unit) for ratio in ratios], dtype=np.uint64),
            scale=np.array([float(each / unit) for each in edges]),
            height=np.array([1.0, *(float((-each).exp()) for each in edges[1:])]),
            edge=float(edge),
        )


def _exponentials(words: Words) -> tuple[Floats, npt.NDArray[np.int32]]:
    """Return the exponential that begins at each word, and the position behind its last word.

    The position is ``len(words)`` if more words are needed.
    """
    table, room = _ziggurat(), len(words)
    digits = words >> np.uint64(3)
    layer = (digits & np.uint64(255)).astype(np.intp)
    digits >>= np.uint64(8)
    values = digits * table.scale[layer]
    after = np.arange(1, room + 1, dtype=np.int32)
    slow = np.flatnonzero(digits >= table.accept[layer])
    if len(slow) and slow[-1] == room - 1:
        slow = slow[:-1]
    uniform = (words[slow + 1] >> np.uint64(11)) * 2.0**-53
    after[slow] += 1
    is_tail = layer[slow] == 0
    for at, u in zip(slow[is_tail].tolist(), uniform[is_tail].tolist(), strict=True):
        values[at] = table.edge - math.log1p(-u)
    slow, uniform = slow[~is_tail], uniform[~is_tail]
    low, high = table.height[layer[slow]], table.height[layer[slow] - 1]
    again = slow[(high - low) * uniform + low >= np.exp(-values[slow])]
    for at in again[::-1].tolist():  # it begins anew, two words later
        if at + 2 < room:
            values[at], after[at] = values[at + 2], after[at + 2]
        else:
            after[at] = room
    return values, after


def _repeat(after: npt.NDArray[np.int32], times: int) -> npt.NDArray[np.int32]:
    """Return the position behind `times` exponentials that begin at each word."""
    power = np.append(after, np.int32(len(after)))
    behind = np.arange(len(power), dtype=np.int32)
    while times:
        if times % 2:
            behind = power[behind]
        power, times = power[power], times // 2
    return behind[:-1]
