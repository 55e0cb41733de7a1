import pytest

from thalweg.core.errors import RunError
from thalweg.report.files import write_atomically


def test_a_file_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path):
    file = tmp_path / "a" / "b.txt"
    write_atomically(file, b"old")
    write_atomically(file, b"new")
    assert file.read_bytes() == b"new"
    assert [path.name for path in file.parent.iterdir()] == ["b.txt"]


def test_what_cannot_be_written_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match=r"cannot write .*page.html: .*\.$"):
        write_atomically(tmp_path / "file" / "page.html", b"")


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "page.html"
    write_atomically(file, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
