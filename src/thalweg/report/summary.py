"""Summaries of a comparison: mean and spread over seeds, and paired differences between recipes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import NamedTuple

from thalweg.core.errors import require
from thalweg.core.metrics import METRICS, Metric, choose_headline, get_metric, is_redundant
from thalweg.core.published import Published
from thalweg.report.cells import Cell, group_by_recipe, is_same_run, scores

MIN_SEEDS_FOR_TEST = 3  # shared seeds; with two, the t-test has one degree of freedom
FAR_SPREADS = 2  # of the paper's spreads, beyond which a mean of ours is marked
ZERO_SPREAD = 1e-9  # differences that vary by less vary by rounding only


class Spread(NamedTuple):
    """Mean and sample standard deviation over seeds."""

    mean: float
    std: float | None  # None: a single seed has no spread
    num_seeds: int


class PairedDifference(NamedTuple):
    """Difference between a recipe and another one, usually the first, seed by seed."""

    mean: float  # this recipe minus the other, as a share of one
    std: float | None  # of the differences; None with a single shared seed
    p_value: float | None  # two-sided paired t-test; None: too few seeds, or equal differences
    num_seeds: int  # seeds that both recipes finished
    num_tests: int = 1  # for which the p-value is corrected (Holm)


@dataclass(frozen=True)
class Summary:
    """One recipe over its seeds.

    Accuracies are shares of one; only published numbers are in per cent, as papers print them. Only
    finished runs enter the numbers; the others are listed in `unfinished_cells`.
    """

    recipe: str
    scenario: str
    num_done: int
    num_requested: int
    unfinished_cells: tuple[Cell, ...]
    spreads: Mapping[str, Spread | None]
    """Every metric of the tables, by name; None: never measured."""
    main_metric: str = "accuracy"
    """What `main` and `difference` are about; the same for all recipes."""
    difference: PairedDifference | None = None  # None: no other recipe, or no shared seed
    published: float | None = None  # the paper's accuracy, in per cent
    published_spread: float | None = None
    against: str | None = None  # the recipe that `difference` refers to
    published_difference: float | None = None  # to the same recipe, in percentage points
    accuracy_metric: str = "accuracy"
    """The metric that a study shows in place of the accuracy, such as ``forgetting``."""
    own_metrics: Mapping[str, Metric] = field(default_factory=dict)  # of the user, by name
    identical_to: str | None = None  # an earlier recipe with the same metrics in every round
    identical_reason: str = ""  # why, as far as it is known
    is_deterministic: bool = False  # one run stands for all seeds
    index: int = 0  # of the recipe in the comparison; determines its colour
    repeats_rows: bool = False  # a sample can arrive more than once
    simple_scores: Mapping[str, float] = field(default_factory=dict)
    """The main metric of predictions without features, averaged over the runs that know it."""

    @property
    def accuracy(self) -> Spread | None:
        return self.spreads.get("accuracy")

    @property
    def main(self) -> Spread | None:
        """The number by which recipes are ranked."""
        return self.spreads.get(self.main_metric)

    @property
    def headline(self) -> Metric:
        """The declaration of the metric by which recipes are ranked."""
        return self.own_metrics.get(self.main_metric) or get_metric(self.main_metric)

    @property
    def shown_metric(self) -> Metric:
        """The metric of `main`; of a study, the one that it shows in place of the accuracy."""
        is_replaced = self.main_metric == "accuracy"
        return get_metric(self.accuracy_metric) if is_replaced else self.headline

    @property
    def is_lower_better(self) -> bool:
        """Whether the best recipe has the lowest value."""
        return self.shown_metric.better == "lower"

    @property
    def means(self) -> dict[str, float | None]:
        return {name: spread and spread.mean for name, spread in self.spreads.items()}

    @property
    def needs_balanced(self) -> bool:
        """Whether the balanced accuracy differs noticeably from the accuracy."""
        metric = METRICS["balanced_accuracy"]
        is_known = self.spreads.get(metric.name) is not None and self.accuracy is not None
        return is_known and not is_redundant(metric, [self.means])

    @property
    def points_from_published(self) -> float | None:
        """Our mean accuracy minus the paper's, in percentage points."""
        if self.accuracy is None or self.published is None:
            return None
        return 100 * self.accuracy.mean - self.published

    @property
    def is_far_from_published(self) -> bool:
        """Whether our mean is more than two of the paper's spreads away from the paper's mean."""
        gap, spread = self.points_from_published, self.published_spread
        return gap is not None and spread is not None and abs(gap) > FAR_SPREADS * spread


