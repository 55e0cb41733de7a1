"""What a user sees of a comparison: numbers, tables, a figure, one self-contained page."""

from thalweg.report.cells import Cell, CellScores, Status, scores, use_session_accuracy
from thalweg.report.figure import figure_png, figure_svg, has_figure, write_figure
from thalweg.report.headline import headline
from thalweg.report.markdown import to_markdown
from thalweg.report.page import page, write_page
from thalweg.report.records import to_csv
from thalweg.report.summary import PairedDifference, Spread, Summary, summarise
from thalweg.report.terminal import to_rich
from thalweg.report.transitions import transition_lines, transition_markdown, transition_rich

__all__ = [  # noqa: RUF022  from the runs to the page
    "Cell",  # one recipe, one seed: what came of it
    "Status",  # done, failed, interrupted or missing
    "use_session_accuracy",  # a cell as recipes are compared by it
    "scores",  # one cell in a few numbers
    "CellScores",
    "summarise",  # cells -> one summary per recipe
    "Summary",
    "Spread",  # mean and standard deviation over seeds
    "PairedDifference",  # difference to the first recipe, seed by seed
    "headline",  # a sentence
    "to_rich",  # a table for the terminal
    "to_markdown",
    "to_csv",
    "transition_lines",  # how sessions began: of one run,
    "transition_rich",  # and of a comparison
    "transition_markdown",
    "figure_png",  # accuracy over rounds
    "figure_svg",
    "has_figure",  # is there anything to draw?
    "write_figure",
    "page",  # everything as one HTML page
    "write_page",
]
