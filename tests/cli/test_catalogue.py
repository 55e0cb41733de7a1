"""`thalweg list` and `thalweg show`."""

from __future__ import annotations

from dataclasses import fields

import pytest

from thalweg.cli.catalogue import PARTS, first_sentence, list_command, show_command
from thalweg.core.errors import ConfigError


def test_unknown_name_is_rejected_with_suggestions() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'reservoir'\?") as raised:
        show_command("reservor")
    assert len(str(raised.value)) < 120
    with pytest.raises(ConfigError, match=r"unknown name 'qqqqq'\. `thalweg list` shows all names"):
        show_command("qqqqq")


@pytest.mark.parametrize("what", PARTS)
def test_each_component_has_a_summary_and_can_be_shown(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind, cls in PARTS[what].items():
        assert first_sentence(cls)
        show_command(f"{what}={kind}")
        assert kind in capsys.readouterr().out


def test_local_training_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show_command("local-training")
    assert "--set local.lr=0.1" in capsys.readouterr().out


def test_field_of_a_stage_is_shown_with_its_components_type_default_and_description(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_command("memory.budget")
    text = capsys.readouterr().out
    assert "memory.budget   a field of " in text
    assert "dds" in text
    assert "  budget: float = " in text
    assert "thalweg show memory=" in text


def test_list_shows_texts_with_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    list_command(as_json=False)
    assert "`thalweg[river]`" in capsys.readouterr().out


@pytest.mark.slow
def test_each_field_of_each_stage_fits_on_a_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for what, table in PARTS.items():
        for name in {field.name for cls in table.values() for field in fields(cls)}:
            show_command(f"{what}.{name}")
            lines = capsys.readouterr().out.splitlines()
            assert len(lines) <= 20, (what, name, lines)
            assert max(map(len, lines)) <= 80, (what, name, lines)


def test_unknown_field_of_a_stage_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"unknown field of memory 'bugdet'.*'budget'\?"):
        show_command("memory.bugdet")


@pytest.mark.parametrize("name", ["adam", "sgd", "RMSprop", "local.optimizer=nadam"])
def test_an_optimizer_can_be_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    show_command(name)
    kind = name.removeprefix("local.optimizer=").lower()
    assert f"--set local.optimizer={kind}" in capsys.readouterr().out


def test_part_is_shown_with_its_choices(capsys: pytest.CaptureFixture[str]) -> None:
    show_command("data")
    text = capsys.readouterr().out
    assert "hold_out" in text
    assert "Columns that are not used." in text
    assert "gaussian-mixture" in text
    show_command("memory")
    assert "reservoir" in capsys.readouterr().out
    show_command("capacity")
    assert "Number of samples that a client can store." in capsys.readouterr().out
