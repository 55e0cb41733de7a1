from thalweg.report import summarise, to_markdown
from thalweg.report.table import columns


def test_markdown_by_hand(cell):
    cells = [cell("a|b", 0, 0.5, rows=[{"round": 1, "accuracy": 0.5}])]
    assert to_markdown(summarise(cells)).splitlines() == [
        r"| recipe | seeds | accuracy | MB sent | time, s |",
        r"| --- | --- | ---: | ---: | ---: |",
        r"| a\|b | 1 of 1 | 50.00 | 0.0 | 2.0 |",
        r"",
        r"Accuracies in %. Mean ± standard deviation over finished seeds. MB sent: up and down.",
    ]


def test_markdown_sets_the_best_mean_in_bold(comparison):
    text = to_markdown(summarise(comparison))
    assert "**82.00 ± 2.00**" in text
    assert "**80.00 ± 1.00**" not in text


def test_a_long_first_name_is_not_repeated_in_a_heading(cell):
    summaries = summarise([cell("sfedpo,memory.budget=0.25"), cell("fedavg")])
    assert "vs first" in dict(columns(summaries))
    assert "vs first: paired difference in accuracy to sfedpo,memory.budget=0.25" in (
        to_markdown(summaries)
    )
