"""Results of comparisons and studies: summaries, tables, figures and self-contained HTML pages."""

from thalweg.report.cells import Cell, Status, scores, use_session_accuracy
from thalweg.report.events import event_tables
from thalweg.report.figure import figure_png, figure_svg, has_figure, write_figure
from thalweg.report.html_page import page, write_page
from thalweg.report.render import extra_markdown, extra_rich, to_csv, to_markdown, to_rich
from thalweg.report.summary import PairedDifference, Spread, Summary, summarise
from thalweg.report.table import ExtraTable, headline
from thalweg.report.transitions import transition_lines, transition_table

__all__ = [  # noqa: RUF022  from the runs to the page
    "Cell",  # one run: a recipe with one seed
    "Status",  # done, failed, interrupted or missing
    "use_session_accuracy",  # compare a run with sessions by its session accuracy
    "scores",  # the metrics of one cell
    "summarise",  # cells -> one summary per recipe
    "Summary",
    "Spread",  # mean and standard deviation over seeds
    "PairedDifference",  # difference to another recipe, seed by seed
    "headline",  # a comparison in a sentence
    "to_rich",  # the table for a terminal,
    "to_markdown",  # in Markdown,
    "to_csv",  # and as CSV
    "ExtraTable",  # small tables beside the main one
    "extra_rich",
    "extra_markdown",
    "transition_table",  # first rounds of sessions
    "transition_lines",
    "event_tables",  # drifts, alarms, metrics of policies
    "figure_png",  # accuracy over rounds
    "figure_svg",
    "has_figure",
    "write_figure",
    "page",  # everything as one HTML page
    "write_page",
]
