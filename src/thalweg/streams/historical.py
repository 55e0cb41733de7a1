"""Assignment of rows to clients, and the clients that have all rows before the first round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import require
from thalweg.core.types import Ints
from thalweg.streams.base import Setting
from thalweg.streams.label_partitions import LabelPartition
from thalweg.streams.partitions import Groups, Partition, require_groups


class ClientRows(NamedTuple):
    """The rows of every client."""

    rows: list[Ints]  # N arrays, disjoint unless the partition shares samples
    is_historical: npt.NDArray[np.bool_]  # (N,)


@dataclass(frozen=True)
class HistoricalSplit:
    """Number of historical clients, and their share of the samples."""

    clients: float
    """Share of the clients that are historical."""
    data: float | None
    """Share of the samples that historical clients have; None: as the partition gives it."""
    samples: int | None
    """Total number of samples; None: all."""

    def num_historical(self, num_clients: int) -> int:
        """Number of historical clients, rounded to the nearest integer."""
        number = round_half_up(self.clients * num_clients)
        require(
            self.data is None or 0 < number < num_clients,
            f"historical_data={self.data} splits the samples between historical and fresh clients, "
            f"but historical={self.clients} makes {number} of {num_clients} clients historical; "
            "change historical, or remove historical_data.",
        )
        return number


def assign_rows(
    partition: Partition,
    setting: Setting,
    num_clients: int | None,
    history: HistoricalSplit,
    rng: np.random.Generator,
) -> ClientRows:
    """Assign rows to every client.

    `num_clients` None: as many clients as the data set has, else 20.
    """
    if partition.is_natural:
        return _assign_groups(setting, num_clients, history, rng)
    num_rows, num_clients = len(setting.labels), num_clients or 20
    require(
        num_clients <= num_rows,
        f"{num_rows} rows cannot be divided among {num_clients} clients.",
    )
    require(
        history.data is None or not isinstance(partition, LabelPartition),
        f"historical_data={history.data} assigns samples to historical and fresh clients "
        f"separately, but {type(partition).__name__} assigns labels to groups of all clients; "
        "remove historical_data.",
    )
    number, total = history.num_historical(num_clients), history.samples or num_rows
    _check_total(total, num_rows)
    rows = rng.permutation(num_rows)[:total]
    is_historical = np.arange(num_clients) < number
    if history.data is None:
        return ClientRows(partition.assign_rows(rows, setting, num_clients, rng), is_historical)
    cut = round_half_up(history.data * total)
    old = partition.assign_rows(rows[:cut], setting, number, rng)
    new = partition.assign_rows(rows[cut:], setting, num_clients - number, rng)
    return ClientRows([*old, *new], is_historical)


def _assign_groups(
    setting: Setting, num_clients: int | None, history: HistoricalSplit, rng: np.random.Generator
) -> ClientRows:
    """Keep the rows of the data set's own clients; historical clients are drawn at random.

    Rows cannot move between clients, so a share of the samples is reached by dropping the same
    share of the rows of every client.
    """
    require_groups(setting)
    found = setting.count_clients()
    require(
        num_clients in (None, found),
        f"the data set has {found} clients, so num_clients={num_clients} is not possible; "
        "remove num_clients (--clients of thalweg serve).",
    )
    is_historical = np.zeros(found, dtype=np.bool_)
    is_historical[rng.permutation(found)[: history.num_historical(found)]] = True
    everything = np.arange(len(setting.labels))
    rows = [rng.permutation(mine) for mine in Groups().assign_rows(everything, setting, found, rng)]
    sizes = np.array([len(mine) for mine in rows])
    if history.data is None:
        total = history.samples or len(everything)
        _check_total(total, len(everything))
        keep = scale_sizes(sizes, total)
    else:
        keep = _split_sizes(sizes, is_historical, history.data, history.samples)
    return ClientRows(
        [mine[:n] for mine, n in zip(rows, keep.tolist(), strict=True)], is_historical
    )


def _split_sizes(
    sizes: Ints, is_historical: npt.NDArray[np.bool_], share: float, samples: int | None
) -> Ints:
    """(N,) number of rows that each client keeps so that historical clients have their share."""
    old, new = int(sizes[is_historical].sum()), int(sizes[~is_historical].sum())
    total = samples
    if total is None:  # as many as possible
        sides = ((old, share), (new, 1 - share))
        total = math.floor(min(have / part for have, part in sides if part > 0) + 1e-9)
    wanted = round_half_up(share * total)
    require(
        wanted <= old and total - wanted <= new,
        f"{total} samples with a historical share of {share} need {wanted} of historical clients "
        f"and {total - wanted} of fresh clients, but these have {old} and {new}; use fewer "
        "samples.",
    )
    keep = np.zeros_like(sizes)
    keep[is_historical] = scale_sizes(sizes[is_historical], wanted)
    keep[~is_historical] = scale_sizes(sizes[~is_historical], total - wanted)
    return keep


def scale_sizes(sizes: Ints, total: int) -> Ints:
    """(N,) integers proportional to `sizes` that sum to `total`, which is at most ``sizes.sum()``.

    >>> scale_sizes(np.array([4, 4, 2]), 5).tolist()
    [2, 2, 1]
    """
    all_of_them = max(int(sizes.sum()), 1)
    ends = (2 * np.cumsum(sizes) * total + all_of_them) // (2 * all_of_them)
    return np.diff(ends, prepend=0)


def round_half_up(value: float) -> int:
    """Round to the nearest integer; halves are rounded up."""
    return math.floor(value + 0.5)


def _check_total(samples: int, num_rows: int) -> None:
    require(
        samples <= num_rows,
        f"the data set has {num_rows} samples, but samples={samples}; use at most {num_rows}.",
    )
