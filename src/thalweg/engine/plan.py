"""Plans: everything that determines the results of a run.

A `Plan` has a recipe, a `BaselinePlan` a baseline. The functions with "any" in their names accept
or return both kinds.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

import tomli_w

from thalweg.baselines import BASELINES, Baseline
from thalweg.core.config import from_dict, parse_overrides, to_dict, with_settings
from thalweg.core.errors import ConfigError, UnknownName, require
from thalweg.core.registry import Registry
from thalweg.core.remedies import format_setting
from thalweg.core.toml import parse_toml
from thalweg.data import DataSource
from thalweg.engine.code_files import check_code_files
from thalweg.local import LocalTraining
from thalweg.nets import NETS, make_model_spec
from thalweg.nets.module import add_file_digest
from thalweg.recipes import RECIPES, Recipe, get_recipe
from thalweg.recipes.adaptive import adapt_to_regression
from thalweg.recipes.base import needs_sessions
from thalweg.recipes.compatibility import check_optimizer, is_federated
from thalweg.scenarios import Scenario, ScenarioLike, find_scenario, resolve_sizes

EngineName = Literal["fast", "torch", "reference"]
ENGINES = get_args(EngineName)
Method = TypeVar("Method", bound=Recipe | Baseline)
# Settings of a scenario that baselines do not use, as messages show them.
UNUSED_BY_BASELINES = {
    "net": "net (--model)",
    "loss": "loss (--loss)",
    "local": "local (--optimizer)",
    "optimizer": "optimizer (--optimizer)",
    "metrics": "metrics (--metric)",
    "augment": "augment",
    "start_from": "start_from",
    "faults": "faults",
    "evaluate_every": "evaluate_every",
    "evaluate_first": "evaluate_first",
    "tasks": "tasks",
}

MAX_PLAN_BYTES = 1_000_000  # of the text of a plan


AUTO_PREQUENTIAL = 32  # arriving samples that auto predicts per tick if the scenario has none


@dataclass(frozen=True, repr=False)
class Plan:
    """A recipe on a scenario, with a seed and an engine."""

    recipe: Recipe
    scenario: Scenario
    seed: int = dataclasses.field(default=0, metadata={"any_number": True})
    engine: EngineName = "fast"

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**63, f"seed must lie in [0, 2^63), got {self.seed}.")
        _check_rounds(self.scenario)
        alarm = self.recipe.alarm
        if alarm is not None and alarm.watch != "loss" and self.scenario.prequential == 0:
            other = format_setting("alarm.watch", "loss")
            if alarm.watch == "counts":  # is not a setting
                other = f"with {format_setting('alarm', 'page-hinkley')} and {other}"
            raise ConfigError(
                f"alarm={type(alarm).__name__} needs predictions of arriving samples "
                f"(it watches {alarm.watch}), but {self.scenario.name} makes none (prequential=0); "
                f"predict some ({format_setting('prequential', 32)}), or use the loss ({other})."
            )
        require(
            self.recipe.serving is None or self.scenario.prequential > 0,
            f"serving={type(self.recipe.serving).__name__} learns from predictions of arriving "
            f"samples, but {self.scenario.name} makes none (prequential=0); predict some "
            f"({format_setting('prequential', 32)}), or use {format_setting('serving', None)}.",
        )
        check_optimizer(self.recipe, self.local)
        self._check_decay()
        self._check_sessions()

    def _check_sessions(self) -> None:
        """Reject a session start without effect, because no session can start."""
        recipe = self.recipe
        require(
            self.scenario.sessions is not None
            or recipe.session_trigger is not None
            or not needs_sessions(recipe)
            or not is_federated(recipe),  # rejected with its own reason
            f"session_start={type(recipe.session_start).__name__} needs sessions, but "
            f"{self.scenario.name} has none (sessions=none), so that it would have no effect. Open "
            "sessions when the present clients change "
            f"({format_setting('session_trigger', 'presence')}), choose a schedule "
            f"({format_setting('sessions', 'alternating')}), or do without "
            f"({format_setting('session_start', 'previous')}).",
        )

    def _check_decay(self) -> None:
        """Reject a schedule whose learning rate is 0 before the run ends."""
        last = self.scenario.rounds - 1
        require(
            self.scenario.sessions is not None or self.local.lr_scale(last) > 0,
            f"local.decay={self.local.decay} makes the learning rate 0 before the last of "
            f"{self.scenario.rounds} rounds, so that clients would train without effect. Set "
            "local.decay.rounds to the number of rounds, or local.decay.floor above 0.",
        )

    @property
    def local(self) -> LocalTraining:
        """Local training: that of the recipe if it has one, else that of the scenario."""
        return self.recipe.local or self.scenario.local

    @property
    def title(self) -> str:
        return f"{self.recipe.name} on {self.scenario.name}, seed {self.seed}"

    def __repr__(self) -> str:
        return f"<Plan: {self.title}; {_describe_run(self.scenario)}; engine {self.engine}>"


@dataclass(frozen=True, repr=False)
class BaselinePlan:
    """A baseline on a scenario, with a seed."""

    baseline: Baseline
    scenario: Scenario
    seed: int = 0

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**63, f"seed must lie in [0, 2^63), got {self.seed}.")
        _check_rounds(self.scenario)
        require(
            self.scenario.prequential > 0,
            f"a baseline needs predictions of arriving samples, but {self.scenario.name} makes "
            f"none (prequential=0); predict some ({format_setting('prequential', 32)}).",
        )

    @property
    def title(self) -> str:
        return f"{self.baseline.name} on {self.scenario.name}, seed {self.seed}"

    def __repr__(self) -> str:
        return f"<BaselinePlan: {self.title}; {_describe_run(self.scenario)}>"


AnyPlan = Plan | BaselinePlan


def _describe_run(scenario: Scenario) -> str:
    """Return the task, as far as it is known without reading data, and the number of rounds."""
    return f"{_find_task(scenario.data) or 'task from the data'}, {scenario.rounds} rounds"


def _find_task(source: DataSource) -> str | None:
    """Return the task, or none if it follows from the data, which are not read."""
    if getattr(source, "target", "") == "minutes":  # of the flights
        return "regression"
    return getattr(getattr(source, "dataset", None) or source, "task", "classification")


def _check_rounds(scenario: Scenario) -> None:
    require(
        scenario.rounds > 0,
        f"{scenario.name}: a plan needs a number of rounds, got rounds=0. Use make_plan, which "
        "counts the rounds until all rows have arrived, or set the number.",
    )


def get_method(plan: AnyPlan) -> Recipe | Baseline:
    """Return the recipe or the baseline of a plan."""
    return plan.baseline if isinstance(plan, BaselinePlan) else plan.recipe


def make_plan(
    recipe: Recipe | str,
    scenario: ScenarioLike,
    *,
    seed: int = 0,
    rounds: int | None = None,
    engine: str = "auto",
    overrides: Iterable[str] = (),
    model: Any = None,
    data_dir: Path | None = None,
    **settings: Any,
) -> Plan:
    """Look up names, apply ``part.field=value`` overrides and keyword settings, and check the plan.

    A setting is a field of the recipe or the scenario. Its value is an instance, a class, a name,
    or a mapping of the fields to change. `model` is any ``torch.nn.Module``, a class or function
    that makes one, or its path (``file.py:Net``). ``optimizer="adam"`` is short for
    ``local={"optimizer": "adam"}``. The data are loaded if the number of rounds follows from them;
    `data_dir` is their folder:

    >>> settings = {"memory": "reservoir", "local": {"lr": 0.1}, "capacity": 50}
    >>> plan = make_plan("sfedpo", "digits-partial", **settings)
    >>> type(plan.recipe.memory).__name__, plan.local.lr, plan.scenario.capacity
    ('Reservoir', 0.1, 50)
    """
    require(
        not isinstance(recipe, str) or recipe not in BASELINES,
        f"expected a recipe, but {recipe} is a baseline, which has no model to train; compare it "
        f"with recipes (thalweg.compare), or run it from the command line (thalweg run {recipe}).",
    )
    require(
        isinstance(recipe, str | Recipe),
        f"expected one recipe or its name, got {type(recipe).__name__}; compare several with "
        "thalweg.compare.",
    )
    recipe = get_recipe(recipe) if isinstance(recipe, str) else recipe
    if engine not in ("auto", *ENGINES):
        raise UnknownName("engine", engine, ["auto", *ENGINES])
    recipe, scenario = _apply_changes(
        recipe,
        scenario,
        seed=seed,
        rounds=rounds,
        overrides=overrides,
        model=model,
        data_dir=data_dir,
        **settings,
    )
    return Plan(recipe, scenario, seed, "fast" if engine == "auto" else cast(EngineName, engine))


def format_command(
    words: Sequence[str],
    *,
    sets: Sequence[str] = (),
    rounds: int | None = None,
    engine: str = "auto",
    data_dir: Path | None = None,
    out: Path | None = None,
) -> str:
    """Return a command line with all options that change its plan; defaults are left out.

    >>> format_command(["run", "fedavg", "--on", "my data.csv"], sets=["capacity=9"], rounds=3)
    "thalweg run fedavg --on 'my data.csv' --set capacity=9 --rounds 3"
    """
    words = ["thalweg", *words, *(word for each in sets for word in ("--set", each))]
    words += ["--rounds", str(rounds)] if rounds is not None else []
    words += ["--engine", engine] if engine != "auto" else []
    words += ["--data-dir", str(data_dir)] if data_dir is not None else []
    words += ["--out", str(out)] if out is not None else []
    return shlex.join(words)


def make_any_plan(
    method: Recipe | Baseline | str, scenario: ScenarioLike, **options: Any
) -> AnyPlan:
    """Return the plan of the recipe or the baseline that has the name.

    `options` are the keyword arguments of `make_plan`. Baselines have no engine.

    >>> make_any_plan("majority", "elec2", overrides=["pooled=true", "rounds=5"]).title
    'majority on elec2, seed 0'
    """
    method = find_method(method)
    if not isinstance(method, Baseline):
        return make_plan(method, scenario, **options)
    options.pop("engine", None)
    return BaselinePlan(*_apply_changes(method, scenario, **options), options.get("seed", 0))


def is_used_by(method: Recipe | Baseline, name: str) -> bool:
    """Return whether a setting has an effect: baselines have no net and no local training."""
    return not isinstance(method, Baseline) or name not in UNUSED_BY_BASELINES


def check_used_by(methods: Iterable[Recipe | Baseline], names: Iterable[str]) -> None:
    """Reject settings that have no effect on any of the methods, which are then baselines."""
    methods = list(methods)
    unused = [name for name in names if not any(is_used_by(method, name) for method in methods)]
    if unused:
        options = [UNUSED_BY_BASELINES[name] for name in dict.fromkeys(unused)]
        baselines = " and ".join(method.name for method in methods)
        raise ConfigError(
            f"no effect on {baselines}: {', '.join(options)}. A baseline has no net that clients "
            "train. Leave the setting out, or compare the baseline with a recipe "
            f"(thalweg compare fedavg {methods[0].name})."
        )


def find_method(given: Recipe | Baseline | str) -> Recipe | Baseline:
    """Return a recipe or a baseline, or the one that has the name."""
    if not isinstance(given, str):
        return given
    if given in BASELINES:
        return BASELINES[given]()
    if not {"+", ","} & set(given) and given not in RECIPES:
        raise UnknownName("recipe", given, [*RECIPES, *BASELINES], see="thalweg list")
    return get_recipe(given)


def _apply_changes(
    method: Method,
    scenario: ScenarioLike,
    *,
    seed: int = 0,
    rounds: int | None = None,
    overrides: Iterable[str] = (),
    model: Any = None,
    data_dir: Path | None = None,
    **settings: Any,
) -> tuple[Method, Scenario]:
    """Return a recipe (or baseline) and a scenario with all changes of `make_plan`."""
    method, scenario = apply_settings(method, scenario, overrides, settings, model)
    scenario = replace(scenario, net=add_file_digest(scenario.net))
    require(rounds is None or rounds >= 1, f"rounds must be at least 1, got {rounds}.")
    scenario = scenario if rounds is None else replace(scenario, rounds=rounds)
    if isinstance(method, Recipe) and method.name == "auto":
        task = _find_task(scenario.data) or scenario.data.load(data_dir, seed).task
        if task == "regression":
            method = cast(Method, adapt_to_regression(method))
    return method, resolve_sizes(scenario, data_dir, seed)


def with_model(scenario: Scenario, model: Any, settings: Mapping[str, Any]) -> Scenario:
    """Return the scenario with a model: a module, a class, a function, a path or a net."""
    if model is None:
        return scenario
    require(
        isinstance(settings.get("net", {}), Mapping),
        "model and net are the same setting, but both were given; leave one of them out.",
    )
    return replace(scenario, net=make_model_spec(model, NETS))


def apply_settings(
    method: Method,
    scenario: ScenarioLike,
    overrides: Iterable[str],
    settings: Mapping[str, Any],
    model: Any = None,
) -> tuple[Method, Scenario]:
    """Apply a model, overrides and then keyword settings to a recipe (or baseline) and a scenario.

    Sizes that follow from the data are not resolved, so the data are not loaded.
    """
    scenario = with_model(find_scenario(scenario), model, settings)
    if method.name == "auto" and scenario.prequential == 0:  # it learns from these predictions
        scenario = replace(scenario, prequential=AUTO_PREQUENTIAL)
    for given in (parse_overrides(overrides), settings):
        changes = _move_optimizer(given)
        is_for_method = {name: is_part_of_method(method, name) for name in changes}
        for_method = {name: value for name, value in changes.items() if is_for_method[name]}
        for_scenario = {name: value for name, value in changes.items() if not is_for_method[name]}
        method = with_settings(method, for_method)
        scenario = with_settings(scenario, for_scenario)
    return method, scenario


def _move_optimizer(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert ``optimizer``, the short form of ``local.optimizer``, to the long form.

    >>> _move_optimizer({"optimizer": "adam", "local": {"lr": 0.001}})
    {'local': {'lr': 0.001, 'optimizer': 'adam'}}
    """
    if "optimizer" not in settings:
        return settings
    others = {name: value for name, value in settings.items() if name != "optimizer"}
    optimizer, local = settings["optimizer"], others.get("local", {})
    if optimizer is None:
        return others
    if isinstance(local, LocalTraining):
        return {**others, "local": with_settings(local, {"optimizer": optimizer}, "local")}
    options = local.get("optimizer", {}) if isinstance(local, Mapping) else None
    if isinstance(options, Mapping) and options and isinstance(optimizer, str):
        optimizer, options = {"kind": optimizer, **options}, {}
    require(
        options == {},
        "expected one optimizer, got both optimizer and local.optimizer. Remove one of them.",
    )
    return {**others, "local": {**local, "optimizer": optimizer}}


