"""Every objective of the table keeps the promises of its stage."""

import pytest

from contracts.objective import check_objective
from thalweg.local import OBJECTIVES


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_keeps_its_promises(name):
    check_objective(OBJECTIVES[name]())
