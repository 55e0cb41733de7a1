"""Text: a recurrent net on made-up speeches gives the same numbers on both engines."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import thalweg

TEXT = [
    "data=shakespeare",
    *("data.length=6", "data.stride=3", "data.min_samples=4"),
    *("net=char-lstm", "net.embedding=3", "net.units=5"),
    *("capacity=12", "local.batch_size=5", "evaluate_every=1", "world.availability=1.0"),
]


@pytest.fixture(scope="module")
def speeches(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("text") / "shakespeare"
    folder.mkdir()
    rng = np.random.default_rng(0)
    words = ["thou", "art", "a", "king", "and", "I", "am", "none"]
    texts = [" ".join(rng.choice(words, 8 + 2 * i)) for i in range(12)]
    table = {"play": ["p"] * 12, "role": [f"role {i % 4}" for i in range(12)], "text": texts}
    pq.write_table(pa.table(table), folder / "speeches.parquet")
    return folder.parent


def play(folder: Path, recipe: str, *, engine: str = "fast", workers: int = 1):
    return thalweg.run(
        recipe,
        "synthetic-logistic",
        seed=2,
        rounds=3,
        engine=engine,
        workers=workers,
        overrides=TEXT,
        data_dir=folder,
    )


# Plain, a memory that looks at the model, an objective with squared gradients, a frozen teacher.
@pytest.mark.parametrize("recipe", ["fedavg", "is", "fedcurv", "fedntd"])
def test_fast_equals_reference(speeches: Path, recipe: str):
    fast, slow = (play(speeches, recipe, engine=engine) for engine in ("fast", "reference"))
    np.testing.assert_allclose(fast.model, slow.model, rtol=2e-3, atol=2e-5)
    for ours, theirs in zip(fast.metrics, slow.metrics, strict=True):
        assert ours["cohort"] == theirs["cohort"]
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"], abs=0.05)


def test_something_is_learnt(speeches: Path):
    result = play(speeches, "fedavg")
    assert result.metrics[-1]["loss"] < result.metrics[0]["loss"] < 1.1 * np.log(97)


def test_the_number_of_workers_changes_no_bit(speeches: Path):
    one, two = (play(speeches, "fedavg", workers=workers) for workers in (1, 2))
    assert np.array_equal(one.model, two.model)
