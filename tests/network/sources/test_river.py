from __future__ import annotations

import sys

import pytest

from contracts.source import check_source, inputs_of, labels_of
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.network.sources import SampleFormat, open_source

river = pytest.importorskip("river", reason="river is an extra")
PHISHING = SampleFormat((9,), "float32", 2)


def test_river_data_set_is_read_once_and_resumes() -> None:
    found = check_source(lambda: open_source("river:Phishing?take=130", PHISHING))
    assert len(found) == 130
    x, y = next(iter(river.datasets.Phishing()))
    assert found[0][:2] == (tuple(x.values()), int(y))


def test_river_columns_follow_the_requested_order() -> None:
    two = SampleFormat((2,), "float32", 2)
    source = open_source("river:Phishing?take=1&columns=https,is_popular", two)
    (x, _), *_ = river.datasets.Phishing()
    assert inputs_of(list(source.events(""))) == [[x["https"], x["is_popular"]]]


def test_river_generator_takes_settings_from_the_source() -> None:
    sample_format = SampleFormat((3,), "float32", 2)
    first, again, other = (
        inputs_of(
            list(open_source(f"river:synth.SEA?seed={seed}&take=5", sample_format).events(""))
        )
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_unknown_river_names_and_options_are_rejected() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'Phishing'"):
        open_source("river:Fishing", PHISHING)
    with pytest.raises(UnknownName):
        open_source("river:base", PHISHING)
    with pytest.raises(ConfigError, match="rejects these options"):
        open_source("river:synth.SEA?speed=1", PHISHING)


def test_river_samples_of_another_format_are_rejected_and_counted() -> None:
    source = open_source("river:Phishing?take=3", SampleFormat((8,), "float32", 2))
    assert labels_of(list(source.events(""))) == []
    assert source.rejected == 3


def test_missing_river_package_gives_an_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(ConfigError, match=r"pip install 'thalweg\[river\]'"):
        open_source("river:Phishing", PHISHING)
