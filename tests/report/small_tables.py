"""Read the entries of tables by recipe."""

from collections.abc import Sequence

from thalweg.report.table import TableColumn


def rows_by_recipe(columns: Sequence[TableColumn]) -> dict[str, dict[str, str]]:
    """Return the entries of each recipe by heading; the first column has the names."""
    names, *others = columns
    return {
        name: {column.heading: column.entries[row] for column in others}
        for row, name in enumerate(names.entries)
    }
