"""Build the native kernel at installation, once per instruction set, if there is a compiler.

The libraries are plain C behind ctypes: they use no interface of Python, so that one wheel serves
all versions. Without a compiler the installation succeeds, and training uses PyTorch.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

FOLDER = "src/thalweg/native/c"
FLAGS = ["-O3", "-g0", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
INSTRUCTION_SETS = {  # name -> compiler flags
    "x86_64": {
        "sse2": ["-march=x86-64"],
        "avx2": ["-march=x86-64-v3"],
        "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
    },
    "amd64": {},  # Windows: no compiler with vector types
    "aarch64": {"neon": []},
    "arm64": {"neon": []},
}


class BuildKernel(build_ext):
    """A library for ctypes, which is no module of Python."""

    def run(self) -> None:
        if self.inplace:
            os.makedirs("src/thalweg/native/libraries", exist_ok=True)
        super().run()

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return []

    def get_ext_filename(self, fullname: str) -> str:
        return os.path.join(*fullname.split(".")) + ".so"


class AnyPythonWheel(bdist_wheel):
    """The wheel depends on the platform, but not on the version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


def list_extensions() -> list[Any]:
    if os.environ.get("THALWEG_NO_KERNEL"):
        return []
    sets = INSTRUCTION_SETS.get(platform.machine().lower(), {})
    headers = [f"{FOLDER}/{name}" for name in sorted(os.listdir(FOLDER)) if name != "kernel.c"]
    return [
        Extension(
            f"thalweg.native.libraries.kernel_{name}",
            [f"{FOLDER}/kernel.c"],
            depends=headers,
            extra_compile_args=[*FLAGS, *flags],
            libraries=[] if sys.platform == "win32" else ["m"],
            optional=True,
        )
        for name, flags in sets.items()
    ]


setup(
    ext_modules=list_extensions(),
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": AnyPythonWheel},
)
