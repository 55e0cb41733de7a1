"""What one client says, as a policy sees it that does not believe everything.

On a network words come from devices that somebody else may own. Their form is checked by the wire; whether they
can be true only the policy knows that will use them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


class Claim(NamedTuple):
    """Words of one client, and what is known of them otherwise."""

    uploads: Mapping[str, npt.NDArray[Any]]  # (J, E) words, (J,) reports or (E,) an answer, by name
    num_params: int
    num_models: int  # of the bank, as far as the client was shown it
    broadcast: Mapping[str, npt.NDArray[Any]] = {}  # (E,) what the policy had told it
    num_samples: int | None = None  # that it says it holds; none: it does not say
    num_classes: int | None = None  # of the data; none: the server does not know
    is_survey_response: bool = False  # to a question, before anybody trained


@runtime_checkable
class ValidatesClaims(Protocol):
    """A policy that can tell when a client's words cannot be true."""

    def validate_claim(self, claim: Claim) -> str | None:
        """Why not, as a sentence; none: they may be."""
        ...


def check_vector(
    uploads: Mapping[str, npt.NDArray[Any]],
    name: str,
    length: int | None = None,
    least: float = -math.inf,
    most: float = math.inf,
) -> str | None:
    """Why a vector cannot be right: it is missing, of another length, or has numbers that cannot be.

    >>> check_vector({"counts": np.array([3.0, -1.0])}, "counts", length=2, least=0)
    'counts goes from -1 to 3, but only 0 to inf is possible.'
    >>> check_vector({"counts": np.array([3.0])}, "counts", length=2)
    'counts has 1 numbers, not 2.'
    """
    values = uploads.get(name)
    if values is None:
        return f"{name} is missing."
    if length is not None and values.shape[-1] != length:
        return f"{name} has {values.shape[-1]} numbers, not {length}."
    if not np.isfinite(values).all():
        return f"{name} is not finite."
    low, high = (
        float(f(initial=start)) for f, start in ((values.min, math.inf), (values.max, -math.inf))
    )
    if values.size and (low < least or high > most):
        return f"{name} goes from {low:g} to {high:g}, but only {least:g} to {most:g} is possible."
    return None


def first_reason(*reasons: str | None) -> str | None:
    """The first reason, if there is one."""
    return next(filter(None, reasons), None)
