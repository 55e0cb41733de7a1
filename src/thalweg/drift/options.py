"""The two settings that all our alarms have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from thalweg.core.config import choice
from thalweg.drift.actions import ACTIONS, RecordOnly
from thalweg.drift.base import Action


@dataclass(frozen=True)
class AlarmOptions:
    """Which number of the clients an alarm watches, and what is done when it has changed."""

    watch: Literal["error", "loss"] = field(default="error", kw_only=True)
    """error: share of the arriving samples of a round that the received model gets wrong; loss: the mean training
    loss of a round."""
    action: Action = choice(ACTIONS, default=RecordOnly(), kw_only=True)
    """What is done about an alarm, in the client's next round."""
