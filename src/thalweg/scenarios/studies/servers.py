"""Studies of server rules, of late updates and of banks with a fixed number of models."""

from __future__ import annotations

from thalweg.scenarios.studies.base import Column, Row, Study

SEEDS = (0, 1, 2)
NON_IID = (
    "world.partition.concentration=0.1",
    "world.partition.imbalance=1.0",
    "world.samples=6000",
    "world.arrivals=at-start",
    "net=mlp",
    "net.hidden=[64]",
    "local.momentum=0.0",
    "local.batch_size=32",
    "memory=fifo",
    "selection=uniform",
    "selection.fraction=0.25",
    "rounds=60",
    "validation=0.5",
)
# Learning rates of the server that are tried, with each of those of the clients.
SERVER_RATES = {
    "fedavg": (0.5, 1.0, 2.0),
    "fedavgm": (0.1, 0.3, 1.0, 3.0),
    "fedadam": (0.003, 0.01, 0.03, 0.1),
    "fedyogi": (0.003, 0.01, 0.03, 0.1),
    "fedadagrad": (0.003, 0.01, 0.03, 0.1),
}
CLIENT_RATES = (0.03, 0.1, 0.3)
# Server and clients: the best rows of server-rules-rates.
CHOSEN_RATES = {
    "fedavg": (1.0, 0.1),
    "fedavgm": (1.0, 0.1),
    "fedadam": (0.03, 0.1),
    "fedyogi": (0.03, 0.1),
    "fedadagrad": (0.01, 0.1),
}


def server_rates() -> Study:
    """Learning rates of the rules in server-rules-table."""
    return Study(
        name="server-rules-rates",
        title="Server rules on non-IID MNIST: the choice of the learning rates",
        description=(
            "The scenario of server-rules-table with other seeds: accuracy after 60 rounds on the "
            "half of the test images that the table does not use. Rows state the learning rate of "
            "the server and that of the clients."
        ),
        rows=tuple(
            Row(f"{rule} {server}, clients {client}", _rule(rule, server, client))
            for rule, rates in SERVER_RATES.items()
            for server in rates
            for client in CLIENT_RATES
        ),
        columns=(Column("dpcs-mnist", NON_IID, "60 rounds"),),
        seeds=(100,),
        reference="fedavg 1.0, clients 0.1",
        metric="validation_accuracy",
    )


def _rule(rule: str, server: float, client: float) -> str:
    return f"{rule},server.lr={server},local.lr={client}"


def server_rules() -> Study:
    return Study(
        name="server-rules-table",
        title="Server rules on non-IID MNIST",
        description=(
            "6,000 images of MNIST, divided among 20 clients by Dirichlet(0.1); five clients take "
            "part in a round, with five steps of SGD each. A dense net of 64 units. The learning "
            "rates of server and clients were chosen for each rule with other seeds on one half of "
            "the test images (server-rules-rates); the accuracy is that on the other half."
        ),
        rows=tuple(Row(rule, _rule(rule, *rates)) for rule, rates in CHOSEN_RATES.items()),
        columns=(
            Column("dpcs-mnist", NON_IID, "20 rounds", until=20),
            Column("dpcs-mnist", NON_IID, "60 rounds"),
        ),
        seeds=SEEDS,
        reference="fedavg",
    )


def late_updates() -> Study:
    """FedBuff and the staleness rules, if a part of the updates is late."""

    def column(late: float) -> Column:
        faults = ("faults=unreliable", f"faults.late={late}", "faults.delay=3.0", "faults.lost=0.1")
        shorter = ("world.availability=0.5", "ticks=2", "prequential=0", "evaluate_every=40")
        return Column("digits-partial", (*shorter, *faults), f"late {late}")

    return Study(
        name="late-updates-table",
        title="Late updates: FedBuff and the staleness rules",
        description=(
            "20 clients on digits, half of them present in a round of two ticks, 40 rounds. A "
            "tenth of the updates is lost, and a part of them is late by a geometric number of "
            "rounds with mean 3. FedAvg rejects late updates or discounts them by its staleness "
            "rule; FedBuff collects 5, 10 or 20 updates before a step."
        ),
        rows=(
            Row("rejected", "fedavg"),
            Row("constant", "fedavg,staleness=constant"),
            Row("polynomial", "fedavg,staleness=polynomial"),
            Row("hinge", "fedavg,staleness=hinge"),
            Row("fedbuff, 5", "fedbuff,server.size=5"),
            Row("fedbuff, 10", "fedbuff,server.size=10"),
            Row("fedbuff, 20", "fedbuff,server.size=20"),
        ),
        columns=(column(0.3), column(0.7)),
        seeds=SEEDS,
        reference="polynomial",
    )


def ifca() -> Study:
    steps = ("world.rounds_per_step=20", "rounds=120", "evaluate_every=20", "selection=available")
    return Study(
        name="ifca-table",
        title="IFCA, FedDrift and one model per true concept",
        description=(
            "Twelve clients on digits, six steps of 20 rounds, two concepts in the first step, "
            "three in the second, four afterwards. Accuracy of each client with its own model at "
            "the end of a step, averaged over clients and steps. All clients train in each round."
        ),
        rows=(
            Row("one model", "fedavg-retrain"),
            Row("ifca, 2 models", "ifca"),
            Row("ifca, 4 models", "ifca,bank.models=4"),
            Row("ifca, 8 models", "ifca,bank.models=8"),
            Row("feddrift", "feddrift,bank.every=20,bank.initial_models=2"),
            Row(
                "feddrift reassigned",
                "feddrift,bank.every=20,bank.initial_models=2,bank.reassign=true",
            ),
            Row("oracle"),
        ),
        columns=(Column("drift-digits", steps),),
        seeds=SEEDS,
        reference="feddrift",
        metric="step_accuracy",
    )


def studies() -> list[Study]:
    return [server_rules(), server_rates(), late_updates(), ifca()]
