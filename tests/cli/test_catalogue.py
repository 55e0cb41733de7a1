"""`thalweg list` and `thalweg show`."""

from __future__ import annotations

import pytest

from thalweg.cli.catalogue import PARTS, first_sentence, show_command
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


def test_local_optimiser_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show_command("sgd")
    assert "--set local.lr=0.1" in capsys.readouterr().out
