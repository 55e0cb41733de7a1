"""Real streams with drift: recipes, a fixed model, and online learners in one table."""

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
    Row("majority", "majority,pooled=true"),
    *(Row(f"{name}, own", river) for name, river in LEARNERS.items()),
    *(Row(f"{name}, pooled", f"{river},pooled=true") for name, river in LEARNERS.items()),
)
# Labels after every sample, as usual for online learners.
PER_SAMPLE = (
    Row("no change, own, at once", "no-change,feedback=sample"),
    *(
        Row(f"{name}, pooled, at once", f"{river},pooled=true,feedback=sample")
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


def studies() -> list[Study]:
    return [
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
        )
    ]
