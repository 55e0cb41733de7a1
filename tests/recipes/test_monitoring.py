from dataclasses import dataclass, replace
from typing import get_args

from thalweg.drift import PageHinkley
from thalweg.drift.actions import CombinedActions, ScaleLr
from thalweg.drift.base import WatchedMetric
from thalweg.recipes import auto, fedavg
from thalweg.recipes.monitoring import RAISED_BY, WATCHED, describe_alarm, list_monitored
from thalweg.selection import Available, BalancedCohort


@dataclass(frozen=True)
class Watching(Available):
    monitors = "label counts"


def test_alarm_and_policies_declare_what_they_monitor():
    recipe = replace(fedavg(), alarm=PageHinkley(), selection=Watching())
    assert list_monitored(recipe) == [
        "the error of each client on arriving samples (alarm page-hinkley: alarms are recorded)",
        "label counts",
    ]


def test_the_actions_of_an_alarm_are_named():
    every = CombinedActions(
        keep=0.5, factor=2, rounds=1, recluster=True, open_state=True, drop_margin=0.1
    )
    (text,) = list_monitored(replace(fedavg(), alarm=PageHinkley(action=every)))
    assert text == (
        "the error of each client on arriving samples (alarm page-hinkley: samples with outdated "
        "labels are dropped; only the newest 50% of the memory stay; the learning rate is "
        "multiplied by 2 for 1 round; the forecast opens a latent state; the bank assigns the "
        "client to models again)"
    )
    (text,) = list_monitored(replace(fedavg(), alarm=PageHinkley(action=ScaleLr(rounds=3))))
    assert "multiplied by 2 for 3 rounds" in text


def test_every_watched_metric_has_a_description():
    assert set(WATCHED) == set(RAISED_BY) == set(get_args(WatchedMetric))
    assert describe_alarm(fedavg()) == ""


def test_auto_names_all_that_it_monitors():
    """Selection is left out if all clients take part, because it then has nothing to choose."""
    texts = list_monitored(auto())
    assert len(texts) == 5
    assert not any("selection" in text for text in texts)
    chosen = list_monitored(replace(auto(), selection=BalancedCohort(0.5)))
    assert "the label mixes and training losses of clients (selection)" in chosen
    labels_only = list_monitored(replace(auto(), selection=BalancedCohort(0.5, loss_weight=0.0)))
    assert "the label mixes of clients (selection)" in labels_only
