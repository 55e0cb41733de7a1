"""Small tables, read recipe by recipe."""

from collections.abc import Sequence

from thalweg.report.table import TableColumn


def rows_by_recipe(columns: Sequence[TableColumn]) -> dict[str, dict[str, str]]:
    """What a table says of each recipe, by heading; the first column has their names."""
    names, *others = columns
    return {
        name: {column.heading: column.entries[row] for column in others}
        for row, name in enumerate(names.entries)
    }
