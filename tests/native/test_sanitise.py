"""The kernel has neither memory errors nor undefined behaviour, by the sanitisers of the compiler.

Neither Python nor torch runs here: a small C program calls all entry points.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

import thalweg

SOURCES = Path(thalweg.__file__).parent / "native" / "c"
DRIVER = Path(__file__).with_name("sanitise.c")
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-Wno-psabi"]
SANITISERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
TARGETS = {
    "x86_64": ["-march=x86-64", "-march=x86-64-v3", "-march=x86-64-v4"],
    "aarch64": ["-march=armv8-a"],
    "arm64": [],
}.get(platform.machine(), [])


def compile_driver(compiler, flags, folder):
    program = folder / "sanitise"
    command = [
        *(compiler, "-std=gnu11", *WARNINGS, *flags, f"-I{SOURCES}"),
        *(str(DRIVER), "-o", str(program), "-lm"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def has_instructions(flag):
    needed = {"-march=x86-64-v3": "avx2", "-march=x86-64-v4": "avx512bw"}.get(flag)
    if needed is None:
        return True
    return needed in Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else False


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_memory_and_undefined_behaviour(target, tmp_path):
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    if not has_instructions(target):
        pytest.skip(f"this processor does not have the instructions of {target}")
    program = compile_driver(compiler, ["-O1", "-g", target, *SANITISERS], tmp_path)
    done = subprocess.run(
        [program, "400"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout == "400 cases\n"


@pytest.mark.slow
def test_code_for_arm_under_an_emulator(tmp_path):
    compiler, emulator = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs gcc-aarch64-linux-gnu and qemu-user")
    program = compile_driver(compiler, ["-O2", "-static"], tmp_path)
    done = subprocess.run([emulator, program, "100"], capture_output=True, text=True, check=False)
    assert done.stdout == "100 cases\n", done.stderr
