"""The table and figures of the DPCS paper as studies, and further studies of DPCS."""

from __future__ import annotations

from thalweg.core.published import Published
from thalweg.scenarios.studies.base import Column, Row, Study
from thalweg.scenarios.studies.sfedpo import SEEDS as SFEDPO_SEEDS

SEEDS = (1, 2, 3)
DATA = ("mnist", "fashion-mnist", "cifar10")
# Percent at 200 and at 600 rounds, for each data set.
TABLE_1 = {
    "fedavg": (95.41, 98.19, 70.74, 83.91, 37.17, 52.52),
    "fedprox": (95.32, 98.10, 70.83, 84.02, 37.43, 50.51),
    "powd": (95.80, 97.04, 74.53, 85.00, 39.09, 54.11),
    "dpcs": (96.54, 98.26, 80.74, 86.77, 47.45, 61.27),
}
UNIFORM = "memory=fifo,selection=uniform,selection.fraction=0.3"
FEDAVG = f"fedavg,weights=by-samples,{UNIFORM}"
SENSITIVITY = {  # Figure 5 a, b and d: the settings of its columns
    "lr": ("local.lr", ("0.01", "0.02", "0.03", "0.04", "0.05", "0.1")),
    "steps": ("local.steps", ("1", "3", "5", "7", "10")),
    "imbalance": ("world.partition.imbalance", ("0.6", "0.7", "0.8", "0.9", "1.0")),
}
RATIOS = ("0.1", "0.2", "0.3", "0.5", "0.8")  # Figure 5 c
EPSILONS = ("0.001", "0.01", "0.1", "1")  # per report


def table_1() -> Study:
    columns = tuple(
        column
        for data in DATA
        for column in (
            Column(f"dpcs-{data}", note="200 rounds", until=200),
            Column(f"dpcs-{data}", note="600 rounds"),
        )
    )
    return Study(
        name="dpcs-table-1",
        paper="dpcs",
        table="Table I",
        curves=("loss",),
        title="DPCS, Table I: client selection",
        description=(
            "20 clients, 6 of them per round; Dirichlet(0.1); each class has 0.8 times as many "
            "samples as the one before; samples arrive evenly over 600 rounds. The numbers at 200 "
            "rounds come from the same runs. FedAvg and FedProx weight updates by the clients' "
            "numbers of samples, 'fedavg, equal weights' equally, as DPCS and power-of-choice do. "
            "The paper does not give the strength of FedProx (here 0.01) and the number of "
            "candidates of power-of-choice (here 12)."
        ),
        rows=(
            Row("dpcs"),
            Row("fedavg", FEDAVG),
            Row("fedavg, equal weights", f"fedavg,{UNIFORM}"),
            Row("fedprox", f"fedprox,weights=by-samples,{UNIFORM},objective.strength=0.01"),
            Row("powd"),
        ),
        columns=columns,
        seeds=SEEDS,
        reference="fedavg",
        published={
            (row, column.label): Published(number)
            for row, numbers in TABLE_1.items()
            for column, number in zip(columns, numbers, strict=True)
        },
    )


def figure_2() -> Study:
    """Figure 2 b, c and d: heterogeneity, imbalance, and losses before and after new samples."""
    short = ("rounds=200",)
    rows = ("fedavg", "fedavg, equal weights")
    cache = (*short, "capacity=200", "world.arrivals.per_round=20", "world.at_end=restart")
    changes = ("powd",)
    return Study(
        name="dpcs-figure-2",
        paper="dpcs",
        table="Figure 2",
        title="DPCS, Figure 2: heterogeneity, imbalance and latency",
        description=(
            "Fashion-MNIST, 20 clients, 6 of them per round, 200 rounds; all samples arrive within "
            "them. The paper names neither data set nor rounds. alpha: concentration of the "
            "Dirichlet distribution. imbalance: size of a class relative to the one before it. "
            "change and growth: how much the samples of a round change a client's loss before it "
            "trains, relative to the loss, as the mean over the candidates of power-of-choice and "
            "over rounds. Clients store 200 samples and receive 20 per round (change) or as many "
            "as stated (growth); in each round the stream switches to another class with the "
            "stated probability (change) or with probability 0.5 (growth)."
        ),
        rows=(
            Row("fedavg", FEDAVG),
            Row("fedavg, equal weights", f"fedavg,{UNIFORM}"),
            Row("powd", "powd,selection.measure_change=true"),
        ),
        columns=(
            *(
                Column(
                    "dpcs-fashion-mnist",
                    (f"world.partition.concentration={alpha}", *short),
                    f"alpha={alpha}",
                    rows,
                )
                for alpha in ("0.1", "0.2", "0.5", "1.0", "10.0")
            ),
            *(
                Column(
                    "dpcs-fashion-mnist",
                    (f"world.partition.imbalance={imbalance}", *short),
                    f"imbalance={imbalance}",
                    rows,
                )
                for imbalance in ("0.7", "0.8", "0.9", "1.0")
            ),
            *(
                Column(
                    "dpcs-fashion-mnist",
                    (*cache, f"world.label_change={change}"),
                    f"change={change}",
                    changes,
                    metric="loss_change",
                )
                for change in ("0.0", "0.2", "0.5", "1.0")
            ),
            *(
                Column(
                    "dpcs-fashion-mnist",
                    (*cache, "world.label_change=0.5", f"world.arrivals.per_round={growth}"),
                    f"growth={growth}",
                    changes,
                    metric="loss_change",
                )
                for growth in ("5.0", "20.0", "80.0")
            ),
        ),
        seeds=SEEDS,
        reference="fedavg",
    )


