"""``python dying_node.py NUMBER OPTION ...``: a SuperNode that dies while it sends a response.

It announces its response number NUMBER (from 1; 1 and 2 are those of the handshake), sends all
parts but the last, and ends without a word, as a device without power. The other arguments are
those of flower-supernode.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from thalweg.network.flower import quick_node


def main() -> None:
    from flwr.supernode import start_client_internal as internal

    last = int(sys.argv.pop(1))
    push: Callable[..., None] = internal.push_object_contents_from_iterable
    numbers = itertools.count(1)

    def push_partly(contents: Iterable[tuple[str, bytes]], **options: Any) -> None:
        if next(numbers) < last:
            return push(contents, **options)
        push(list(contents)[:-1], **options)
        os._exit(1)

    internal.push_object_contents_from_iterable = push_partly
    quick_node.main()


if __name__ == "__main__":
    main()
