"""Sequences: nets on synthetic speeches and articles give the same results on both engines."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import thalweg
from contracts.runs import check_engines_agree

TEXT = [
    "data=shakespeare",
    *("data.length=6", "data.stride=3", "data.min_samples=4"),
    *("net=char-rnn", "net.embedding=3", "net.units=5"),
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


ARTICLES = [
    *("data=ag-news", "data.length=7", "data.min_count=1", "net=fast-text", "net.width=6"),
    *("world=replay", "world.num_clients=4", "capacity=12", "ticks=1"),
    *("local.batch_size=5", "local.lr=0.5", "evaluate_every=1"),
]


@pytest.fixture(scope="module")
def articles(tmp_path_factory) -> Path:
    """More than 256 kinds of words, four of which say what an article is about."""
    folder = tmp_path_factory.mktemp("news") / "ag_news"
    folder.mkdir()
    rng = np.random.default_rng(1)
    for part, n in (("train", 120), ("test", 30)):
        labels = rng.integers(0, 4, n)
        lengths = rng.integers(2, 9, n)
        others = [" ".join(f"w{i}" for i in rng.integers(0, 500, size)) for size in lengths]
        texts = [f"section{label} {words}" for label, words in zip(labels, others, strict=True)]
        table = pa.table({"text": texts, "label": labels.astype(np.int8)})
        pq.write_table(table, folder / f"{part}.parquet")
    return folder.parent


def read_articles(folder: Path, recipe: str, rounds: int = 3, **options):
    return thalweg.run(
        recipe,
        "synthetic-logistic",
        seed=2,
        rounds=rounds,
        overrides=[*ARTICLES, *options.pop("more", [])],
        data_dir=folder,
        **options,
    )


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


def test_the_accuracy_on_sequences_improves(speeches: Path):
    result = play(speeches, "fedavg")
    assert result.metrics[-1]["loss"] < result.metrics[0]["loss"] < 1.1 * np.log(97)


@pytest.mark.slow
def test_the_number_of_workers_changes_no_bit(speeches: Path):
    one, two = (play(speeches, "fedavg", workers=workers) for workers in (1, 2))
    assert np.array_equal(one.model, two.model)


@pytest.mark.parametrize("projection", ["none", "3"])
@pytest.mark.parametrize("recipe", ["fedavg", "is", "fedcurv", "fedntd"])
def test_the_engines_agree_on_articles(articles: Path, recipe: str, projection: str):
    more = [f"net.projection={projection}"]
    fast, slow = (
        read_articles(articles, recipe, engine=engine, more=more)
        for engine in ("fast", "reference")
    )
    assert fast.net.can_stack
    assert fast.net.input_shape[1] > 256
    check_engines_agree(fast, slow)


def test_workers_receive_codes_of_two_bytes(articles: Path):
    one, two = (read_articles(articles, "fedavg", workers=workers) for workers in (1, 2))
    assert np.array_equal(one.model, two.model)


def test_padding_does_not_change_predictions(articles: Path):
    result = read_articles(articles, "fedavg", rounds=10)
    assert result.metrics[-1]["loss"] < result.metrics[0]["loss"]
    assert not result.net.named_parameters(result.model)["embedding.weight"][0].any()
