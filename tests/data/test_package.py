from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import typing

import pytest

from thalweg import data
from thalweg.core.config import from_dict, to_dict

REQUIRED = {
    "arrays": {"path": "mine.npz"},
    "table": {"path": "mine.csv"},
    "river": {"name": "SEA"},
    "huggingface": {"name": "mnist"},
    "array-folder": {"path": "photos"},
}


@pytest.mark.parametrize("kind", data.SOURCES)
def test_every_data_source_is_a_frozen_dataclass_that_round_trips(kind: str) -> None:
    cls = data.SOURCES[kind]
    source = cls(**REQUIRED.get(kind, {}))
    assert dataclasses.is_dataclass(source)
    assert cls.__dataclass_params__.frozen
    assert from_dict(cls, to_dict(source)) == source


@pytest.mark.parametrize("kind", ["digits", "synthetic-logistic", "gaussian-mixture"])
def test_generated_data_sources_load_without_files_and_are_reproducible(kind: str) -> None:
    one, two = (data.SOURCES[kind]().load(None, seed=4) for _ in range(2))
    assert one.name == kind
    assert one.x.tobytes() == two.x.tobytes()
    assert one.x.flags.writeable
    assert one.x.flags.c_contiguous


def test_every_public_name_of_the_data_package_exists() -> None:
    assert all(hasattr(data, name) for name in data.__all__)
    assert typing.get_type_hints(data.DataSource.load)["return"] is data.Dataset


def test_importing_the_data_package_loads_no_heavy_modules() -> None:
    heavy = {
        "torch",
        "pyarrow",
        "sklearn",
        "scipy",
        "rich",
        "platformdirs",
        "urllib.request",
        "PIL",
    }
    code = f"import sys, thalweg.data; print(sorted({heavy!r} & set(sys.modules)))"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True
    )
    assert run.stdout == "[]\n"