def figure_5() -> Study:
    """Figure 5: learning rate, local updates, sampling ratio and imbalance."""
    short = ("rounds=200",)
    columns = tuple(
        Column(
            "dpcs-cifar10", (f"{setting}={value}", *short), f"{name}={value}", ("dpcs", "fedavg")
        )
        for name, (setting, values) in SENSITIVITY.items()
        for value in values
    )
    ratios = tuple(
        row
        for ratio in RATIOS
        for row in (
            Row(f"dpcs {ratio}", f"dpcs,selection.participation={ratio}", f"fedavg {ratio}"),
            Row(f"fedavg {ratio}", FEDAVG.replace("fraction=0.3", f"fraction={ratio}")),
        )
    )
    return Study(
        name="dpcs-figure-5",
        paper="dpcs",
        table="Figure 5",
        title="DPCS, Figure 5: sensitivity to four settings",
        description=(
            "CIFAR-10, 200 rounds; all samples arrive within them. lr: learning rate. steps: local "
            "updates. imbalance: size of a class relative to the one before it. The numbers of the "
            "rows in the last column are the share of the clients that take part in a round. The "
            "other settings are those of Table I."
        ),
        rows=(Row("dpcs"), Row("fedavg", FEDAVG), *ratios),
        columns=(
            *columns,
            Column("dpcs-cifar10", short, "ratios", tuple(row.label for row in ratios)),
        ),
        seeds=SEEDS,
        reference="fedavg",
    )


def privacy() -> Study:
    """Accuracy of DPCS with private label counts (not in the paper)."""
    return Study(
        name="dpcs-privacy",
        title="DPCS with private label counts: accuracy over epsilon",
        description=(
            "The runs of Table I on Fashion-MNIST. Before each round each client reports its label "
            "counts with Laplace noise of scale 2 / epsilon; 'dpcs' reports them without noise. "
            "Costs add up over the reports, 600 in these runs."
        ),
        rows=(
            Row("dpcs"),
            *(
                Row(f"epsilon {epsilon}", f"dpcs,selection.privacy.epsilon={epsilon}")
                for epsilon in EPSILONS
            ),
            Row("fedavg, equal weights", f"fedavg,{UNIFORM}"),
            Row("fedavg", FEDAVG),
        ),
        columns=(
            Column("dpcs-fashion-mnist", note="200 rounds", until=200),
            Column("dpcs-fashion-mnist", note="600 rounds"),
        ),
        seeds=SEEDS,
        reference="dpcs",
    )


def baselines() -> Study:
    """Baselines that are not in the paper, at reduced scale."""
    small = ("net=mlp", "net.hidden=[64]", "rounds=100", "evaluate_every=100")
    return Study(
        name="dpcs-baselines",
        title="DPCS and baselines without a federation, at reduced scale",
        description=(
            "The world of DPCS's Table I at reduced scale: a dense net of 64 units and 100 rounds "
            "instead of LeNet-5 and 600 rounds; all samples arrive within the 100 rounds. "
            "'local-only' and 'centralised' take the steps of all 20 clients in every round, the "
            "other rows those of 6 clients. The column 'all' shows the accuracy on the whole test "
            "set, the column 'own' that on test data like each client's own, averaged over clients."
        ),
        rows=(
            Row("dpcs"),
            Row("fedavg", FEDAVG),
            Row("fedavg, equal weights", f"fedavg,{UNIFORM}"),
            Row("local-only", "local-only,memory=fifo"),
            Row("fine-tuned", f"fine-tuned,weights=by-samples,{UNIFORM}"),
            Row("centralised", "centralised,memory=fifo"),
        ),
        columns=(
            Column("dpcs-fashion-mnist", small, "all"),
            Column("dpcs-fashion-mnist", small, "own", metric="client_accuracy"),
        ),
        seeds=SEEDS,
        reference="fedavg",
    )


def together() -> Study:
    """Client selection (DPCS), memory (DDS) and weights (SAW), separately and combined."""
    drifting = (
        "world.availability=0.5",
        "world.availability_spread=0.1",
        "world.absent=collecting",
        "world.imbalance=0.8",
    )
    some, by_labels = (
        "selection=uniform,selection.fraction=0.4",
        "selection=dpcs,selection.participation=0.4",
    )
    return Study(
        name="dpcs-sfedpo",
        title="DPCS, DDS and SAW: separately and combined",
        description=(
            "Shows which of the three modules helps, and whether their gains add up, in SFedPO's "
            "drifting world. Half of 30 clients are present in a round; the others receive data, "
            "too. Each class has 0.8 times as many samples as the one before. Two fifths of the "
            "present clients are chosen. SAW has slope 1: with slope 2 and clients that are "
            "present this often, half of its weights are zero. Seeds 4 to 6, because the tunables "
            "of SFedPO were chosen on seeds 0 to 3."
        ),
        rows=(
            Row("none", f"fedavg,{some}"),
            Row("dpcs", f"fedavg,{by_labels}"),
            Row("dds", f"sfedpo,weights=equal,{some}"),
            Row("saw", f"sfedpo,weights.slope=1,memory=uniform-ratio,{some}"),
            Row("dds + saw", f"sfedpo,weights.slope=1,{some}"),
            Row("dpcs + dds + saw", f"sfedpo,weights.slope=1,{by_labels}"),
        ),
        columns=(Column("fashion-mnist-partial", drifting, "imbalanced"),),
        seeds=SFEDPO_SEEDS,
        reference="none",
    )


def studies() -> list[Study]:
    return [table_1(), figure_2(), figure_5(), privacy(), baselines(), together()]
