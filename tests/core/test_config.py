"""Configuration: dataclasses as TOML values, overrides, and policies from modules and files."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.config import (
    build,
    check_literals,
    check_ranges,
    choice,
    class_of,
    from_dict,
    get_function_path,
    kind_of,
    load_function,
    load_object,
    parse,
    to_dict,
    with_overrides,
    with_settings,
)
from thalweg.core.errors import ConfigError, UnknownName, require


@dataclass(frozen=True)
class Window:
    length: int = 3

    def __post_init__(self) -> None:
        require(self.length >= 1, f"length must be at least 1, got {self.length}.")


@dataclass(frozen=True)
class Decay:
    rate: float = 0.5
    shape: Literal["linear", "exponential"] = "linear"

    def __post_init__(self) -> None:
        check_literals(self)


@dataclass(frozen=True)
class Either:
    left: int | None = None
    right: int | None = None

    def __post_init__(self) -> None:
        require((self.left is None) != (self.right is None), "either left or right, not both.")


TABLE = {"window": Window, "decay": Decay, "either": Either}


@dataclass(frozen=True)
class Step:
    size: float
    momentum: float | None = None


@dataclass(frozen=True)
class Method:
    name: str
    memory: Any = choice(TABLE)
    spare: Any = choice(TABLE, default=Window())
    step: Step = Step(0.1)
    extra: Step | None = None
    limit: int | None = None
    sizes: tuple[int, ...] = (1, 2)
    quick: bool = False
    options: dict[str, int] = field(default_factory=dict)


METHOD = Method("mine", Decay(0.25))
ELSEWHERE = f"{__name__}:Decay"


def test_to_dict_converts_a_dataclass_to_plain_values() -> None:
    assert to_dict(METHOD) == {
        "name": "mine",
        "memory": {"kind": "decay", "rate": 0.25, "shape": "linear"},
        "spare": {"kind": "window", "length": 3},
        "step": {"size": 0.1, "momentum": "none"},
        "extra": "none",
        "limit": "none",
        "sizes": [1, 2],
        "quick": False,
        "options": {},
    }


@given(
    memory=st.builds(Window, st.integers(1, 9)) | st.builds(Decay, st.floats(0, 1)),
    extra=st.none() | st.builds(Step, st.floats(0, 1), st.none() | st.floats(0, 1)),
    limit=st.none() | st.integers(-(2**63), 2**63 - 1),
    sizes=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    quick=st.booleans(),
)
def test_dataclass_round_trips_through_toml(
    memory: Any, extra: Step | None, limit: int | None, sizes: tuple[int, ...], quick: bool
) -> None:
    method = Method("m", memory, extra=extra, limit=limit, sizes=sizes, quick=quick)
    assert from_dict(Method, tomllib.loads(tomli_w.dumps(to_dict(method)))) == method


def test_missing_fields_have_their_defaults() -> None:
    assert from_dict(Method, {"name": "m", "memory": "window"}) == Method("m", Window())


def test_missing_fields_without_defaults_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"Method needs name, memory\."):
        from_dict(Method, {})
    with pytest.raises(ConfigError, match=r"step needs size\."):
        from_dict(Method, {"name": "m", "memory": "window", "step": {}})


def test_unknown_field_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(UnknownName, match=r"field of memory 'lenght'.*Did you mean 'length'\?"):
        from_dict(Method, {"name": "m", "memory": {"kind": "window", "lenght": 3}})


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"limit": 0.5}, r"limit=0\.5: expected a whole number or none, got a number\. Example: "),
        ({"quick": 1}, "quick=1: expected true or false, got a whole number. Example: quick=true"),
        ({"sizes": "3"}, "sizes=3: expected whole numbers, got text"),
        ({"sizes": 0.5}, "sizes=0.5: expected whole numbers, got a number"),
        ({"step": {"size": "big"}}, r"step\.size=big: expected a number, got text\. Example: step"),
        ({"step": 3}, "step=3: expected fields of Step"),
        ({"memory": 3}, r"memory: expected a kind, one of \['decay', 'either', 'window'\], got 3"),
        ({"memory": {"length": 3}}, "memory: expected a kind"),
        ({"memory": {"kind": "decay", "shape": "round"}}, r"memory\.shape=round: expected one of"),
        ({"memory": {"kind": "window", "length": 0}}, "length must be at least 1, got 0"),
    ],
)
def test_invalid_value_is_rejected_with_its_path(plain: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(Method, {"name": "m", "memory": "window"} | plain)


def test_integer_is_converted_for_a_float_field() -> None:
    built = from_dict(Step, {"size": 1})
    assert isinstance(built.size, float)


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("limit=5", {"limit": 5}),
        ("limit = 5", {"limit": 5}),
        ("limit=none", {"limit": None}),
        ("quick=true", {"quick": True}),
        ("quick=True", {"quick": True}),
        ("sizes=[4, 5]", {"sizes": (4, 5)}),
        ("name=a=b", {"name": "a=b"}),
        ('name="5"', {"name": "5"}),
        ("memory.rate=0.5", {"memory": Decay(0.5)}),
        ("memory.shape=exponential", {"memory": Decay(0.25, "exponential")}),
        ("memory=window", {"memory": Window()}),
        ("memory={kind='window', length=9}", {"memory": Window(9)}),
        ("step.momentum=0.9", {"step": Step(0.1, 0.9)}),
        ("extra={size=2}", {"extra": Step(2.0)}),
    ],
)
def test_override_changes_only_the_named_field(assignment: str, expected: dict[str, Any]) -> None:
    before = Method("mine", Decay(0.25))
    after = with_overrides(before, [assignment])
    changed = {name: getattr(after, name) for name in expected}
    assert changed == expected
    assert before == METHOD, "the original is unchanged"
    rest = set(vars(after)) - set(expected)
    assert all(getattr(after, name) == getattr(before, name) for name in rest)


@pytest.mark.parametrize(
    ("assignments", "memory"),
    [
        (["memory=window", "memory.length=9"], Window(9)),
        (["memory.rate=0.5", "memory=window"], Window()),  # the later one replaces the component
        (["memory.rate=0.5", "memory.rate=0.75"], Decay(0.75)),
        (["memory.rate=0.5", "memory.shape=exponential"], Decay(0.5, "exponential")),
        ([], Decay(0.25)),
    ],
)
def test_overrides_are_applied_in_order(assignments: list[str], memory: Any) -> None:
    assert with_overrides(METHOD, assignments).memory == memory


@dataclass(frozen=True)
class Stored:
    path: str
    limit: int = 3


@dataclass(frozen=True)
class Source:
    data: Any = choice({"window": Window, "stored": Stored}, default=Window())
    sizes: tuple[int, ...] = (1, 2)


def test_a_component_and_its_required_fields_can_be_set_together() -> None:
    assert with_overrides(Source(), ["data=stored", "data.path=x.npz"]).data == Stored("x.npz")
    for assignments in (["data=stored"], ["data.path=x.npz", "data=stored"]):
        with pytest.raises(
            ConfigError, match=r"data needs path\. Set data\.path after data, which"
        ):
            with_overrides(Source(), assignments)


def test_a_single_value_is_accepted_for_a_tuple() -> None:
    assert with_overrides(Source(), ["sizes=200"]).sizes == (200,)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"memory": Window}, Window()),
        ({"memory": "window"}, Window()),
        ({"memory": Window(7)}, Window(7)),
        ({"memory": {"rate": 0.75}}, Decay(0.75)),
        ({"memory": {"kind": "window", "length": 4}}, Window(4)),
    ],
)
def test_settings_are_instances_classes_names_or_mappings(
    settings: dict[str, Any], expected: Any
) -> None:
    assert with_settings(METHOD, settings).memory == expected


def test_overrides_are_validated_together() -> None:
    method = Method("m", Either(left=1))
    assignments = ["memory.left=none", "memory.right=2"]
    for order in (assignments, assignments[::-1]):
        assert with_overrides(method, order).memory == Either(right=2)
    with pytest.raises(ConfigError, match="either left or right"):
        with_overrides(method, ["memory.right=2"])


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("limit", "expected part.field=value"),
        ("=5", "expected part.field=value"),
        ("limt=5", r"Did you mean 'limit'\?"),
        ("memory.rte=5", r"Did you mean 'rate'\?"),
        ("memory=windw", r"unknown memory 'windw'.*Did you mean 'window'\?"),
        ("memory.rate=fast", r"memory\.rate=fast: expected a number, got text"),
        ("limit.size=5", "limit is None and has no field 'size'"),
        ("limit=many", "limit=many: expected a whole number or none"),
        ("quick=none", "quick=none: expected true or false"),
    ],
)
def test_invalid_override_is_rejected_with_a_remedy(assignment: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_overrides(METHOD, [assignment])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("5.0", 5.0),
        ("1e-4", 1e-4),
        ("-2", -2),
        ("false", False),
        ("kl", "kl"),
        ("2024-13-99", "2024-13-99"),
        ("", ""),
        ("[1, 2", "[1, 2"),
    ],
)
def test_parse_converts_text_to_values(text: str, value: object) -> None:
    assert parse(text) == value
    assert type(parse(text)) is type(value)


def test_kind_of_a_registered_class_is_its_name() -> None:
    assert kind_of(Window(), TABLE) == "window"
    assert class_of("window", TABLE, "memory") is Window
    assert build(TABLE, "window", "memory") == Window()


def test_policy_of_a_module_needs_no_registration() -> None:
    own: dict[str, Any] = {"window": Window}
    assert kind_of(Decay(), own) == ELSEWHERE
    plain = to_dict(Decay(0.125), own)
    assert build(own, plain, "memory") == Decay(0.125)


def test_policy_of_a_file_round_trips_through_toml(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\n"
        "class Mine:\n"
        "    share: float = 0.5\n"
    )
    kind = f"{file}:Mine"
    method = with_overrides(METHOD, [f"memory={kind}"])
    assert method.memory.share == 0.5
    method = with_overrides(method, ["memory.share=0.75"])
    plain = to_dict(method)
    assert plain["memory"] == {"kind": kind, "share": 0.75}
    again = from_dict(Method, tomllib.loads(tomli_w.dumps(plain)))
    assert again == method, "the file is loaded once, so the classes are one"


SCRIPT = """
import sys, tomllib
from dataclasses import dataclass

