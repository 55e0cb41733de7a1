"""Tables of the SFedPO paper, the sweeps of its Figures 2 and 3, and two studies of its parts.

Tables 3, 5, 7 and 8 of the paper use CIFAR-10 with AlexNet only. Their studies have the same
columns with a small CNN, compared with the same numbers, and on Fashion-MNIST without numbers.

Two readings of a baseline are two rows; the paper's number stands next to the reading that its
appendix describes, or, if it describes none, next to the one that fits its other numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from thalweg.core.published import Published
from thalweg.scenarios.studies import sfedpo_numbers as printed
from thalweg.scenarios.studies.base import Column, Row, Study

SEEDS = (4, 5, 6)
ABOUT_SEEDS = (
    "Seeds 4, 5 and 6: the tunables of SFedPO that the paper leaves open were chosen on seeds 0 to "
    "3. The paper reports 5 trials."
)
DATA = ("fashion-mnist", "cifar10", "cinic10", "ham10000")
# The paper's data and net, the same data with a small net, and affordable data.
CIFAR10, SMALL_CNN = "cifar10-", "cifar10-cnn-"
AFFORDABLE = ("cifar10", "cifar10-cnn", "fashion-mnist")
ACCESS = ("full", "partial")
# Readings of the paper's baselines that differ from the recipe of the same name.
READINGS = {
    "adaptive-fedavg": "adaptive-fedavg,server.decay=none",
    "feddrift": "feddrift,bank.drift_threshold=10.0",
    "flash": "flash,stopping=gain-threshold",
    "is": "is,memory.budget=1,world.arrivals=1000",
    "ode": "ode,memory.pool=new,world.arrivals=1000",
}
OTHER_READINGS = (
    Row("adaptive-fedavg, decay 1/t", "adaptive-fedavg"),
    Row("feddrift, threshold 0.5", "feddrift"),
    Row("flash, no stopping", "flash"),
    Row("is, half renewed", "is"),
    Row("ode, old and new", "ode"),
    Row("drsr, class counts", "drsr,memory.mode=match"),
)
ABOUT_READINGS = (
    "Rows of two readings: 'is' and 'ode' choose the best 500 of 1,000 new samples and discard the "
    "old ones, as the paper describes both; 'is, half renewed' replaces the worst half of the "
    "memory, and 'ode, old and new' chooses among all samples, like ODE's authors. 'flash' has the "
    "early stopping that the paper names. The paper's number for Adaptive-FedAvg is almost that of "
    "FedOGD, which it cannot be with a decay of 1/t; the row 'adaptive-fedavg' has no decay. Its "
    "number for FedDrift, whose threshold it does not give, is also almost that of FedOGD; the row "
    "'feddrift' has a threshold of 10, which opens no model in these worlds, 'feddrift, threshold "
    "0.5' our default, which takes latent states for drift. On "
    "HAM10000, with about 130 images per state, each new sample of 'is' and 'ode' arrives several "
    "times."
)
BASELINES = ("fedogd", "flash", "flwf-2t", "drsr")  # of Tables 5 and 6
SMALL = ("net=mlp", "net.hidden=[64]", "rounds=30", "evaluate_every=30")
HOSTS = ("fedavg", "fedprox", "fedcurv", "fedntd", "fedexp")
ABOUT_SMALL = (
    "The columns cifar10-cnn have a small CNN instead of AlexNet and are compared with the same "
    "numbers; the paper has none for Fashion-MNIST."
)
ABOUT_ROUNDS = (
    "The paper does not state which round it reports. Columns without a note show the last round; "
    "'best' shows the best evaluated round, chosen by the test set itself, and 'last ten' the mean "
    "of the last ten evaluations. All three are compared with its number."
)


def table_1() -> Study:
    numbers = _parse_rows(printed.TABLE_1)
    labels = ("sfedpo", *(name for name in numbers if name != "sfedpo"))
    columns = _scenarios(DATA)
    return Study(
        name="sfedpo-table-1",
        paper="sfedpo",
        table="Table 1",
        title="SFedPO, Table 1: comparison with ten baselines",
        description=(
            "Test accuracy on 4 data sets, full and partial access. The last three rows are not in "
            "the paper. 'local-only' and 'fine-tuned' have a model for each client; their accuracy "
            "is that on the whole test set, averaged over clients, also for classes that a client "
            f"does not have. {ABOUT_READINGS} {ABOUT_ROUNDS} {ABOUT_SEEDS}"
        ),
        rows=(
            *map(_row, labels),
            *OTHER_READINGS,
            *map(Row, ("local-only", "fine-tuned", "centralised")),
        ),
        columns=_with_best_round(columns),
        seeds=SEEDS,
        reference="sfedpo",
        published=_compare_all_rounds(_published_cells(numbers, columns)),
    )


def baselines() -> Study:
    """The baselines that are not in the paper, at reduced scale."""
    columns = tuple(
        Column(f"fashion-mnist-{access}", SMALL, note, metric=metric)
        for access in ACCESS
        for note, metric in (("all", "accuracy"), ("own", "client_accuracy"))
    )
    return Study(
        name="sfedpo-baselines",
        title="SFedPO and baselines without a federation, at reduced scale",
        description=(
            "Reduced scale: a dense net of 64 units and 30 rounds instead of LeNet-5 and 100 "
            "rounds. The columns 'all' show the final accuracy on the whole test set, the columns "
            f"'own' that on test data like each client's own, averaged over clients. {ABOUT_SEEDS}"
        ),
        rows=tuple(map(Row, ("sfedpo", "fedavg", "local-only", "fine-tuned", "centralised"))),
        columns=columns,
        seeds=SEEDS,
        reference="sfedpo",
    )


def table_2() -> Study:
    """Every host method without SFedPO, then with it."""
    rows: list[Row] = []
    for host in HOSTS:
        # FedAvg with SFedPO's two modules is SFedPO itself: one cell, not two.
        combined = "sfedpo" if host == "fedavg" else f"{host}+sfedpo"
        rows += [Row(host, against=host), Row(f"{host}+sfedpo", combined, against=host)]
    columns = _scenarios(DATA)
    published = {}
    for host, entries in _parse_rows(printed.TABLE_2).items():
        for column, entry in zip(columns, entries, strict=True):
            with_it, gain = _parse_gain(entry)
            published[f"{host}+sfedpo", column.label] = Published(with_it)
            published[host, column.label] = Published(round(with_it - gain, 2), cell=None)
    return Study(
        name="sfedpo-table-2",
        paper="sfedpo",
        table="Table 2",
        title="SFedPO, Table 2: combined with other methods",
        description=(
            "Each method with uniform sampling and equal weights, and with SFedPO's sampling and "
            "weights. The paper prints the accuracy with SFedPO and the gain; the published number "
            f"without SFedPO is their difference. {ABOUT_ROUNDS} {ABOUT_SEEDS}"
        ),
        rows=tuple(rows),
        columns=_with_best_round(columns),
        seeds=SEEDS,
        reference="fedavg",
        published=_compare_all_rounds(published),
    )


def ablation() -> Study:
    """Each of the two modules without the other."""
    return Study(
        name="sfedpo-ablation",
        title="SFedPO without its sampling (DDS), without its weights (SAW), and without both",
        description=(
            "Without DDS all states are sampled equally, without SAW all updates have the same "
            "weight; without both it is FedAvg. The paper has no such table. "
            f"{ABOUT_ROUNDS} {ABOUT_SEEDS}"
        ),
        rows=(
            Row("sfedpo"),
            Row("without DDS", "sfedpo,memory=uniform-ratio"),
            Row("without SAW", "sfedpo,weights=equal"),
            Row("without both", "fedavg"),
        ),
        columns=_with_best_round(_scenarios(("fashion-mnist", "cifar10-cnn"))),
        seeds=SEEDS,
        reference="sfedpo",
    )


def solvers() -> Study:
    """The closed forms of both modules and the exact solutions of their problems."""
    return Study(
        name="sfedpo-solvers",
        title="SFedPO with closed forms and with exact solutions",
        description=(
            "The paper derives two optimization problems, drops multipliers, and replaces the "
            "remaining constants by four tunables. 'sfedpo' has our values of these tunables, "
            "'mid-range' the middle of the paper's ranges. 'exact DDS' and 'exact SAW' solve the "
            "problems themselves, with a gradient bound of 1. The noise of exact weights is a "
            "constant of the bound that is not known; small noise gives all weight to one client. "
            f"{ABOUT_ROUNDS} {ABOUT_SEEDS}"
        ),
        rows=(
            Row("sfedpo"),
            Row("mid-range", "sfedpo,memory.offset=0.25,weights.slope=1"),
            Row("exact DDS", "sfedpo,memory.exact=true"),
            *(
                Row(
                    f"exact SAW, noise {noise}",
                    f"sfedpo,weights.exact=true,weights.noise={noise}",
                )
                for noise in (0.1, 1.0)
            ),
            Row(
                "exact DDS and SAW, noise 1.0",
                "sfedpo,memory.exact=true,weights.exact=true,weights.noise=1.0",
            ),
            Row("fedavg"),
        ),
        columns=_with_best_round(_scenarios(("fashion-mnist",))),
        seeds=SEEDS,
        reference="sfedpo",
    )


def oracles() -> Study:
    """Worlds in which state probabilities change, and one whose states have the same classes."""
    worlds = ("digits-partial", "digits-periodic", "digits-regimes", "digits-rotated")
    stationary = "sfedpo,memory=dds-stationary"
    return Study(
        name="sfedpo-oracles",
        title="SFedPO with state probabilities that change, and states of the same classes",
        description=(
            "In digits-periodic and digits-regimes the probabilities of the states change over "
            "time; in digits-rotated the states have the same classes and differ in the rotation "
            "of their images. 'sfedpo' knows the probabilities of the long run; 'bayesian' counts "
            "the states seen so far, and with 'forgetting' weights recent ones more. 'stationary "
            "DDS' minimises the exact distance of the memory from the goal and has no tunables. "
            "'recognised states' has both, for states that clients find in the classes of their "
            "data; all other rows but fedavg know the state of each tick. The columns "
            f"'prequential' show the accuracy on arriving samples before training. {ABOUT_SEEDS}"
        ),
        rows=(
            Row("fedavg"),
            Row("sfedpo"),
            Row("bayesian", "sfedpo,forecast=bayesian"),
            Row("bayesian, forgetting", "sfedpo,forecast=bayesian,forecast.forgetting=true"),
            Row("stationary DDS", stationary),
            Row(
                "stationary DDS, bayesian, forgetting",
                f"{stationary},forecast=bayesian,forecast.forgetting=true",
            ),
            Row(
                "recognised states",
                f"{stationary},forecast=growing,forecast.forgetting=true",
            ),
        ),
        columns=tuple(
            Column(world, note=note, metric=metric)
            for world in worlds
            for note, metric in (("", "accuracy"), ("prequential", "prequential_accuracy"))
        ),
        seeds=SEEDS,
        reference="fedavg",
    )


def table_3() -> Study:
    numbers = _parse_rows(printed.TABLE_3)
    noisy = [noise for noise in numbers if float(noise) > 0]
    labels = {noise: f"noise {noise}" for noise in numbers}
    columns = _scenarios(AFFORDABLE)
    return Study(
        name="sfedpo-table-3",
        paper="sfedpo",
        table="Table 3",
        title="SFedPO, Table 3: a noisy oracle",
        description=(
            "Uniform noise with this half-width is added to every predicted state probability, "
            "which is then clipped and renormalised. The row 'bayesian' learns the probabilities "
            "online, which the paper describes but does not measure. "
            f"{ABOUT_SMALL} {ABOUT_ROUNDS} {ABOUT_SEEDS}"
        ),
        rows=(
            Row(labels["0.00"], "sfedpo"),
            *(Row(labels[e], f"sfedpo,forecast=noisy,forecast.noise={e}") for e in noisy),
            Row("bayesian", "sfedpo,forecast=bayesian"),
        ),
        columns=_with_best_round(columns),
        seeds=SEEDS,
        reference=labels["0.00"],
        published=_compare_all_rounds(
            _compare_small_cnn(
                _published_cells({labels[e]: row for e, row in numbers.items()}, columns)
            )
        ),
    )


def table_5() -> Study:
    columns = tuple(
        replace(column, overrides=(f"world.num_clients={number}",), note=f"N={number}")
        for column in _scenarios(AFFORDABLE)
        for number in (10, 50, 100)
    )
    return Study(
        name="sfedpo-table-5",
        paper="sfedpo",
        table="Table 5",
        title="SFedPO, Table 5: the number of clients",
        description=f"10, 50 and 100 clients instead of 30. {ABOUT_SMALL} {ABOUT_SEEDS}",
        rows=_baseline_rows(),
        columns=columns,
        seeds=SEEDS,
        reference="sfedpo",
        published=_compare_small_cnn(_published_cells(_parse_rows(printed.TABLE_5), columns)),
    )


def table_6() -> Study:
    """The small CNN comes first: it is affordable on a CPU."""
    nets = ("resnet10", "resnet18", "resnet34")
    printed_order = [
        column
        for access in ACCESS
        for column in (
            Column(f"cifar10-cnn-{access}"),
            *(Column(f"cifar10-{access}", (f"net={net}",), net) for net in nets),
        )
    ]
    return Study(
        name="sfedpo-table-6",
        paper="sfedpo",
        table="Table 6",
        title="SFedPO, Table 6: other nets",
        description=(
            f"A small CNN and three residual nets on CIFAR-10. {ABOUT_ROUNDS} {ABOUT_SEEDS}"
        ),
        rows=_baseline_rows(),
        columns=_with_best_round(
            sorted(printed_order, key=lambda column: "-cnn-" not in column.scenario)
        ),
        seeds=SEEDS,
        reference="sfedpo",
        published=_compare_all_rounds(
            _published_cells(_parse_rows(printed.TABLE_6), printed_order)
        ),
    )


def table_7() -> Study:
    columns = _scenarios(AFFORDABLE)
    return Study(
        name="sfedpo-table-7",
        paper="sfedpo",
        table="Table 7",
        title="SFedPO, Table 7: measures of the distance of a state from balanced classes",
        description=(
            "The proxy for d_m in both modules. The paper prints single numbers here; those of "
            "Flash and DRSR differ from its Table 1. "
            f"{ABOUT_SMALL} {ABOUT_ROUNDS} {ABOUT_SEEDS}"
        ),
        rows=(
            Row("kl", "sfedpo"),
            *(Row(proxy, f"sfedpo,forecast.proxy={proxy}") for proxy in ("l1", "l2", "js")),
            _row("flash"),
            Row("drsr"),
        ),
        columns=_with_best_round(columns),
        seeds=SEEDS,
        reference="kl",
        published=_compare_all_rounds(
            _compare_small_cnn(_published_cells(_parse_rows(printed.TABLE_7), columns))
        ),
    )


def table_8() -> Study:
    means, columns, published = ("0.2", "0.4", "0.6", "0.8"), [], {}
    numbers = _parse_rows(printed.TABLE_8)
    order = [(column, mean) for column in _scenarios(AFFORDABLE) for mean in means]
    for index, (scenario, mean) in enumerate(order):
        for spread, entries in numbers.items():
            sets = (f"world.availability={mean}", f"world.availability_spread={spread}")
            column = replace(scenario, overrides=sets, note=f"μ={mean} σ={spread}")
            columns.append(column)
            if index < len(entries):
                with_it, gain = _parse_gain(entries[index])
                published["sfedpo", column.label] = Published(with_it)
                published["uniform", column.label] = Published(round(with_it - gain, 2), cell=None)
    return Study(
        name="sfedpo-table-8",
        paper="sfedpo",
        table="Table 8",
        title="SFedPO, Table 8: availability of the clients",
        description=(
            "The probability that a client is present is drawn from N(μ, σ²) for each client. "
            "'uniform' samples all states equally and has equal weights; the paper prints SFedPO "
            f"and its gain over that. {ABOUT_SMALL} {ABOUT_SEEDS}"
        ),
        rows=(Row("uniform", "fedavg"), Row("sfedpo")),
        columns=tuple(columns),
        seeds=SEEDS,
        reference="uniform",
        published=_compare_small_cnn(published),
    )


def figure_2() -> Study:
    """The four sweeps of Figure 2.

    The default world has 5 ticks, 100 rounds, 500 samples and 0.5. Clients do not know the number
    of rounds, so that a run of 200 rounds shows all four numbers of rounds.
    """
    usual = ("sfedpo", *BASELINES)
    world = "cifar10-partial"
    columns = (
        *(Column(world, (f"ticks={ticks}",), f"T={ticks}", usual) for ticks in (2, 5, 8, 10)),
        *(
            Column(world, ("rounds=200",), f"R={rounds}", usual, until=rounds)
            for rounds in (50, 100, 150, 200)
        ),
        *(
            Column(world, (f"capacity={samples}",), f"D={samples}", usual)
            for samples in (250, 500, 750, 1000)
        ),
        *(
            Column(world, (f"memory.budget={budget}",), f"α={budget}", ("sfedpo", "without DDS"))
            for budget in (0.2, 0.3, 0.4, 0.5, 0.6)
        ),
    )
    return Study(
        name="sfedpo-figure-2",
        paper="sfedpo",
        table="Figure 2",
        title="SFedPO, Figure 2: ticks, rounds, memory and budget",
        description=(
            "Sweeps of the ticks per round T, the rounds R and the memory D (compared with four "
            "baselines) and of the budget α (compared with uniform sampling), in the partial "
            "world. The paper has curves without numbers; its Figures 8 to 10 are the same on "
            f"other data (--data). {ABOUT_SEEDS}"
        ),
        rows=(*_baseline_rows(), Row("without DDS", "sfedpo,memory=uniform-ratio")),
        columns=columns,
        seeds=SEEDS,
        reference="sfedpo",
    )


def figure_3() -> Study:
    """One parameter at a time; the others have the recipe's defaults."""
    dds = [
        *((f"a1={value}", f"memory.slope={value}") for value in (0.05, 0.1, 0.15, 0.2, 0.25)),
        *((f"b1={value}", f"memory.offset={value}") for value in (0.15, 0.2, 0.25, 0.3, 0.35)),
    ]
    saw = [
        *((f"a2={value}", f"weights.slope={value}") for value in (0.5, 1.0, 1.5, 2.0)),
        *((f"b2={value}", f"weights.offset={value}") for value in (0.0, 0.25, 0.5, 0.75, 1.0)),
    ]
    return Study(
        name="sfedpo-figure-3",
        paper="sfedpo",
        table="Figure 3",
        title="SFedPO, Figure 3: the four tunables",
        description=(
            "a1 and b1 of the sampling (DDS) are compared with uniform sampling, a2 and b2 of the "
            "weights (SAW) with equal weights, over the paper's ranges. The paper has curves "
            f"without numbers. {ABOUT_ROUNDS} {ABOUT_SEEDS}"
        ),
        rows=(
            Row("without DDS", "sfedpo,memory=uniform-ratio"),
            *(Row(label, f"sfedpo,{change}") for label, change in dds),
            Row("without SAW", "sfedpo,weights=equal", against="without SAW"),
            *(Row(label, f"sfedpo,{change}", against="without SAW") for label, change in saw),
        ),
        columns=_with_best_round(_scenarios(DATA)),
        seeds=SEEDS,
        reference="without DDS",
    )


