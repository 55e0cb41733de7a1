"""Averaged models that the server sends to clients."""

import numpy as np

from contracts.examples import some_roster
from engine.recipe_runs import small_plan
from thalweg.core.types import Job
from thalweg.federation import new_server
from thalweg.federation.context import start_context
from thalweg.federation.extensions.serving import SentAverages
from thalweg.federation.server_steps import bytes_down

SERVING = "serving=best-recent"


class NoClients:
    """A federation of which only the roster is used."""

    def roster(self, rnd):
        return some_roster([0, 2], 4)


def send(jobs):
    """Return the context after the averages of two models with known values are sent."""
    recipe = small_plan("fedrc", SERVING, "server=averaged").recipe
    server = new_server(recipe, np.array([1.0, 2.0], dtype=np.float32), 4, num_classes=3)
    rules = [
        recipe.server.init(2)._replace(mean=np.array([number, 0], dtype=np.float32))
        for number in (7, 8)
    ]
    server = server._replace(bank=np.ones((2, 2), dtype=np.float32), rules=rules)
    ctx = start_context(server, NoClients(), recipe, seed=0)
    ctx.jobs = jobs
    SentAverages().before_training(ctx)
    return ctx


def test_each_job_has_the_average_of_its_model():
    ctx = send([Job(0, 0), Job(0, 1), Job(2, 1)])
    assert ctx.broadcast["serving"]["averages"].tolist() == [[7, 0], [8, 0], [8, 0]]
    # Three models and three averages, of two numbers with 4 bytes each.
    assert bytes_down(ctx.server.bank, ctx.jobs, ctx.broadcast, ()) == 2 * 3 * 2 * 4
    one = send([Job(0, 1), Job(2, 1)])
    assert one.broadcast["serving"]["averages"].tolist() == [[8, 0], [8, 0]]


def test_averages_are_sent_if_the_server_has_them_and_clients_use_them():
    used = {
        overrides: SentAverages().is_used_by(small_plan("fedavg", *overrides).recipe)
        for overrides in (
            ("server=averaged",),
            (SERVING,),
            (SERVING, "server=averaged"),
            (SERVING, "server=averaged", "serving.averaged=false"),
        )
    }
    assert list(used.values()) == [False, False, True, False]
