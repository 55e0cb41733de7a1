"""Table I of the DPCS paper as a study, and DPCS with SFedPO's modules (not in a paper)."""

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
            "rounds come from the same runs. The paper does not give the strength of FedProx (here "
            "0.01) and the number of candidates of power-of-choice (here 12)."
        ),
        rows=(
            Row("dpcs"),
            Row("fedavg", f"fedavg,{UNIFORM}"),
            Row("fedprox", f"fedprox,{UNIFORM},objective.strength=0.01"),
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
            Row("fedavg", f"fedavg,{UNIFORM}"),
            Row("local-only", "local-only,memory=fifo"),
            Row("fine-tuned", f"fine-tuned,{UNIFORM}"),
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
    return [table_1(), baselines(), together()]