import tomli_w

from thalweg.core.config import build, kind_of, to_dict

print("begins")


@dataclass(frozen=True)
class Mine:
    share: float = 0.5


plain = tomllib.loads(tomli_w.dumps(to_dict(Mine(0.75), {})))
print(plain["kind"], build({}, plain, "memory") == Mine(0.75))
"""


def test_kind_of_a_policy_in_a_script_is_its_file_and_the_script_runs_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "inside/script.py"
    file.parent.mkdir()
    file.write_text(SCRIPT)
    for folder, kind in (
        (tmp_path, "inside/script.py:Mine"),
        (tmp_path / "inside", "script.py:Mine"),
        (tmp_path / "elsewhere", f"{file}:Mine"),
    ):
        done = subprocess.run(
            [sys.executable, str(file)], cwd=folder, capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines() == ["begins", f"{kind} True"]


def test_kind_of_a_policy_in_a_module_run_with_m_is_the_module(
    tmp_path: Path,
) -> None:
    (tmp_path / "modular.py").write_text(SCRIPT.replace(" == Mine(0.75)", ".share"))
    done = subprocess.run(
        [sys.executable, "-m", "modular"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "modular:Mine 0.75" in done.stdout


def test_missing_policy_is_rejected_with_its_location(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("class Plain: ...\n")
    for kind, message in (
        (f"{file}:Plain", "has no dataclass named 'Plain'"),
        (f"{file}:Missing", "has no dataclass named 'Missing'"),
        (f"{tmp_path}/none.py:Mine", "there is no file"),
        ("no_such_module:Mine", "cannot import 'no_such_module'"),
    ):
        with pytest.raises(ConfigError, match=message):
            build(TABLE, kind, "memory")


class Keeps(Protocol):
    def keep(self, number: int) -> int: ...


@dataclass(frozen=True)
class Keeper:
    memory: Keeps = choice({})
    spare: Keeps | None = choice({}, default=None)


def test_policy_without_a_required_method_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\n"
        "class Whole:\n"
        "    def keep(self, number): return number\n"
        "@dataclass(frozen=True)\n"
        "class Half:\n"
        "    def kepe(self, number): return number\n"
    )
    keeper = from_dict(Keeper, {"memory": f"{file}:Whole"})
    assert keeper.memory.keep(3) == 3
    for part in ("memory", "spare"):
        with pytest.raises(ConfigError, match=f"{part}=Half: expected a Keeps, but it has no keep"):
            with_overrides(keeper, [f"{part}={file}:Half"])


def test_file_without_a_class_name_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"expected a class of that file, such as own.py:CLASS"):
        build(TABLE, "own.py", "memory")


def test_file_that_fails_to_load_is_loaded_again_the_next_time(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("raise RuntimeError('on purpose')\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match="RuntimeError: on purpose"):
            build(TABLE, f"{file}:Mine", "memory")


def test_unknown_literal_is_rejected_by_the_constructor() -> None:
    with pytest.raises(UnknownName, match=r"unknown shape 'linaer'.*Did you mean 'linear'\?"):
        Decay(shape="linaer")  # type: ignore[arg-type]


@dataclass(frozen=True)
class Ranged:
    share: float = 0.5
    size: int = 1
    rate: float | None = None

    def __post_init__(self) -> None:
        check_ranges(self, share="[0, 1)", size="[1, inf)", rate="[0, inf) or none")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 1.0}, r"share must lie in \[0, 1\), got 1.0"),
        ({"share": float("nan")}, "share must lie in"),
        ({"share": "half"}, "share must lie in .* got half"),
        ({"share": None}, "share must lie in"),
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"size": float("inf")}, "size must be at least 1, got inf"),
        ({"rate": -1.0}, r"rate must lie in \[0, inf\), or none, got -1.0"),
    ],
)
def test_numbers_outside_their_interval_are_rejected(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Ranged(**values)


def test_numbers_inside_their_interval_are_accepted() -> None:
    assert Ranged(share=0, size=7, rate=None) == Ranged(0, 7)
    assert Ranged(rate=np.float64(0.0)).rate == 0


@dataclass(frozen=True)
class Shelf:
    kept: tuple[Ranged, ...] = (Ranged(),)


def test_a_tuple_of_dataclasses_is_a_list_of_tables() -> None:
    shelf = Shelf((Ranged(size=2), Ranged(share=0.1, rate=3.0)))
    plain = to_dict(shelf)
    assert plain == {
        "kept": [
            {"share": 0.5, "size": 2, "rate": "none"},
            {"share": 0.1, "size": 1, "rate": 3.0},
        ]
    }
    assert from_dict(Shelf, plain) == shelf
    assert from_dict(Shelf, {"kept": []}) == Shelf(())
    assert with_overrides(shelf, ["kept=[{size = 4}, {}]"]) == Shelf((Ranged(size=4), Ranged()))


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ([{"size": 1}, {"sise": 2}], r"unknown field of kept\[1\] 'sise'"),
        ([{"size": 0}], "size must be at least 1"),
        ([3], r"kept\[0\]: expected fields of Ranged, got 3"),
        (3, "kept=3"),
    ],
)
def test_error_in_a_tuple_of_dataclasses_names_its_index(kept: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_dict(Shelf, {"kept": kept})


def test_path_of_an_instance_changes_with_its_settings_and_tensors() -> None:
    from functools import partial

    import torch

    def weighted(weight: list[float]) -> str:
        return get_function_path(torch.nn.CrossEntropyLoss(torch.tensor(weight), reduction="none"))

    assert weighted([1.0, 2.0]) == weighted([1.0, 2.0]) != weighted([1.0, 3.0])
    assert weighted([1.0, 2.0]).startswith("torch.nn.modules.loss:<CrossEntropyLoss ")
    assert get_function_path(torch.nn.HuberLoss(delta=1)) != get_function_path(
        torch.nn.HuberLoss(delta=2)
    )
    assert get_function_path(partial(max, 1)) != get_function_path(partial(max, 2))
    with pytest.raises(ConfigError, match="an instance or an inner function cannot be loaded"):
        load_function(weighted([1.0, 2.0]), "loss")


@pytest.mark.parametrize(
    "text, message",
    [
        ("class Net(:", "importing it failed with SyntaxError: invalid syntax"),
        ("1 / 0", "importing it failed with ZeroDivisionError"),
        ("raise SystemExit(3)", "importing it failed with SystemExit: 3"),
        ("import no_such_module_x", "failed with ModuleNotFoundError: No module named"),
    ],
)
def test_a_file_that_cannot_be_imported_is_reported(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "broken.py").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_function(f"{tmp_path}/broken.py:f", "loss")
    with pytest.raises(ConfigError, match=message):  # a second time too
        build(TABLE, f"{tmp_path}/broken.py:Mine", "memory")


@pytest.mark.parametrize("path", [":f", "net.py:", "net.py:Net:f"])
def test_a_path_without_a_file_or_a_name_is_rejected(path: str) -> None:
    with pytest.raises(ConfigError, match=r"expected FILE.py:NAME or package.module:NAME"):
        load_object(path)


def test_a_missing_function_is_reported_with_the_names_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from math import sqrt\nclass A: ...\ndef f(): ...\nX = 3\n")
    with pytest.raises(ConfigError, match=r"has no function 'g'\. It defines A, f\.$"):
        load_function(f"{tmp_path}/own.py:g", "loss")


def test_a_deeply_nested_value_is_text() -> None:
    nested = "[" * 20_000
    assert parse(nested) == nested
