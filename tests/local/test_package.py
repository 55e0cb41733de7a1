"""Contract tests of all registered objectives."""

import pytest

from contracts.objective import check_objective
from thalweg.local import OBJECTIVES


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_registered_objective_fulfils_the_contract(name):
    check_objective(OBJECTIVES[name]())
