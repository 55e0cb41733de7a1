"""The HTML page of a comparison."""

import re
from html.parser import HTMLParser

import pytest

from thalweg.core.errors import ConfigError
from thalweg.report import page, write_page

EMPTY = {"meta", "link", "br", "img", "hr"}


class Outline(HTMLParser):
    """Collects headings, texts and attributes, and checks that tags nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.headings, self.texts, self.attributes = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *attr) for attr in attrs]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):  # <path .../> of the figure
        self.attributes += [(tag, *attr) for attr in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings.append((self.open[-1], data))

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def test_page_has_all_sections_in_order(comparison):
    outline = Outline(page("My study", comparison, "Ten clients.\nTwo states."))
    assert outline.headings == [
        ("h1", "My study"),
        ("h2", "Results"),
        ("h2", "Metrics over rounds"),
        ("h2", "Paired differences"),
        ("h2", "Seed by seed"),
        ("h2", "Commands"),
        ("h3", "sfedpo"),
        ("h3", "fedavg"),
    ]
    assert "sfedpo reaches 82.00 ± 2.00 % test accuracy" in outline.text
    assert "Ten clients. Two states." in outline.text
    assert "−2.00 ± 1.00 0.074" in outline.text
    assert "# seed 1, done thalweg run fedavg --on digits-full --seed 1" in outline.text


def test_cells_of_a_wide_table_break_before_the_spread_only(comparison):
    text = page("t", comparison)
    assert '<td class="best">82.00 ±&nbsp;2.00</td>' in text
    assert "<td>3&nbsp;of&nbsp;3</td>" in text


def test_page_has_a_row_per_seed(comparison):
    text = Outline(page("t", comparison)).text
    for seed, accuracy in enumerate(("80.00", "82.00", "84.00")):
        assert f"sfedpo {seed} done 4 {accuracy}" in text


def test_page_lists_unfinished_runs_with_their_reasons(unfinished_cells):
    outline = Outline(page("t", unfinished_cells))
    assert ("h2", "Runs that did not finish") in outline.headings
    assert "seed 0: failed , after 2 rounds: the loss is nan in round 3" in outline.text
    assert "seed 1: interrupted , after 2 rounds: no reason was recorded" in outline.text
    assert "seed 2: missing : it has not been run" in outline.text
    assert "Not drawn: fedogd (no finished run)." in outline.text


def test_seeds_that_failed_for_the_same_reason_share_an_item(cell):
    failed = {"status": "failed", "reason": "the loss is nan", "rows": cell().rows[:2]}
    cells = [cell(seed=seed, **failed) for seed in range(2)]
    text = Outline(page("t", [*cells, cell(seed=2, **{**failed, "reason": "disk full"})])).text
    assert "seeds 0, 1: failed , after 2 rounds: the loss is nan" in text
    assert "seed 2: failed , after 2 rounds: disk full" in text


def test_decisions_name_clients_and_the_meaning_of_an_alarm(cell):
    decision = {"what": "restart-average", "reason": "1 of 2 clients raised an alarm"}
    rows = [*cell().rows, {"round": 5, "accuracy": 0.5, "alarms": [1], "decisions": [decision]}]
    named = cell(rows=rows, client_names=["north", "south"], alarm_meaning="the error changed")
    assert "Round 5: Alarm at client south: the error changed." in Outline(page("t", [named])).text


def test_page_without_finished_runs_can_be_written(unfinished_cells):
    outline = Outline(page("t", unfinished_cells[1:]))
    assert ("h2", "Paired differences") not in outline.headings
    assert "no run has finished yet" in outline.text
    assert "There is no finished run to draw." in outline.text


def test_page_shows_published_accuracies(comparison):
    text = Outline(page("t", comparison, published={"sfedpo": 83.0})).text
    assert "sfedpo 3 of 3 82.00 ± 2.00 83.00 −1.00" in text


def test_page_of_a_single_recipe_has_no_differences(cell):
    assert ("h2", "Paired differences") not in Outline(page("t", [cell()])).headings


def test_user_input_is_escaped(cell):
    markup = '<img src=x onerror="alert(1)">&\'"'
    cells = [
        cell(markup, 0, scenario=markup, command=markup),
        cell(markup, 1, scenario=markup, status="failed", reason=markup, command=markup),
        cell("other", 0, scenario=markup),
    ]
    text = page(markup, cells, markup)
    assert "<img" not in text
    outline = Outline(text)
    assert not [attr for attr in outline.attributes if attr[1].startswith("on")]
    assert outline.headings[0] == ("h1", markup)
    assert ("pre", "aria-label", f"Commands of {markup}") in outline.attributes


def test_page_loads_nothing_from_the_network(comparison):
    text = page("t", comparison)
    outline = Outline(text)
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in re.sub(r"url\(#\w+\)", "", text)  # clip paths are in the page itself
    targets = [attr for attr in outline.attributes if attr[1] in ("src", "href", "xlink:href")]
    assert all(target.startswith(("#", "data:")) for _, _, target in targets)


def test_page_has_accessibility_attributes(comparison):
    outline = Outline(page("t", comparison))
    assert ("html", "lang", "en") in outline.attributes
    assert ("svg", "role", "img") in outline.attributes
    scrolling = [attr for attr in outline.attributes if attr == ("div", "class", "scroll")]
    focusable = [attr for attr in outline.attributes if attr == ("div", "tabindex", "0")]
    assert len(scrolling) == len(focusable) == 4  # three tables and the figure


def test_element_ids_are_unique(comparison):
    ids = [value for _, name, value in Outline(page("t", comparison)).attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_page_is_deterministic(comparison):
    assert page("t", comparison) == page("t", comparison)


def test_page_is_written_atomically(tmp_path, comparison):
    file = tmp_path / "out" / "index.html"
    write_page(file, "t ± ü", comparison)
    assert file.read_text(encoding="utf-8") == page("t ± ü", comparison)
    with pytest.raises(ConfigError):
        write_page(file, "t", [])
    assert "t ± ü" in file.read_text(encoding="utf-8")
    assert [path.name for path in file.parent.iterdir()] == ["index.html"]


def test_page_shows_the_models_of_a_bank_over_rounds(cell, comparison):
    rows = [
        {"round": 1, "accuracy": 0.5, "models": 2},
        {"round": 2, "accuracy": 0.6, "models": 4, "clusters_found": 4, "drifts_found": 9},
    ]
    outline = Outline(page("t", [cell("feddaa", rows=rows)]))
    assert ("h2", "Models over rounds") in outline.headings
    assert "Clients found to have drifted" in outline.text
    assert "Models over rounds" not in page("t", comparison)


def test_rows_of_a_page_have_different_colours_and_drifts_are_explained(cell):
    rows = [{"round": rnd, "accuracy": 0.5, "drifted": int(rnd == 2)} for rnd in (1, 2, 3)]
    text = page("Many", [cell(f"r{index}", rows=rows) for index in range(14)])
    head = text.partition("<tbody>")[2].partition("</tbody>")[0]
    assert len(set(re.findall(r"var\(--series-(\d+)", head))) == 14
    assert "Dotted vertical lines: rounds in which clients drifted." in text


def test_finished_baseline_is_drawn_on_a_page(cell):
    baseline = cell("majority", rows=[{"round": 1, "prequential_accuracy": 0.5}])
    assert "Not drawn" not in page("Two", [cell("fedavg"), baseline])
