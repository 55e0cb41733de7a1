"""Field names of records: options that all record sources share."""

from __future__ import annotations

from dataclasses import replace

from thalweg.core.errors import require
from thalweg.network.sources.base import SampleFormat
from thalweg.network.sources.records import FieldNames
from thalweg.network.sources.spec import SourceSpec

FIELDS = ("x", "y", "t", "id", "columns")


def with_columns(sample_format: SampleFormat, spec: SourceSpec) -> SampleFormat:
    """The format with feature names, if the source gives them (``columns=a,b,c``)."""
    columns = spec.get_names("columns")
    return sample_format if columns is None else replace(sample_format, columns=columns)


def parse_field_names(spec: SourceSpec, sample_format: SampleFormat) -> FieldNames:
    """The fields given by ``x=``, ``y=``, ``t=`` and ``id=``; default: these letters.

    With several numbers to predict, ``y=a,b`` names one field for each.
    """
    parts = {name: spec.get_string(name, name) for name in ("x", "t", "id")}
    y: str | tuple[str, ...] = spec.get_string("y", "y")
    number = sample_format.num_targets
    if number > 1 and "," in y:
        y = spec.get_names("y") or ()
        require(
            len(y) == number,
            f"{spec.text}: expected y= with {number} fields, one for each number to predict, or "
            f"one field with a list of them, got {len(y)} fields.",
        )
    all_names = [*parts.values(), *([y] if isinstance(y, str) else y)]
    require(
        len(set(all_names)) == len(all_names),
        f"{spec.text}: x, y, t and id must be different fields, got {', '.join(all_names)}.",
    )
    return FieldNames(**parts, y=y, columns=sample_format.columns)
