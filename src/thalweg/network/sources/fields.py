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
    """The fields given by ``x=``, ``y=``, ``t=`` and ``id=``; default: these letters."""
    parts = {name: spec.get_string(name, name) for name in ("x", "y", "t", "id")}
    require(
        len(set(parts.values())) == len(parts),
        f"{spec.text}: x, y, t and id must be different fields, got {', '.join(parts.values())}.",
    )
    return FieldNames(**parts, columns=sample_format.columns)