def summarise(
    cells: Sequence[Cell],
    published: Mapping[str, float | Published] | None = None,
    against: Mapping[str, str | None] | None = None,
) -> list[Summary]:
    """Summarise a comparison, recipe by recipe in the order given.

    Recipes are compared by the metric of `choose_headline`: on data that arrive in the order of
    their times the prequential accuracy, otherwise the final test accuracy; in a regression the
    mean absolute error. The p-values of several recipes are corrected (`correct_p_values`).
    `published` holds accuracies in per cent, as papers print them; names of other recipes are
    ignored. `against` maps a recipe to the recipe that it is paired with; by default, all are
    paired with the first.

    >>> def cell(recipe, seed, accuracy):
    ...     rows = [{"round": 1, "accuracy": accuracy}]
    ...     return Cell(recipe, "digits-full", seed, "done", "", rows, "thalweg run", 1.0)
    >>> first, second = summarise(
    ...     [cell("sfedpo", 0, 0.75), cell("sfedpo", 1, 0.5), cell("fedavg", 0, 0.5)],
    ...     published={"sfedpo": 60.0})
    >>> first.accuracy.mean, first.points_from_published, second.difference.mean
    (0.625, 2.5, -0.25)
    """
    groups = group_by_recipe(cells)
    printed = _check_published(published or {})
    measured = {
        recipe: {cell.seed: scores(cell) for cell in group if cell.is_done}
        for recipe, group in groups.items()
    }
    identical = find_identical(groups)
    main_metric = choose_headline(
        {
            name
            for seeds in measured.values()
            for found in seeds.values()
            for name, value in found.items()
            if value is not None
        },
        is_time_ordered=any(cell.is_time_ordered for cell in cells),
        requested=cells[0].headline,
    )
    simple_scores = _average_simple_scores(cells, main_metric)
    main_scores = {
        recipe: _main_scores(seeds, main_metric, groups, recipe)
        for recipe, seeds in measured.items()
    }
    first = next(iter(groups))
    other = {recipe: first for recipe in groups if recipe != first} if against is None else against
    summaries = [
        Summary(
            recipe=recipe,
            scenario=group[0].scenario,
            num_done=len(measured[recipe]),
            num_requested=len(group),
            unfinished_cells=tuple(cell for cell in group if not cell.is_done),
            spreads={
                metric.name: spread(s[metric.name] for s in measured[recipe].values())
                for metric in cells[0].table_metrics
            },
            main_metric=main_metric,
            difference=paired_difference(
                main_scores[recipe], main_scores.get(other.get(recipe) or "", {})
            ),
            published=printed[recipe].mean if recipe in printed else None,
            published_spread=printed[recipe].spread if recipe in printed else None,
            against=other.get(recipe),
            published_difference=_published_difference(printed, recipe, other.get(recipe)),
            own_metrics=cells[0].own_metrics,
            identical_to=identical.get(recipe),
            identical_reason=_explain_identical(groups, recipe, identical.get(recipe)),
            is_deterministic=group[0].is_deterministic,
            index=index,
            repeats_rows=cells[0].repeats_rows,
            simple_scores=simple_scores,
        )
        for index, (recipe, group) in enumerate(groups.items())
    ]
    corrected = correct_differences([s.difference for s in summaries])
    return [replace(s, difference=d) for s, d in zip(summaries, corrected, strict=True)]


def rank(summaries: Sequence[Summary]) -> list[Summary]:
    """Return the recipes from the best to the worst; those without a result come last.

    >>> def of(recipe, mean):
    ...     return Summary(recipe, "toy", 1, 1, (), {"mae": mean and Spread(mean, None, 1)}, "mae")
    >>> [s.recipe for s in rank([of("a", 2.0), of("b", None), of("c", 1.0)])]
    ['c', 'a', 'b']
    """

    def distance(summary: Summary) -> float:
        if summary.main is None:
            return math.inf
        return summary.main.mean if summary.is_lower_better else -summary.main.mean

    return sorted(summaries, key=distance)


def _average_simple_scores(cells: Sequence[Cell], metric: str) -> dict[str, float]:
    names = dict.fromkeys(name for cell in cells for name in cell.simple_scores)
    values = {
        name: [
            cell.simple_scores[name][metric]
            for cell in cells
            if metric in cell.simple_scores.get(name, {})
        ]
        for name in names
    }
    return {name: fmean(found) for name, found in values.items() if found}


def find_identical(groups: Mapping[str, Sequence[Cell]]) -> dict[str, str]:
    """Map a recipe to the first earlier one with the same metrics in every round of every seed."""
    found: dict[str, str] = {}
    done = {recipe: {c.seed: c for c in group if c.is_done} for recipe, group in groups.items()}
    for recipe, cells in done.items():
        for earlier in done:
            if earlier == recipe:
                break
            others = done[earlier]
            is_same = cells.keys() == others.keys() and all(
                is_same_run(cell, others[seed]) for seed, cell in cells.items()
            )
            if cells and is_same:
                found[recipe] = earlier
                break
    return found


def _explain_identical(groups: Mapping[str, Sequence[Cell]], recipe: str, other: str | None) -> str:
    """Return the parts without effect that only one of two identical recipes has."""
    if other is None:
        return ""
    inert = [dict(next(c for c in groups[name] if c.is_done).no_effect) for name in (recipe, other)]
    reasons = dict(set(inert[0].items()) ^ set(inert[1].items())).values()
    learned = [
        row["forecast_states"]
        for name in (recipe, other)
        for cell in groups[name]
        for row in cell.rows
        if "forecast_states" in row
    ]
    learned_one = ["one latent state"] if learned and max(learned) <= 1 else []
    return ", ".join(sorted({*reasons, *learned_one}))


