"""All tables and figures of the five papers, also those that no study reproduces."""

from __future__ import annotations

from typing import NamedTuple


class Exhibit(NamedTuple):
    """A table or a figure of a paper."""

    name: str
    content: str
    cells: int = 0
    """Accuracies that are printed in it."""
    has_results: bool = True
    """Whether it shows results of experiments, not an illustration, settings or theory."""
    studies: tuple[str, ...] = ()
    """Studies whose pages draw the figure, besides those that name it as their table."""


class Paper(NamedTuple):
    """A paper and what it shows."""

    title: str
    exhibits: tuple[Exhibit, ...]


def _other(name: str, content: str) -> Exhibit:
    return Exhibit(name, content, has_results=False)


PAPERS = {
    "sfedpo": Paper(
        "SFedPO: streaming federated learning with a prediction oracle under temporal shifts",
        (
            Exhibit("Table 1", "comparison with ten baselines", 88),
            Exhibit("Table 2", "combined with other methods", 40),
            Exhibit("Table 3", "noisy oracle", 12),
            Exhibit("Table 5", "number of clients", 30),
            Exhibit("Table 6", "nets", 40),
            Exhibit("Table 7", "proxies of the heterogeneity", 12),
            Exhibit("Table 8", "availability of clients", 32),
            Exhibit("Figure 2", "ticks, rounds, memory and budget on CIFAR-10"),
            Exhibit("Figure 3", "slopes and offsets of DDS and SAW"),
            Exhibit("Figure 7", "accuracy over the rounds", studies=("sfedpo-table-1",)),
            *(
                Exhibit(f"Figure {number}", f"Figure 2 on {data}", studies=(study,))
                for number, data, study in (
                    (8, "Fashion-MNIST", "sfedpo-figure-2-fashion-mnist"),
                    (9, "CINIC-10", "sfedpo-figure-2-cinic10"),
                    (10, "HAM10000", "sfedpo-figure-2-ham10000"),
                )
            ),
            Exhibit("Figure 11", "noisy oracle", studies=("sfedpo-table-3",)),
            _other("Table 4", "notation"),
            _other("Figure 1", "overview"),
            _other("Figure 4", "class mixes of the latent states: thalweg states"),
            _other("Figure 5", "state probabilities of the clients: thalweg states"),
            _other("Figure 6", "sampling ratios of the clients: thalweg states"),
        ),
    ),
    "streams": Paper(
        "Federated learning for data streams (Marfoq et al. 2023)",
        (
            Exhibit("Table 2", "strategies with 20 % historical data", 25),
            Exhibit("Table 4", "strategies with 5 % historical data", 25),
            Exhibit("Table 5", "strategies with 50 % historical data", 25),
            *(
                Exhibit(f"Figure {number}", f"historical mass, {data}", studies=(study,))
                for number, data, study in (
                    (3, "CIFAR-10", "streams-cifar10-table"),
                    (5, "synthetic data", "streams-synthetic-table"),
                    (6, "CIFAR-100", "streams-cifar100-table"),
                    (7, "FEMNIST", "streams-writers-table"),
                    (8, "Shakespeare", "streams-shakespeare-table"),
                )
            ),
            _other("Table 1", "data sets and models"),
            _other("Table 3", "constants of the bound"),
            _other("Figure 1", "optimal importance of clients, from the bound"),
            _other("Figure 2", "gaps of the bound"),
            _other("Figure 4", "solution of the bound"),
        ),
    ),
    "churn": Paper(
        "Federated learning with dynamic client arrival and departure (Chang et al. 2025)",
        (
            Exhibit("Table 1", "CIFAR, 20 clients", 240),
            Exhibit("Table 2", "AG News, 20 clients", 96),
            Exhibit("Table 3", "MNIST, Fashion-MNIST and SVHN, 20 clients", 328),
            Exhibit("Table 4", "TinyImageNet, 20 clients", 96),
            Exhibit("Table 5", "five image data sets, 100 clients", 632),
            Exhibit("Table 6", "TinyImageNet, 100 clients", 128),
            Exhibit("Table 7", "AG News, 100 clients", 96),
            Exhibit("Table 8", "labels Two-Shard and Partial-Overlap", 360),
            Exhibit("Table 9", "labels Half and Distinct", 270),
            Exhibit("Table 10", "TinyImageNet, other labels", 12),
            Exhibit("Table 11", "Partial-Overlap, 100 clients", 63),
            Exhibit("Table 12", "unseen labels", 6),
            Exhibit("Table 13", "scale R of the warm start", 60),
            Exhibit("Table 14", "pilot with random parameters", 24),
            Exhibit(
                "Figure 2",
                "accuracy over the rounds",
                studies=("churn-cifar10-table", "churn-ag-news-table"),
            ),
            Exhibit(
                "Figure 3",
                "accuracy over the rounds, Two-Shard and Partial-Overlap",
                studies=("churn-partial-overlap-table",),
            ),
            Exhibit(
                "Figure 4",
                "accuracy over the rounds, further labels",
                studies=("churn-half-table", "churn-partial-overlap-100-table"),
            ),
            _other("Table 15", "CPU time and memory, 20 clients"),
            _other("Table 16", "CPU time and memory, 100 clients"),
            _other("Figure 1", "overview"),
        ),
    ),
    "dpcs": Paper(
        "A data-aware probabilistic client sampling scheme in streaming federated learning "
        "(Song et al.)",
        (
            Exhibit("Table I", "four methods after 200 and 600 rounds", 24),
            Exhibit("Figure 2", "heterogeneity, imbalance and latency"),
            Exhibit("Figure 3", "training loss over the rounds", studies=("dpcs-table-1",)),
            Exhibit("Figure 4", "accuracy over the rounds", studies=("dpcs-table-1",)),
            Exhibit("Figure 5", "learning rate, local updates, sampling ratio and imbalance"),
            _other("Figure 1", "overview"),
        ),
    ),
    "feddaa": Paper(
        "FedDAA: dynamic client clustering for concept drift adaptation (Peng and Tang 2025)",
        (
            Exhibit("Table 1", "comparison with baselines", 21),
            Exhibit("Table 2", "accuracy per task on CIFAR-10", 84),
            Exhibit("Table 3", "ablation", 12),
            Exhibit("Table 4", "share of the clients in a round", 12),
            Exhibit("Table 5", "Dirichlet parameter", 9),
            Exhibit("Figure 4", "training accuracy over the rounds"),
            Exhibit("Figure 5", "accuracy per task over the rounds", studies=("feddaa-table-2",)),
            _other("Table 6", "settings"),
            _other("Figure 1", "overview"),
            _other("Figure 2", "overview"),
            _other("Figure 3", "settings"),
        ),
    ),
}


def find_exhibit(paper: str, name: str) -> Exhibit:
    """Return a table or figure; `KeyError` if the paper has none of that name.

    >>> find_exhibit("dpcs", "Table I").cells
    24
    """
    return {exhibit.name: exhibit for exhibit in PAPERS[paper].exhibits}[name]
