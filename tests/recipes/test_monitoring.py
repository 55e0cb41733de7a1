from dataclasses import dataclass, replace

from thalweg.drift import PageHinkley
from thalweg.recipes import fedavg
from thalweg.recipes.monitoring import list_monitored
from thalweg.selection import Available


@dataclass(frozen=True)
class Watching(Available):
    monitors = "label counts"


def test_alarm_and_policies_declare_what_they_monitor():
    recipe = replace(fedavg(), alarm=PageHinkley(), selection=Watching())
    assert list_monitored(recipe) == [
        "the error of each client (alarm page-hinkley, action record-only)",
        "label counts",
    ]
