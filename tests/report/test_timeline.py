"""The timeline of drifts and alarms, and values at the points of curves."""

import re

from thalweg.report.curves import Curve, Panel
from thalweg.report.figure import MAX_TITLES, panels_svg
from thalweg.report.html_page import timeline_section
from thalweg.report.timeline import MAX_CLIENTS, choose_ticks, find_timelines, timeline_svg

ROWS = [
    {"round": 1, "accuracy": 0.5},
    {"round": 2, "drifts": {"real": [0, 4]}, "drifted": 2},
    {"round": 3, "alarms": [4]},
    {"round": 5, "alarms": [2], "accuracy": 0.75},
]


def test_first_finished_run_with_an_alarm_is_drawn(cell):
    cells = [
        cell("plain", 0, rows=ROWS[:2]),
        cell("fedavg", 0, status="interrupted", rows=ROWS[:3]),
        cell("fedavg", 1, rows=ROWS),
        cell("fedavg", 2, rows=ROWS),
    ]
    (found,) = find_timelines(cells)
    assert (found.recipe, found.index, found.seed, found.rounds) == ("fedavg", 1, 1, 5)
    assert found.clients == [0, 2, 4]


def test_each_mark_names_client_round_and_kind(cell):
    (found,) = find_timelines([cell(rows=ROWS)])
    svg = timeline_svg(found)
    assert re.findall(r"<title>(.*?)</title>", svg) == [
        "client 0, round 2: drift (real)",
        "client 4, round 2: drift (real)",
        "client 4, round 3: alarm",
        "client 2, round 5: alarm",
    ]
    # Rounds 1 to 5 lie at 72 to 784, so round 2 is at 250; a bar is 4 wide.
    assert svg.count('<rect x="248.0"') == 2
    assert '<circle cx="784.0"' in svg, "the last round is at the right edge"


def test_clients_have_the_names_of_their_table(cell):
    names = ["north", "south", "west", "<east>", "a-rather-long-name"]
    (found,) = find_timelines([cell(rows=ROWS, client_names=names)])
    svg = timeline_svg(found)
    assert re.findall(r'text-anchor="end">(.*?)</text>', svg) == ["north", "west", "a-rather-…"]
    assert "<title>a-rather-long-name, round 3: alarm</title>" in svg


def test_at_most_thirty_clients_are_drawn(cell):
    rows = [{"round": 1, "accuracy": 0.5, "alarms": list(range(40))}]
    page = timeline_section([cell(rows=rows)])
    assert page.count("<circle") == MAX_CLIENTS
    assert "40 alarms at 40 clients. The first 30 of them are drawn." in page


def test_runs_without_alarms_have_no_timeline(comparison):
    assert timeline_section(comparison) == ""


def test_ticks_are_round_numbers():
    assert choose_ticks(1) == [1]
    assert choose_ticks(200) == [1, *range(20, 201, 20)]
    assert all(len(choose_ticks(rounds)) <= 11 for rounds in range(1, 3000))


def test_points_of_curves_have_their_values_as_titles():
    ends = {"low": [20.0, 60.0], "high": [60.0, 65.0]}
    curve = Curve("a<b", 0, x=[5, 10], mean=[40.0, 62.5], **ends)
    svg = panels_svg([Panel("Test accuracy", [curve])])
    titles = re.findall(r'<circle class="point"[^>]*><title>(.*?)</title>', svg)
    assert titles == [
        "a&lt;b, round 10: 62.50 % (60.00 to 65.00)",
        "a&lt;b, round 5: 40.00 % (20.00 to 60.00)",
    ]


def test_circles_lie_on_the_curve():
    mean = [10.0, 30.0, 20.0]
    curve = Curve("a", 0, x=[1, 2, 3], mean=mean, low=mean, high=mean)
    svg = panels_svg([Panel("Test accuracy", [curve])])
    circles = re.findall(r'class="point" cx="([\d.]+)" cy="([\d.]+)"', svg)
    lines = re.findall(r'<path d="M ([^"]*?)"[^>]*stroke-width: 1.8', svg)
    assert len(lines) == 1
    drawn = [tuple(map(float, point.split())) for point in re.split(r"\s*L ", lines[0].strip())]
    for (x, y), (cx, cy) in zip(reversed(drawn), circles, strict=True):
        assert abs(x - float(cx)) < 0.2
        assert abs(y - float(cy)) < 0.2


def test_long_curves_have_fewer_titles():
    x = list(range(1, 501))
    mean = [50.0 + number % 7 for number in x]
    curve = Curve("a", 0, x=x, mean=mean, low=mean, high=mean)
    svg = panels_svg([Panel("Test accuracy", [curve])])
    assert 40 <= svg.count('class="point"') <= MAX_TITLES
    assert "a, round 500: " in svg
