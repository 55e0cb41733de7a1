"""Which field of a record is what: the options that all sources of records have."""

from __future__ import annotations

from dataclasses import replace

from thalweg.core.errors import require
from thalweg.streams.sources.base import Form
from thalweg.streams.sources.records import Names
from thalweg.streams.sources.spec import Spec

FIELDS = ("x", "y", "t", "id", "columns")


def with_columns(form: Form, spec: Spec) -> Form:
    """The form with the names of its features, if the source says them (``columns=a,b,c``)."""
    columns = spec.names("columns")
    return form if columns is None else replace(form, columns=columns)


def names_of(spec: Spec, form: Form) -> Names:
    """What ``x=``, ``y=``, ``t=`` and ``id=`` say, else just these letters."""
    parts = {name: spec.word(name, name) for name in ("x", "y", "t", "id")}
    require(
        len(set(parts.values())) == len(parts),
        f"{spec.text}: x, y, t and id must be different fields, got {', '.join(parts.values())}.",
    )
    return Names(**parts, columns=form.columns)
