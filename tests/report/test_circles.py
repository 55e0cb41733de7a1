import re

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.report.circles import MAX_ROWS, CirclePanel, ColumnGroup, draw_circles, write_circles

GROUPS = [ColumnGroup("0.05", 2), ColumnGroup("100", 1)]
PANEL = CirclePanel("samples", "class", np.array([[4.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))


def find_diameters(panel):
    """Return the height of each circle of a panel whose entries differ, row by row."""
    svg = draw_circles([panel], GROUPS, "state", "svg").decode()
    drawn = svg.partition('id="PathCollection_1"')[2].partition('id="matplotlib.axis_1"')[0]
    heights = []
    for path in re.findall(r'<path d="([^"]*)"', drawn):
        y = [float(y) for _, y in re.findall(r"(-?[\d.]+) (-?[\d.]+) *\n", path)]
        heights.append(max(y) - min(y))
    return heights


def test_the_area_of_a_circle_shows_the_entry():
    large, small = find_diameters(PANEL)
    assert large == pytest.approx(2 * small, rel=1e-4)  # a quarter of the value, half the height


def test_the_figure_has_the_names_of_panels_rows_columns_and_groups():
    svg = draw_circles([PANEL], GROUPS, "state", "svg").decode()
    for text in ("samples", "class", "state", "0.05", "100"):
        assert f">{text}<" in svg


def test_the_same_values_give_the_same_bytes():
    for kind in ("png", "svg"):
        first, second = (draw_circles([PANEL, PANEL], GROUPS, "state", kind) for _ in range(2))
        assert first == second


def test_only_the_first_rows_of_a_large_matrix_are_drawn():
    large = CirclePanel("many", "client", np.arange(1.0, MAX_ROWS + 6)[:, None])
    assert len(find_diameters(large)) == MAX_ROWS


def test_an_empty_matrix_has_no_circles():
    assert find_diameters(CirclePanel("none", "client", np.zeros((2, 3)))) == []


def test_the_name_of_the_file_determines_its_format(tmp_path):
    write_circles(tmp_path / "a.png", [PANEL], GROUPS, "state")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match=r"ends in \.png or \.svg"):
        write_circles(tmp_path / "a.pdf", [PANEL], GROUPS, "state")
