"""Random changes of valid input, for tests with damaged and forged data."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

NUMBERS = ("0", "-1", "1e308", "nan", "inf", "9" * 30, "9223372036854775807", "0.0000001")
WORDS = ("none", "true", '""', "[]", "{}", "../x", "/etc/passwd", "a:b", "'", '"', "\\u0000")
NESTED = (b"[" * 20_000, b"{" * 20_000, b'{"a":' * 5_000)


class Mutator:
    """Changes bytes in one to three places. The same seed gives the same changes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._changes: tuple[Callable[[bytes, Sequence[bytes]], bytes], ...] = (
            self._flip,
            self._replace,
            self._delete,
            self._repeat,
            self._cut,
            self._splice,
            self._change_number,
            self._change_word,
            self._nest,
        )

    def mutate(self, payload: bytes, others: Sequence[bytes] = ()) -> bytes:
        """Return a changed copy; parts of `others` may be inserted."""
        for _ in range(self.rng.randint(1, 3)):
            payload = self.rng.choice(self._changes)(payload, others or [payload])
        return payload

    def _flip(self, payload: bytes, _: Sequence[bytes]) -> bytes:
        changed = bytearray(payload or b"\0")
        changed[self.rng.randrange(len(changed))] ^= 1 << self.rng.randrange(8)
        return bytes(changed)

    def _replace(self, payload: bytes, _: Sequence[bytes]) -> bytes:
        start, end = self._slice(payload)
        return payload[:start] + self.rng.randbytes(end - start) + payload[end:]

    def _delete(self, payload: bytes, _: Sequence[bytes]) -> bytes:
        start, end = self._slice(payload)
        return payload[:start] + payload[end:]

    def _repeat(self, payload: bytes, _: Sequence[bytes]) -> bytes:
        start, end = self._slice(payload)
        return payload[:end] + payload[start:end] * self.rng.randint(1, 3) + payload[end:]

    def _cut(self, payload: bytes, _: Sequence[bytes]) -> bytes:
        return payload[: self.rng.randint(0, len(payload))]

    def _splice(self, payload: bytes, others: Sequence[bytes]) -> bytes:
        other = self.rng.choice(others)
        return payload[: self.rng.randint(0, len(payload))] + other[self._slice(other)[0] :]

    def _change_number(self, payload: bytes, _: Sequence[bytes]) -> bytes:
        return self._substitute(payload, rb"-?\d+(\.\d+)?", NUMBERS)

    def _change_word(self, payload: bytes, _: Sequence[bytes]) -> bytes:
        return self._substitute(payload, rb"[a-z_]+|\"[^\"]*\"", WORDS)

    def _nest(self, payload: bytes, _: Sequence[bytes]) -> bytes:
        if self.rng.random() < 0.98:  # rarely: such input is long
            return self._flip(payload, _)
        place = self._slice(payload)[0]
        return payload[:place] + self.rng.choice(NESTED) + payload[place:]

    def _substitute(self, payload: bytes, pattern: bytes, values: Sequence[str]) -> bytes:
        found = list(re.finditer(pattern, payload))
        if not found:
            return self._flip(payload, ())
        match = self.rng.choice(found)
        value = self.rng.choice(values).encode()
        return payload[: match.start()] + value + payload[match.end() :]

    def _slice(self, payload: bytes) -> tuple[int, int]:
        start = self.rng.randint(0, len(payload))
        return start, min(start + self.rng.choice([1, 1, 2, 4, 8, 32]), len(payload))
