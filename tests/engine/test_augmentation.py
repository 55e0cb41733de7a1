"""Augmented images do not depend on the engine, the stacks or the workers."""

from pathlib import Path

import numpy as np
import pytest

import thalweg
from thalweg.core.errors import ConfigError
from thalweg.data import Augment
from thalweg.engine.loop import run_plan
from thalweg.engine.models import StackAugmentation
from thalweg.engine.plan import make_plan, plan_from_toml, plan_to_toml
from thalweg.engine.step_seeds import image_rng

SMALL = ["capacity=24", "local.passes=1", "ticks=3", "world.num_clients=8", "evaluate_every=1"]
AUGMENTED = [*SMALL, "augment=standard", "augment.padding=1"]
EVERYBODY = "world.availability=1.0"
NETS = {
    "a dense net": ("sfedpo", []),
    "a convolutional net": (
        "fedavg",
        ["net=cnn", "net.channels=[4, 4, 4]", "net.hidden=8", "world.num_clients=5"],
    ),
    "dropout and a teacher": ("fedntd", ["net=ham-cnn", "net.channels=[4, 4, 4]", "net.hidden=8"]),
    "a memory that uses the model": ("is", []),
    "ragged memories": ("flash", ["world.absent=collecting", "local.batch_size=7"]),
}


@pytest.mark.parametrize("case", NETS)
def test_both_engines_augment_images_in_the_same_way(case):
    recipe, overrides = NETS[case]
    fast, slow = (
        thalweg.run(
            recipe,
            "digits-partial",
            seed=2,
            rounds=3,
            engine=engine,
            overrides=[*AUGMENTED, *overrides],
        )
        for engine in ("fast", "reference")
    )
    np.testing.assert_allclose(fast.model, slow.model, rtol=2e-3, atol=2e-5)
    still = thalweg.run(recipe, "digits-partial", seed=2, rounds=3, overrides=[*SMALL, *overrides])
    assert np.abs(fast.model - still.model).max() > 0.01, "augmentation does something"


def test_the_number_of_workers_changes_no_bit():
    recipe, overrides = NETS["a convolutional net"]
    one, two = (
        thalweg.run(
            recipe,
            "digits-partial",
            seed=4,
            rounds=2,
            workers=workers,
            overrides=[*AUGMENTED, *overrides],
        )
        for workers in (1, 2)
    )
    assert np.array_equal(one.model, two.model)


@pytest.mark.parametrize("net", [[], ["net=ham-cnn", "net.channels=[4, 4, 4]", "net.hidden=8"]])
def test_an_augmentation_without_effect_changes_nothing(net):
    """The seeds of dropout do not depend on whether images are augmented."""
    nothing = ["augment=standard", "augment.padding=0", "augment.flip=false"]
    off, on = (
        thalweg.run(
            "sfedpo",
            "digits-partial",
            seed=4,
            rounds=2,
            engine="torch",  # the native kernel has no augmentation
            overrides=[*SMALL, *net, *more],
        )
        for more in ([], nothing)
    )
    # Dense nets without augmentation train without autograd, which rounds differently.
    np.testing.assert_allclose(off.model, on.model, rtol=0, atol=0 if net else 1e-6)


def test_a_resumed_run_has_the_same_bits(tmp_path: Path):
    def go(rounds: int, out: Path | None, resume: bool = False):
        plan = make_plan("sfedpo", "digits-partial", seed=3, rounds=3, overrides=AUGMENTED)
        if rounds == 3:
            return run_plan(plan, out=out, resume=resume, workers=1)

        def stop(progress):
            if progress.rounds_done == rounds:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_plan(plan, out=out, watch=stop, workers=1)
        return None

    go(2, tmp_path / "run")
    assert np.array_equal(go(3, tmp_path / "run", resume=True).model, go(3, None).model)


def test_predictions_use_images_without_augmentation():
    """The first arrivals are predicted by the first model, before training."""
    first = [
        thalweg.run("sfedpo", "digits-partial", seed=3, rounds=1, overrides=overrides).final[
            "prequential_accuracy"
        ]
        for overrides in ([*SMALL, EVERYBODY], [*AUGMENTED, EVERYBODY])
    ]
    assert first[0] == first[1]


def test_the_augmentation_of_an_image_depends_on_its_client_and_step_only():
    x = np.random.default_rng(0).integers(0, 256, (3, 5, 6, 6, 1), dtype=np.uint8)
    seeds, steps = np.array([11, 22, 33]), np.array([0, 4, 4])
    together = StackAugmentation(Augment(padding=2), seeds, steps)(x)
    for k in range(3):
        alone = StackAugmentation(Augment(padding=2), seeds[[k]], steps[[k]])(x[k, :3])
        assert np.array_equal(alone, together[k, :3]), "fewer of them, one after the other"
    later = StackAugmentation(Augment(padding=2), seeds, steps + 1)(x)
    assert not np.array_equal(later, together)
    assert image_rng(11, 1).random() != image_rng(12, 0).random(), (
        "the next step of one client is not the first of the next"
    )


def test_features_cannot_be_augmented(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"changes images, but .* features"):
        thalweg.run(
            "fedavg",
            "gaussian-mixture",
            rounds=1,
            overrides=["augment=standard"],
            out=tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


def test_augmentation_is_chosen_by_name_and_written_to_toml():
    plan = make_plan("fedavg", "digits-full", overrides=["augment=standard", "augment.flip=false"])
    assert plan.scenario.augment == Augment(padding=4, flip=False)
    assert plan_from_toml(plan_to_toml(plan), "") == plan
    off = make_plan(
        "fedavg",
        plan.scenario,
        overrides=["augment=none"],
    )
    assert off.scenario.augment is None
    with pytest.raises(ConfigError, match="augment='standard'"):
        make_plan("fedavg", "digits-full", overrides=["augment.flip=false"])


def test_a_plan_file_without_augmentation_has_none():
    plan = make_plan("fedavg", "digits-full")
    old = plan_to_toml(plan).replace('augment = "none"\n', "")
    assert "augment" not in old
    assert plan_from_toml(old, "old") == plan
