"""Messages on the terminal."""

from __future__ import annotations

import io

import pytest

from thalweg.cli.messages import print_message
from thalweg.core.wrapped_text import wrap_message

PATH = "/data/" + "x" * 90 + ".csv"


def test_lines_are_wrapped_between_words_and_paths_remain_whole() -> None:
    text = f"thalweg: {PATH} has no column 'label', the default. " + "word " * 30
    lines = wrap_message(text.strip(), 80).splitlines()
    assert all(len(line) <= 80 or line == PATH for line in lines)
    assert " ".join(lines) == text.strip()


@pytest.mark.parametrize(
    "command",
    [
        "--set data.client=pump",
        "`thalweg list`",
        "pip install 'thalweg[onnx]'",
        'python -c "import datasets; datasets.load_dataset(1)"',
        "thalweg run fedavg --on 'my data.csv' --set data.label=state --resume",
    ],
)
def test_commands_remain_on_one_line(command: str) -> None:
    for length in range(40):
        wrapped = wrap_message(f"{'a ' * length}expected this: {command}", 40)
        assert command in wrapped


def test_messages_of_several_lines_keep_them() -> None:
    assert wrap_message("one\n  two\nthree", 80) == "one\n  two\nthree"


def test_only_terminals_get_wrapped_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    for is_terminal, expected in ((True, "aaaa bbbb cccc dddd\neeee\n"), (False, None)):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda is_terminal=is_terminal: is_terminal)
        monkeypatch.setattr("sys.stderr", stream)
        print_message("aaaa bbbb cccc dddd eeee")
        assert stream.getvalue() == (expected or "aaaa bbbb cccc dddd eeee\n")
