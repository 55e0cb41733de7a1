"""Studies: tables of the papers as recipes x scenarios x seeds, with the published numbers."""

from __future__ import annotations

from thalweg.core.config import load_object
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.core.published import Published
from thalweg.scenarios.studies import (
    alarms,
    auto,
    churn,
    churn_labels,
    churn_variants,
    dpcs,
    drift,
    other_drifts,
    real_streams,
    servers,
    sfedpo,
    streams,
)
from thalweg.scenarios.studies.base import (
    Column,
    Row,
    Study,
    replace_data,
    restrict_study,
    select_part,
    split_words,
)

STUDIES: dict[str, Study] = {
    study.name: study
    for paper in (
        sfedpo,
        streams,
        dpcs,
        churn,
        churn_labels,
        churn_variants,
        drift,
        other_drifts,
        alarms,
        real_streams,
        servers,
        auto,
    )
    for study in paper.studies()
}

__all__ = [
    "STUDIES",
    "Column",
    "Published",
    "Row",
    "Study",
    "find_study",
    "replace_data",
    "restrict_study",
    "select_part",
    "split_words",
]


def find_study(name: str) -> Study:
    """A built-in study, or a user's own: ``mine.py:STUDY``."""
    if name in STUDIES:
        return STUDIES[name]
    if ":" not in name:
        raise UnknownName("study", name, [*STUDIES, "your own: FILE.py:NAME"])
    found = load_object(name)
    if not isinstance(found, Study):
        raise ConfigError(f"{name}: expected a Study, got {type(found).__name__}.")
    return found
