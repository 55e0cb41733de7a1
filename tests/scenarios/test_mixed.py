import pytest

from thalweg.scenarios import find_scenario
from thalweg.scenarios.mixed import MIXED


@pytest.mark.parametrize("name", MIXED)
def test_memory_is_bounded_and_arrivals_are_tested(name):
    scenario = find_scenario(name)
    assert scenario.prequential == scenario.capacity
    assert scenario.sessions is not None
    assert scenario.drift is not None


def test_members_change_in_most_rounds():
    scenario = find_scenario("mixed-digits")
    assert scenario.sessions is not None
    table = scenario.sessions.timetable(20, scenario.rounds, seed=5)
    members = [set(table.session(rnd).members.tolist()) for rnd in range(scenario.rounds)]
    sizes = [len(each) for each in members]
    assert (min(sizes), max(sizes)) == (6, 11)  # about half of the 20 clients
    assert len(set().union(*members)) == 18  # are members at some time
    assert len(table.starts) == 33
