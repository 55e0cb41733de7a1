"""Plausibility checks of the values that one client sends, or receives from the server.

On a network, the other side is not trusted. The wire format checks that values are finite; only the
policy that uses them can check whether they are possible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt


class Claim(NamedTuple):
    """The values of one client, with the facts needed to check them."""

    uploads: Mapping[str, npt.NDArray[Any]]  # (J, E) uploads, (J,) reports or (E,) responses
    num_params: int
    num_models: int  # models of the bank that the client received
    broadcast: Mapping[str, npt.NDArray[Any]] = {}  # (E,) values that it received
    num_samples: int | None = None  # in its memory, as it reports; none: not reported
    num_classes: int | None = None  # of the data; none: unknown
    is_survey_response: bool = False  # sent before training


@runtime_checkable
class ValidatesClaims(Protocol):
    """A policy that rejects impossible values."""

    def validate_claim(self, claim: Claim) -> str | None:
        """Return why the values are impossible, as a sentence; none if they are possible."""
        ...


class Delivery(NamedTuple):
    """The values that one client receives for a stage, with the facts needed to check them."""

    values: Mapping[str, npt.NDArray[Any]]  # (E,) by name; empty: the server sends none
    num_params: int
    num_models: int  # models that the client receives
    num_classes: int


@runtime_checkable
class ValidatesDelivery(Protocol):
    """A policy whose client part rejects values of the server that it cannot use."""

    def validate_delivery(self, delivery: Delivery) -> str | None:
        """Return why the client cannot use the values, as a sentence; none if it can."""
        ...


def check_vector(
    uploads: Mapping[str, npt.NDArray[Any]],
    name: str,
    length: int | None = None,
    least: float = -math.inf,
    most: float = math.inf,
) -> str | None:
    """Return why a vector is invalid: missing, of the wrong length or out of range; none if valid.

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


def check_names(uploads: Mapping[str, npt.NDArray[Any]], *known: str) -> str | None:
    """Return why values are invalid if some have a name that is not known.

    The server stores many values by their names: an unknown one could replace others.

    >>> check_names({"mix": np.array([1.0]), "loss": np.array([9.0])}, "mix")
    "the name 'loss' is not known, expected mix."
    """
    unknown = sorted(uploads.keys() - set(known))
    if not unknown:
        return None
    return f"the name {unknown[0]!r} is not known, expected {' or '.join(known)}."


def first_reason(*reasons: str | None) -> str | None:
    """Return the first reason that is not None, if any."""
    return next(filter(None, reasons), None)