def split_overrides(
    method: Recipe | Baseline, overrides: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Return the overrides of the recipe (or baseline), and those of the scenario."""
    overrides = list(overrides)
    is_for_method = [is_part_of_method(method, get_part(each)) for each in overrides]
    return (
        [each for each, is_its in zip(overrides, is_for_method, strict=True) if is_its],
        [each for each, is_its in zip(overrides, is_for_method, strict=True) if not is_its],
    )


def get_part(override: str) -> str:
    """Return the part of a recipe or scenario that an override changes.

    >>> get_part("local.lr=0.1")
    'local'
    """
    return override.partition("=")[0].partition(".")[0].strip()


def is_part_of_method(method: Recipe | Baseline, name: str) -> bool:
    """Return whether a setting belongs to the recipe (or baseline) or to the scenario.

    Both have a field `local`; it belongs to the recipe only if the recipe defines it. `optimizer`
    is the short form of `local.optimizer`.
    """
    name = "local" if name == "optimizer" else name
    of_method = {field.name for field in dataclasses.fields(method)} - {"name"}
    of_scenario = {field.name for field in dataclasses.fields(Scenario)} - {"name"}
    if isinstance(method, Recipe) and method.local is None:
        of_method -= {"local"}
    require(
        name != "model",
        "unknown setting 'model': the setting is named net. Use --model FILE.py:NAME, or --set "
        "net=module --set net.path=FILE.py:NAME.",
    )
    if name not in of_method | of_scenario:
        raise UnknownName("setting", name, of_method | of_scenario | {"optimizer"})
    return name in of_method


def plan_to_toml(plan: AnyPlan) -> str:
    """Return a plan as the text of a TOML file."""
    text = tomli_w.dumps(to_dict(plan))
    require(
        len(text) <= MAX_PLAN_BYTES,
        f"the plan of {plan.title} has {len(text):,} bytes, at most {MAX_PLAN_BYTES:,} are "
        "allowed; write long lists to files, such as drift.path.",
    )
    return text


def plan_from_toml(text: str, where: str) -> Plan:
    """Return the plan of a recipe from the text of a TOML file; `where` names it in errors.

    The plan may import files that it names. Read the plan of another machine with
    `plan_from_dict`.
    """
    return plan_from_dict(parse_plan(text, where), where, None)


def plan_from_dict(plain: Mapping[str, Any], where: str, registry: Registry | None) -> Plan:
    """Return the plan of a recipe from plain values.

    With a registry the plan can name only what is registered: no files, modules or functions.
    """
    require(
        "baseline" not in plain,
        f"{where} is the plan of a baseline; expected the plan of a recipe.",
    )
    return from_dict(Plan, plain, registry=registry)


def any_plan_from_toml(text: str, where: str) -> AnyPlan:
    """Return a plan from the text of a TOML file; `where` names it in errors."""
    return any_plan_from_dict(parse_plan(text, where))


def any_plan_from_dict(plain: Mapping[str, Any], registry: Registry | None = None) -> AnyPlan:
    """Return a plan from plain values; with a registry as in `plan_from_dict`."""
    cls: type[AnyPlan] = BaselinePlan if "baseline" in plain else Plan
    return from_dict(cls, plain, registry=registry)


def read_plan(path: Path) -> Plan:
    """Read the plan of a recipe from a run folder or a plan.toml.

    Code that it names is imported; `ConfigError` if other users could have changed it.
    """
    plain, where = read_plain_plan(path)
    check_code_files(plain, path)
    return plan_from_dict(plain, where, None)


def read_any_plan(path: Path) -> AnyPlan:
    """Read a plan from a run folder or a plan.toml, as `read_plan` does."""
    plain, _ = read_plain_plan(path)
    check_code_files(plain, path)
    return any_plan_from_dict(plain)


def read_plain_plan(path: Path) -> tuple[dict[str, Any], str]:
    """Return the values of a plan without importing anything, and the name of its file."""
    text, where = _read_text(path)
    return parse_plan(text, where), where


def parse_plan(text: str, where: str) -> dict[str, Any]:
    """Return the values of a plan from the text of a TOML file, without importing anything."""
    _check_size(len(text), where)
    try:
        plain = parse_toml(text)
    except ValueError as error:
        raise ConfigError(f"{where} is not a TOML file of a plan: {error}.") from error
    require(
        "scenario" in plain and ("recipe" in plain or "baseline" in plain),
        f"{where} is not a plan: expected a recipe and a scenario, got "
        f"{', '.join(list(plain)[:5]) or 'an empty file'}.",
    )
    return plain


def _check_size(size: int, where: str) -> None:
    require(
        size <= MAX_PLAN_BYTES,
        f"{where} has {size:,} bytes, but a plan has at most {MAX_PLAN_BYTES:,}; expected the "
        "plan.toml of a run folder.",
    )


def _read_text(path: Path) -> tuple[str, str]:
    """Return the text of the plan of a run folder, or of a plan.toml, and the name of the file."""
    file = path / "plan.toml" if path.is_dir() else path
    try:
        _check_size(file.stat().st_size, str(file))
        return file.read_bytes().decode(), str(file)
    except OSError as error:
        raise ConfigError(f"cannot read a plan from {file}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is damaged: it is not UTF-8 ({error.reason}).") from error


def plan_differences(old: AnyPlan, new: AnyPlan) -> list[str]:
    """Return the differences between two plans, one line each: ``path: old -> new``."""
    before, after = flatten_plan(old), flatten_plan(new)
    return [
        f"{path}: {before.get(path, 'absent')} -> {after.get(path, 'absent')}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]


def flatten_plan(plan: AnyPlan) -> dict[str, Any]:
    """Return all settings of a plan by their paths, such as ``scenario.local.lr``."""
    return _flatten(to_dict(plan))


def _flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