def correct_differences(
    differences: Sequence[PairedDifference | None],
) -> list[PairedDifference | None]:
    """Return the differences of one comparison with p-values corrected for their number."""
    tested = [d.p_value for d in differences if d is not None and d.p_value is not None]
    corrected = iter(correct_p_values(tested))
    return [
        d
        if d is None or d.p_value is None
        else d._replace(p_value=next(corrected), num_tests=len(tested))
        for d in differences
    ]


def correct_p_values(p_values: Sequence[float]) -> list[float]:
    r"""Correct the p-values of m tests for their number by the method of Holm.

    .. math::  \tilde p_{(k)} = \max_{j \le k}\, \min(1, (m - j + 1)\, p_{(j)})

    The probability of at least one false rejection then stays below the level. Holm, "A simple
    sequentially rejective multiple test procedure", 1979.

    The smallest of 0.01, 0.04 and 0.03 is multiplied by 3 and the next by 2, to 0.06. The largest
    would stay 0.04, but it cannot be below an earlier one.

    >>> [round(p, 4) for p in correct_p_values([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def spread(values: Iterable[float | None]) -> Spread | None:
    """Mean and sample standard deviation (denominator n - 1) of the values that are not None.

    >>> spread([0.25, 0.75, None])
    Spread(mean=0.5, std=0.3535..., num_seeds=2)
    >>> spread([None]) is None
    True
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(fmean(known), stdev(known) if len(known) > 1 else None, len(known))


def bound_95(spread: Spread | None) -> Spread | None:
    r"""The mean and half its 95 % confidence interval, :math:`t_{n-1}\,s/\sqrt n`.

    Three seeds: t = 4.3027, so that a deviation of 1 becomes 2.4841.

    >>> bound_95(Spread(0.5, 1.0, 3))
    Spread(mean=0.5, std=2.484..., num_seeds=3)
    """
    if spread is None or spread.std is None:
        return spread
    from scipy.special import stdtrit

    t = float(stdtrit(spread.num_seeds - 1, 0.975))
    return spread._replace(std=t * spread.std / math.sqrt(spread.num_seeds))


def paired_difference(
    these: Mapping[int, float], those: Mapping[int, float]
) -> PairedDifference | None:
    r"""Compare two recipes on their shared seeds; each maps a seed to a value.

    .. math::  t = \frac{\bar d}{s_d / \sqrt{n}}, \qquad p = 2\,P(T_{n-1} > |t|)

    With the same seed, all recipes meet the same arrivals at the same clients. The differences
    :math:`d` therefore vary less than the accuracies, and a paired test is more sensitive than an
    unpaired one. There is no p-value with fewer than three shared seeds, nor if all differences are
    equal (:math:`s_d = 0`: t is undefined). `summarise` corrects it for the number of recipes.

    Differences 1, 2 and 3: t = 2 / (1 / sqrt 3) = 3.4641, and p = 1 - sqrt(6/7) = 0.0742.

    >>> paired_difference({0: 1.0, 1: 2.0, 2: 3.0, 3: 9.9}, {0: 0.0, 1: 0.0, 2: 0.0})
    PairedDifference(mean=2.0, std=1.0, p_value=0.0741..., num_seeds=3, num_tests=1)
    """
    shared = [seed for seed in these if seed in those]
    difference = spread(these[seed] - those[seed] for seed in shared)
    if difference is None:
        return None
    mean, std, num_seeds = difference
    if std is None or num_seeds < MIN_SEEDS_FOR_TEST or std < ZERO_SPREAD:
        return PairedDifference(mean, std, None, num_seeds)
    from scipy.special import stdtr  # Student's t; scipy.stats would take a second to import

    t = mean / (std / math.sqrt(num_seeds))
    return PairedDifference(mean, std, float(2 * stdtr(num_seeds - 1, -abs(t))), num_seeds)


def _check_published(published: Mapping[str, float | Published]) -> dict[str, Published]:
    printed = {}
    for recipe, entry in published.items():
        number = entry if isinstance(entry, Published) else Published(entry)
        require(
            1 < number.mean <= 100,
            f"published accuracies are in per cent, such as 86.77; got {number.mean} for "
            f"{recipe!r}.",
        )
        printed[recipe] = number
    return printed


def _published_difference(
    printed: Mapping[str, Published], recipe: str, other: str | None
) -> float | None:
    if other is None or recipe not in printed or other not in printed:
        return None
    return printed[recipe].mean - printed[other].mean


def _main_scores(
    seeds: Mapping[int, Mapping[str, float | None]],
    main_metric: str,
    groups: Mapping[str, Sequence[Cell]],
    recipe: str,
) -> dict[int, float]:
    """Return the main metric by seed; of a deterministic baseline, the same for every seed."""
    values = {seed: s[main_metric] for seed, s in seeds.items()}
    if values and groups[recipe][0].is_deterministic:
        (value,) = values.values()
        values = {cell.seed: value for group in groups.values() for cell in group}
    return {seed: value for seed, value in values.items() if value is not None}
