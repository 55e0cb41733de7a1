"""Figures as PNG and SVG."""

import re
import struct
import subprocess
import sys
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.report import figure_png, figure_svg, has_figure, write_figure
from thalweg.report.figure import SAME_STYLE, choose_colour, short_label, spread_apart


def test_figures_are_deterministic(comparison):
    assert figure_png(comparison) == figure_png(comparison)
    assert figure_svg(comparison) == figure_svg(comparison)


def test_png_is_1280_pixels_wide(comparison):
    png = figure_png(comparison)
    width, height = struct.unpack(">II", png[16:24])
    assert png.startswith(b"\x89PNG")
    assert width == 8 * 160
    assert 0.3 * width < height < width
    assert b"Software" not in png


def test_svg_is_one_element_with_a_description_and_no_metadata(comparison):
    svg = figure_svg(comparison)
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert "sfedpo 82.00 %" in root.get("aria-label")
    assert "metadata" not in svg
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("sfedpo") == texts.count("fedavg") == 2  # one label per panel


def test_svg_colours_are_css_variables(comparison):
    svg = figure_svg(comparison)
    assert "stroke: var(--series-1, #0072b2)" in svg
    assert "stroke: var(--series-2, #d55e00)" in svg
    assert not re.search(r"(?:fill|stroke): #", svg)


def test_recipe_names_are_escaped_in_the_svg(cell):
    names = ["$x_{$", "_hidden", "<b>&amp;", "fill: #0072b2", r"$\nonsense$"]
    svg = figure_svg([cell(name, 0, 0.5 + 0.05 * n) for n, name in enumerate(names)])
    texts = [element.text for element in ElementTree.fromstring(svg).iter()]
    assert set(names) <= set(texts)


def test_long_name_is_shortened_in_the_svg(cell):
    svg = figure_svg([cell("sfedpo,memory.budget=0.25,weights=equal")])
    assert ">sfedpo,memory.…,weights=equal</text>" in svg


def test_recipes_after_the_first_six_are_dashed(cell):
    svg = figure_svg([cell(f"r{n}", 0, 0.9 - 0.01 * n) for n in range(SAME_STYLE + 1)])
    assert svg.count("stroke-dasharray") == 2  # the seventh line, in both panels


def test_run_with_one_evaluated_round_can_be_drawn(cell):
    assert has_figure([cell(rows=[{"round": 5, "accuracy": 0.5}])])
    assert figure_svg([cell(rows=[{"round": 5, "accuracy": 0.5}])])


def test_figure_without_finished_runs_is_rejected(unfinished_cells):
    assert not has_figure(unfinished_cells[1:])
    with pytest.raises(ConfigError, match="no finished run"):
        figure_png(unfinished_cells[1:])


def test_write_figure_leaves_no_temporary_files(tmp_path, comparison):
    write_figure(tmp_path / "new folder" / "accuracy.png", comparison)
    assert [file.name for file in (tmp_path / "new folder").iterdir()] == ["accuracy.png"]


def test_drawing_neither_changes_nor_uses_matplotlib_settings(comparison):
    import matplotlib

    with matplotlib.rc_context({"font.size": 31.0, "lines.linewidth": 7.0}):
        loud = figure_png(comparison)
        assert matplotlib.rcParams["font.size"] == 31.0
    assert loud == figure_png(comparison)  # settings of the user have no effect


def test_import_of_report_loads_neither_torch_nor_matplotlib():
    code = (
        "import sys, thalweg.report;"
        "print([m for m in ('torch', 'matplotlib', 'scipy', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_drawing_does_not_import_pyplot():
    code = (
        "import sys; from thalweg.report import Cell, figure_png, figure_svg;"
        "cells = [Cell('a', 'w', 0, 'done', '', [{'round': 1, 'accuracy': 0.5}], '', 1.0)];"
        "figure_png(cells), figure_svg(cells);"
        "print('matplotlib.pyplot' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


wanted = st.lists(st.integers(0, 100).map(float), min_size=1, max_size=12)


@given(wanted, st.sampled_from([1.0, 5.0, 30.0]))
def test_spread_apart_keeps_gaps_order_and_limits(positions, gap):
    moved = spread_apart(positions, gap, low=0.0, high=100.0)
    room = min(gap, 100.0 / max(len(positions) - 1, 1))
    assert all(later - earlier >= room - 1e-6 for earlier, later in pairwise(sorted(moved)))
    assert min(moved) >= -1e-6
    assert max(moved) <= 100 + 1e-6
    for a, b in zip(positions, moved, strict=True):
        for c, d in zip(positions, moved, strict=True):
            assert not (a < c and b > d)


def test_spread_apart_keeps_labels_with_enough_space():
    assert spread_apart([10.0, 50.0, 30.0], 5.0, 0.0, 100.0) == [10.0, 50.0, 30.0]


def test_short_label_keeps_both_ends_of_a_name():
    assert short_label("sfedpo") == "sfedpo"
    short = short_label("sfedpo,memory=uniform-ratio,weights=equal")
    assert short.startswith("sfedpo,")
    assert short.endswith("=equal")
    assert len(short) <= 30


def test_no_two_recipes_have_the_same_colour():
    colours = [choose_colour(index) for index in range(40)]
    assert len(set(colours)) == 40
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