def studies() -> list[Study]:
    """All studies, those of the paper in its order."""
    return [
        table_1(),
        baselines(),
        table_2(),
        ablation(),
        solvers(),
        oracles(),
        table_3(),
        table_5(),
        table_6(),
        table_7(),
        table_8(),
        figure_2(),
        figure_3(),
    ]


def _scenarios(data: Sequence[str]) -> tuple[Column, ...]:
    columns = (Column(f"{name}-{access}") for name in data for access in ACCESS)
    return tuple(
        replace(column, is_reduced=column.scenario.startswith(SMALL_CNN)) for column in columns
    )


def _with_best_round(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Add to each column one with the best round, and one with the mean of the last evaluations."""
    return tuple(
        column if metric is None else replace(column, note=note, metric=metric)
        for column in columns
        for note, metric in (
            (column.note, None),
            (f"{column.note} best".strip(), "best_accuracy"),
            (f"{column.note} last ten".strip(), "last_ten_accuracy"),
        )
    )


def _compare_all_rounds(
    published: dict[tuple[str, str], Published],
) -> dict[tuple[str, str], Published]:
    """Compare the columns of `_with_best_round` with the same numbers.

    >>> for (_, column), number in _compare_all_rounds({("a", "x"): Published(80.0)}).items():
    ...     print(column, number.mean, number.cell)
    x 80.0 a on x
    x best 80.0 a on x
    x last ten 80.0 a on x
    """
    found: dict[tuple[str, str], Published] = {}
    for (row, column), number in published.items():
        cell = None if number.cell is None else number.cell or f"{row} on {column}"
        named = number._replace(cell=cell)
        found |= {(row, f"{column}{note}"): named for note in ("", " best", " last ten")}
    return found


def _row(label: str) -> Row:
    """A baseline as the paper describes it."""
    return Row(label, READINGS.get(label, ""))


def _baseline_rows() -> tuple[Row, ...]:
    return tuple(_row(label) for label in ("sfedpo", *BASELINES))


def _parse_rows(table: str) -> dict[str, list[str]]:
    rows = [line.split() for line in table.strip().splitlines()]
    return {label: entries for label, *entries in rows}


def _published_cells(
    numbers: dict[str, list[str]], columns: Sequence[Column]
) -> dict[tuple[str, str], Published]:
    """The numbers of the first columns; further columns have none."""
    return {
        (row, column.label): _parse_published(entry)
        for row, entries in numbers.items()
        for column, entry in zip(columns[: len(entries)], entries, strict=True)
    }


def _compare_small_cnn(
    published: dict[tuple[str, str], Published],
) -> dict[tuple[str, str], Published]:
    """Add the numbers of AlexNet to the columns of the small CNN, as the same cells."""
    found = dict(published)
    for (row, label), number in published.items():
        cell = None if number.cell is None else f"{row} on {label}"
        found[row, label.replace(CIFAR10, SMALL_CNN, 1)] = number._replace(cell=cell)
    return found


def _parse_published(entry: str) -> Published:
    """Parse ``"85.04±0.46"``, or ``"67.56"`` if the paper gives no spread."""
    mean, _, spread = entry.partition("±")
    return Published(float(mean), float(spread) if spread else None)


def _parse_gain(entry: str) -> tuple[float, float]:
    """Parse ``"87.55(+0.29)"`` -> (87.55, 0.29)."""
    mean, _, gain = entry.rstrip(")").partition("(")
    return float(mean), float(gain)
