"""Real streams with drift: recipes, a fixed model, and online learners; and a regression."""

from __future__ import annotations

from thalweg.scenarios.studies.base import Column, Row, Study

SEEDS = (0, 1, 2)
RECIPES = (
    Row("static"),
    Row("fedavg"),
    Row("fedavg, newest kept", "fedavg,memory=fifo"),
    Row("fedogd"),
    Row("fedprox"),
    Row("adaptive-fedavg"),
    Row("flash"),
    Row("feddrift"),
    Row("drsr"),
    Row("sfedpo"),
)
LEARNERS = {"logistic": "river-logistic", "tree": "river-tree", "forest": "river-forest"}
# Labels at the end of the round, as in a federation.
PER_ROUND = (
    Row("majority", "majority,pooled=true", once=True),
    *(Row(f"{name}, own", river, once=name != "forest") for name, river in LEARNERS.items()),
    *(
        Row(f"{name}, pooled", f"{river},pooled=true", once=name != "forest")
        for name, river in LEARNERS.items()
    ),
)
# Labels after every sample, as usual for online learners.
PER_SAMPLE = (
    Row("no change, own, at once", "no-change,feedback=sample", once=True),
    *(
        Row(
            f"{name}, pooled, at once",
            f"{river},pooled=true,feedback=sample",
            once=name != "forest",
        )
        for name, river in LEARNERS.items()
    ),
)
ROWS = (*RECIPES, *PER_ROUND, *PER_SAMPLE)
INTERLEAVED = {
    "elec2": ("data.clients=interleaved", "world.every=1", "rounds=944", "capacity=48"),
    "weather": ("data.clients=interleaved", "world.every=30", "rounds=606", "capacity=30"),
}


def _columns() -> tuple[Column, ...]:
    """Every stream with both nets; elec2 and weather also with interleaved clients."""
    of_recipes = tuple(row.label for row in RECIPES)
    # A forest takes several hours on flights.
    without_forests = tuple(row.label for row in ROWS if "forest" not in row.label)
    columns = []
    for scenario in ("elec2", "weather", "flights"):
        columns.append(Column(scenario, rows=without_forests if scenario == "flights" else ()))
        columns.append(Column(scenario, ("net=mlp",), "mlp", rows=of_recipes))
        if scenario in INTERLEAVED:
            columns.append(Column(scenario, INTERLEAVED[scenario], "interleaved"))
    return tuple(columns)


CHOICE_DAYS, ALL_DAYS = 60, 120  # of flights-minutes; learning rates are chosen in the first days
RATES = {
    "fedavg": (0.03, 0.1, 0.3, 1.0),
    "feddrift": (0.01, 0.03, 0.1, 0.3),
}
CHOSEN_RATES = {"fedavg": 0.3, "feddrift": 0.1}  # the best rows of flights-minutes-rates


def flights_minutes_rates() -> Study:
    """Learning rates of the recipes in flights-minutes-table."""
    return Study(
        name="flights-minutes-rates",
        title="Delay of flights in minutes: the choice of the learning rates",
        description=(
            f"The first {CHOICE_DAYS} days of 2013, which flights-minutes-table does not report, "
            "with a seed that it does not use. Mean absolute error in minutes; lower is better."
        ),
        rows=tuple(
            Row(f"{recipe} lr={rate}", f"{recipe},local.lr={rate}")
            for recipe, rates in RATES.items()
            for rate in rates
        ),
        columns=(
            Column("flights-minutes", (f"rounds={CHOICE_DAYS}",), f"days 1 to {CHOICE_DAYS}"),
        ),
        seeds=(100,),
        reference=f"fedavg lr={CHOSEN_RATES['fedavg']}",
        metric="prequential_mae",
    )


def flights_minutes() -> Study:
    """Recipes and online regressors on days that were not used to choose learning rates."""
    learners = ("no-change", "running-mean", "river-linear", "river-tree-regressor")
    return Study(
        name="flights-minutes-table",
        title="Delay of flights in minutes: recipes and online regressors",
        description=(
            "Each flight is predicted on its day, before any client trains on it: mean absolute "
            f"error in minutes, days {CHOICE_DAYS + 1} to {ALL_DAYS} of 2013; the runs start on "
            "day 1. The learning rates of the recipes were chosen on the days before "
            "(flights-minutes-rates). The other rows are online learners, one per carrier, with "
            "their default settings; they do not depend on the seed and are run once."
        ),
        rows=(
            *(Row(name, f"{name},local.lr={rate}") for name, rate in CHOSEN_RATES.items()),
            *(Row(name, once=True) for name in learners),
        ),
        columns=(
            Column(
                "flights-minutes",
                (f"rounds={ALL_DAYS}",),
                f"days {CHOICE_DAYS + 1} to {ALL_DAYS}",
                after=CHOICE_DAYS,
            ),
        ),
        seeds=SEEDS,
        reference="fedavg",
        metric="prequential_mae",
    )


def studies() -> list[Study]:
    return [
        flights_minutes(),
        flights_minutes_rates(),
        Study(
            name="drifting-streams-table",
            title="Real streams that drift: recipes, a static model and online learners",
            description=(
                "Each sample is predicted when it arrives, before any client trains on it. The "
                "first rows are recipes; 'static' trains in the first quarter of the run only. The "
                "other rows are online learners without a federation on the same arrivals: one per "
                "client ('own') or one for the samples of all clients ('pooled'). Learners 'at "
                "once' receive the label after every sample instead of every round, which no "
                "recipe does; compare them only with one another. The other learners have the same "
                "information as a recipe. Forests are left out on flights, where each takes hours."
            ),
            rows=ROWS,
            columns=_columns(),
            seeds=SEEDS,
            reference="fedavg",
            metric="prequential_accuracy",
        ),
    ]
