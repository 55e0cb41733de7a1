from thalweg.core.types import Job
from thalweg.engine.noise import noise_seeds


def test_seeds_depend_on_the_client_and_the_round_only():
    both = noise_seeds(1, [Job(3), Job(7)], 2)
    assert both[1] == noise_seeds(1, [Job(7, model=1, lr_scale=0.5)], 2)[0]
    assert both[0] != both[1]
    assert both[0] != noise_seeds(1, [Job(3)], 3)[0]
